#include "explain/words.h"

#include "base/location.h"

#include <array>
#include <cstdio>

namespace torch_xla::explain {

namespace {

std::string double_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

template <typename List, typename Format>
std::string list_text(const List& list, Format format) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    text += (i > 0 ? ", " : "") + format(list[i]);
  }
  return text + "]";
}

struct AttributeText {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return double_text(value); }
  std::string operator()(const std::string& value) const { return "'" + value + "'"; }
  std::string operator()(DType value) const { return dtype_text(value); }
  std::string operator()(OperandRef value) const { return value.index < 0 ? "None" : "a tensor"; }
  std::string operator()(NumberRef value) const {
    return value.is_tensor ? "a CPU scalar" : "a number";
  }
  template <typename T>
  std::string operator()(const std::vector<T>& list) const {
    return list_text(list, [this](const T& element) { return (*this)(element); });
  }
  std::string operator()(const std::vector<bool>& list) const {
    return list_text(list, [](bool element) { return std::string(element ? "True" : "False"); });
  }
  std::string operator()(const std::vector<OperandRef>& list) const {
    return count_text(list.size(), "tensor");
  }
};

int32_t position_of(OperandRef ref) { return ref.index; }
int32_t position_of(NumberRef ref) { return ref.slot; }

template <typename Ref>
std::string find_argument(const Signature& signature, size_t position) {
  for (size_t a = 0; a < signature.arguments.size(); ++a) {
    const std::string name = "argument " + std::to_string(a + 1);
    if (const Ref* single = std::get_if<Ref>(&signature.arguments[a])) {
      if (position_of(*single) == static_cast<int32_t>(position)) {
        return name;
      }
    }
    if (const auto* list = std::get_if<std::vector<Ref>>(&signature.arguments[a])) {
      for (size_t i = 0; i < list->size(); ++i) {
        if (position_of((*list)[i]) == static_cast<int32_t>(position)) {
          return "element " + std::to_string(i) + " of " + name;
        }
      }
    }
  }
  return "argument " + std::to_string(position + 1);
}

}  // namespace

std::string operator_name(const Signature& signature) {
  return signature.op.substr(0, signature.op.find('.'));
}

std::string place(uint32_t id) {
  if (id == 0) {
    return "in the backward pass or at an unknown line";
  }
  const Location& location = location_of(id);
  const size_t slash = location.file.find_last_of("/\\");
  const std::string file =
      slash == std::string::npos ? location.file : location.file.substr(slash + 1);
  return "at " + file + ":" + std::to_string(location.line);
}

std::string operator_at(const Operation& operation) {
  return operator_name(*operation.signature) + " " + place(operation.location);
}

std::string shape_text(c10::ArrayRef<int64_t> dims) {
  return list_text(dims, [](int64_t dim) { return std::to_string(dim); });
}

std::string dtype_text(DType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

std::string number_text(const Number& number) {
  switch (number.kind) {
    case Number::Kind::Bool:
      return number.integer != 0 ? "True" : "False";
    case Number::Kind::Int:
      return std::to_string(number.integer);
    case Number::Kind::UInt:
      return std::to_string(std::bit_cast<uint64_t>(number.integer));
    case Number::Kind::Double:
      return double_text(number.floating.real());
    case Number::Kind::Complex:
      break;
  }
  return double_text(number.floating.real()) + " + " + double_text(number.floating.imag()) + "j";
}

std::string attribute_text(const Attribute& attribute) {
  return std::visit(AttributeText{}, attribute);
}

std::string count_text(size_t count, const std::string& noun) {
  constexpr std::array kWords = {"no",  "one",   "two",   "three", "four", "five",
                                 "six", "seven", "eight", "nine",  "ten"};
  const std::string number =
      count < kWords.size() ? std::string(kWords[count]) : std::to_string(count);
  return number + " " + noun + (count == 1 ? "" : "s");
}

std::string operand_argument(const Signature& signature, size_t index) {
  if (signature.random && index + 1 == signature.operands.size()) {
    return "the random state";
  }
  return find_argument<OperandRef>(signature, index);
}

std::string number_argument(const Signature& signature, size_t slot) {
  return find_argument<NumberRef>(signature, slot);
}

}  // namespace torch_xla::explain
