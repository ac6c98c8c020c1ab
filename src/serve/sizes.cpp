#include "serve/sizes.h"

#include "base/error.h"

#include <charconv>
#include <limits>

namespace torch_xla::serve {

namespace {

// What is before the first `mark`; `rest` begins behind it.
std::string_view take_until(std::string_view& rest, std::string_view mark) {
  const size_t at = std::min(rest.find(mark), rest.size());
  const std::string_view taken = rest.substr(0, at);
  rest.remove_prefix(std::min(at + mark.size(), rest.size()));
  return taken;
}

int64_t factor_value(std::string_view factor, const Symbols& symbols) {
  if (auto symbol = symbols.find(factor); symbol != symbols.end()) {
    return symbol->second;
  }
  int64_t number = 0;
  const char* end = factor.data() + factor.size();
  if (std::from_chars(factor.data(), end, number).ptr != end || factor.empty()) {
    throw Error("the exported program has the size '" + std::string(factor) +
                "', which is not known: it was written by a newer torch_xla, or is damaged");
  }
  return number;
}

// A sum of products of numbers and symbols.
int64_t value_of(std::string_view expression, const Symbols& symbols) {
  int64_t sum = 0;
  while (!expression.empty()) {
    std::string_view product = take_until(expression, "+");
    int64_t value = 1;
    while (!product.empty()) {
      value *= factor_value(take_until(product, "*"), symbols);
    }
    sum += value;
  }
  return sum;
}

std::vector<Shape> values_of(const std::vector<std::vector<std::string>>& expressions,
                             const Symbols& symbols) {
  std::vector<Shape> shapes;
  for (const auto& sizes : expressions) {
    Shape& shape = shapes.emplace_back();
    for (const std::string& size : sizes) {
      shape.push_back(value_of(size, symbols));
    }
  }
  return shapes;
}

std::vector<std::vector<std::string>> expressions_of(const Json& described) {
  std::vector<std::vector<std::string>> expressions;
  for (const Json& shape : described.array()) {
    auto& sizes = expressions.emplace_back();
    for (const Json& size : shape.array()) {
      sizes.push_back(size.is_string() ? size.string() : std::to_string(size.integer()));
    }
  }
  return expressions;
}

std::string listed(const std::vector<std::string>& sizes) {
  std::string text;
  for (const std::string& size : sizes) {
    text += (text.empty() ? "" : ", ") + size;
  }
  return text;
}

bool mentions(std::string_view expression, std::string_view symbol) {
  while (!expression.empty()) {
    std::string_view product = take_until(expression, "+");
    while (!product.empty()) {
      if (take_until(product, "*") == symbol) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

Sizes::Sizes(const Json& described)
    : parameters_(expressions_of(described.at("inputs"))),
      results_(expressions_of(described.at("outputs"))) {
  for (const auto& [symbol, limits] : described.at("ranges").object()) {
    const Json& most = limits.array().at(1);
    ranges_[symbol] = {limits.array().at(0).integer(),
                       most.is_null() ? std::numeric_limits<int64_t>::max() : most.integer()};
  }
}

Symbols Sizes::symbols(const std::vector<Shape>& parameters) const {
  Symbols symbols;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].empty() && parameters[i].size() != parameters_[i].size()) {
      throw Error("an input of " + std::to_string(parameters[i].size()) +
                  " dimensions was given for one of the sizes [" + listed(parameters_[i]) + "]");
    }
  }
  for (const auto& [symbol, range] : ranges_) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      for (size_t dim = 0; dim < parameters[i].size(); ++dim) {
        const std::string& size = parameters_[i][dim];
        // The export made sure that there is a size that has the symbol alone, and is linear in it.
        bool alone = mentions(size, symbol) && symbols.count(symbol) == 0;
        for (const auto& [other, unused] : ranges_) {
          alone = alone && (other == symbol || !mentions(size, other));
        }
        if (!alone) {
          continue;
        }
        const int64_t at_0 = value_of(size, {{symbol, 0}});
        const int64_t step = value_of(size, {{symbol, 1}}) - at_0;
        if (value_of(size, {{symbol, 2}}) - at_0 == 2 * step) {
          symbols[symbol] = (parameters[i][dim] - at_0) / step;
        }
      }
    }
    const int64_t value = symbols[symbol];
    if (value < range.least || value > range.most) {
      throw Error("the program was exported for sizes " + symbol + " from " +
                  std::to_string(range.least) + " to " + std::to_string(range.most) +
                  ", and is given " + std::to_string(value) +
                  ": export it with another range in torch.export.Dim");
    }
  }
  return symbols;
}

std::vector<Shape> Sizes::parameters(const Symbols& symbols) const {
  return values_of(parameters_, symbols);
}

std::vector<Shape> Sizes::results(const Symbols& symbols) const {
  return values_of(results_, symbols);
}

std::string specialised(std::string_view text, const Symbols& symbols) {
  std::string result;
  while (!text.empty()) {
    result += take_until(text, "⟦");
    const std::string_view expression = take_until(text, "⟧");
    if (!expression.empty()) {
      result += std::to_string(value_of(expression, symbols));
    }
  }
  return result;
}

}  // namespace torch_xla::serve
