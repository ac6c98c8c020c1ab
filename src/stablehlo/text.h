// Attribute texts, for the builder's own files.
#pragma once

#include "base/text.h"
#include "stablehlo/builder.h"

#include <string>
#include <vector>

namespace torch_xla::stablehlo {

// "f32, f32": of the types, without brackets.
std::string type_list(const std::vector<TensorType>& types);
std::string function_type(const std::vector<TensorType>& arguments,
                          const std::vector<TensorType>& results);
std::vector<TensorType> types_of(const Vals& values);

// "1, 2"
inline std::string spaced(Ints values) { return joined(values, ", "); }

// "name = [1, 2]"
inline std::string list_detail(const char* name, Ints values) {
  return std::string(name) + " = [" + spaced(values) + "]";
}

// "name = array<i64: 1, 2>"
inline std::string array_attribute(const char* name, Ints values) {
  return std::string(name) + " = array<i64" + (values.empty() ? "" : ": ") + spaced(values) + ">";
}

// "name = 3 : i64"
inline std::string int_attribute(const char* name, int64_t value) {
  return std::string(name) + " = " + std::to_string(value) + " : i64";
}

inline std::string bool_attribute(const char* name, bool value) {
  return std::string(name) + (value ? " = true" : " = false");
}

// "[[l0, h0], ...]"
inline std::string pairs(Ints low, Ints high) {
  std::string text = "[";
  for (size_t i = 0; i < low.size(); ++i) {
    text += (i > 0 ? ", [" : "[") + std::to_string(low[i]) + ", " + std::to_string(high[i]) + "]";
  }
  return text + "]";
}

// "padding = dense<[[l0, h0], ...]> : tensor<nx2xi64>"
inline std::string padding_attribute(Ints low, Ints high) {
  return "padding = dense<" + pairs(low, high) + "> : tensor<" + std::to_string(low.size()) +
         "x2xi64>";
}

}  // namespace torch_xla::stablehlo
