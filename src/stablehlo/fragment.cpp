#include "stablehlo/fragment.h"

#include "base/error.h"
#include "stablehlo/builder.h"

#include <cctype>
#include <map>
#include <set>

namespace torch_xla::stablehlo {

namespace {

const std::map<std::string, DType, std::less<>>& dtypes() {
  static const auto* table = [] {
    auto* names = new std::map<std::string, DType, std::less<>>;
    for (DType dtype : {DType::Bool, DType::Byte, DType::Char, DType::Short, DType::Int,
                        DType::Long, DType::UInt16, DType::UInt32, DType::UInt64, DType::Half,
                        DType::BFloat16, DType::Float, DType::Double, DType::ComplexFloat,
                        DType::ComplexDouble, DType::Float8_e4m3fn, DType::Float8_e5m2}) {
      names->emplace(element_type_string(dtype), dtype);
    }
    return names;
  }();
  return *table;
}

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.';
}

// Behind the string that begins at `at`.
size_t skip_string(const std::string& text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    at += text[at] == '\\' ? 1 : 0;
  }
  return at + 1;
}

// Behind the bracket that closes the one at `at`. Arrows are no brackets.
size_t skip_brackets(const std::string& text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = skip_string(text, at);
      continue;
    }
    const bool arrow = c == '>' && at > 0 && text[at - 1] == '-';
    if (c == '(' || c == '{' || c == '[' || c == '<') {
      ++depth;
    } else if ((c == ')' || c == '}' || c == ']' || c == '>') && !arrow) {
      --depth;
    }
    ++at;
    if (depth == 0) {
      return at;
    }
  }
  throw Error("StableHLO text: a bracket is not closed");
}

// The tensor types in a list of parameters or results, without those in attributes.
std::vector<TensorType> types_in(const std::string& text) {
  std::vector<TensorType> types;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '{') {
      at = skip_brackets(text, at);
    } else if (text.compare(at, 7, "tensor<") == 0) {
      const size_t end = skip_brackets(text, at + 6);
      types.push_back(parse_type(text.substr(at, end - at)));
      at = end;
    } else if (text[at] == '!') {
      throw Error("StableHLO text: @main takes or returns a value that is no tensor, near \"" +
                  text.substr(at, 24) + "\"");
    } else {
      ++at;
    }
  }
  return types;
}

// The symbol at `at` (behind its @), without quotes; `end` is set behind it.
std::string symbol_at(const std::string& text, size_t at, size_t* end) {
  if (at < text.size() && text[at] == '"') {
    *end = skip_string(text, at);
    return text.substr(at + 1, *end - at - 2);
  }
  *end = at;
  while (*end < text.size() && is_name_char(text[*end])) {
    ++*end;
  }
  return text.substr(at, *end - at);
}

constexpr char kFunction[] = "func.func ";
constexpr char kMesh[] = "sdy.mesh ";

bool starts(const std::string& text, size_t at, const char* word) {
  return text.compare(at, std::char_traits<char>::length(word), word) == 0;
}

// What stands between the braces of `module ... { ... }`; a text without a module is all of it.
std::string body_of(const std::string& module) {
  size_t at = module.find_first_not_of(" \t\r\n");
  while (at != std::string::npos && module[at] == '#') {  // aliases of locations
    at = module.find('\n', at);
    at = module.find_first_not_of(" \t\r\n", at);
  }
  if (at == std::string::npos || !starts(module, at, "module")) {
    return module;
  }
  const size_t attributes = module.find("attributes", at);
  size_t open = module.find('{', at);
  if (attributes < open) {
    open = module.find('{', skip_brackets(module, open));
  }
  if (open == std::string::npos) {
    throw Error("StableHLO text: the module has no body");
  }
  const size_t close = skip_brackets(module, open);
  return module.substr(open + 1, close - open - 2);
}

std::set<std::string> defined_symbols(const std::string& body) {
  std::set<std::string> names;
  for (const char* word : {kFunction, kMesh}) {
    for (size_t at = body.find(word); at != std::string::npos; at = body.find(word, at + 1)) {
      size_t end = 0;
      names.insert(symbol_at(body, body.find('@', at) + 1, &end));
    }
  }
  return names;
}

}  // namespace

TensorType parse_type(const std::string& text) {
  TensorType type;
  std::string rest = text.substr(0, text.size() - 1);
  rest.erase(0, std::string("tensor<").size());
  while (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0])) != 0) {
    const size_t x = rest.find('x');
    if (x == std::string::npos) {
      break;
    }
    type.dims.push_back(std::stoll(rest.substr(0, x)));
    rest.erase(0, x + 1);
  }
  auto dtype = dtypes().find(rest);
  if (dtype == dtypes().end()) {
    throw Error("StableHLO text: " + text +
                " is not a type of tensors on the xla device, which have static sizes and dtypes "
                "of PyTorch");
  }
  type.dtype = dtype->second;
  return type;
}

FunctionType main_type(const std::string& module) {
  size_t at = module.find("@main(");
  if (at == std::string::npos) {
    throw Error("StableHLO text: there is no function @main");
  }
  at += 5;
  const size_t end = skip_brackets(module, at);
  FunctionType type;
  type.parameters = types_in(module.substr(at, end - at));
  size_t result = module.find_first_not_of(" \t\r\n", end);
  if (result != std::string::npos && starts(module, result, "->")) {
    result = module.find_first_not_of(" \t\r\n", result + 2);
    const size_t stop = module[result] == '(' ? skip_brackets(module, result)
                                              : skip_brackets(module, module.find('<', result));
    type.results = types_in(module.substr(result, stop - result));
  }
  return type;
}

std::string functions_of(const std::string& module,
                         const std::function<std::string(const std::string&)>& rename) {
  const std::string body = body_of(module);
  const std::set<std::string> symbols = defined_symbols(body);
  std::string text;
  for (size_t at = 0; at < body.size();) {
    size_t end = at + 1;
    if (body[at] == '"') {
      end = skip_string(body, at);
      text += body.substr(at, end - at);
    } else if (starts(body, at, kFunction)) {
      end = body.find('@', at);
      text += std::string(kFunction) + "private ";
    } else if (starts(body, at, "loc(")) {
      end = skip_brackets(body, at + 3);
    } else if (body[at] == '@') {
      const std::string name = symbol_at(body, at + 1, &end);
      text += symbols.count(name) != 0 ? "@" + rename(name) : body.substr(at, end - at);
    } else {
      text += body[at];
    }
    at = end;
  }
  return text;
}

}  // namespace torch_xla::stablehlo
