// Attribute texts, for the builder's own files.
#pragma once

#include "stablehlo/builder.h"

#include <string>

namespace torch_xla::stablehlo {

inline std::string joined(Ints values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  }
  return text;
}

// "name = array<i64: 1, 2>"
inline std::string array_attribute(const char* name, Ints values) {
  return std::string(name) + " = array<i64" + (values.empty() ? "" : ": ") + joined(values) + ">";
}

// "name = 3 : i64"
inline std::string int_attribute(const char* name, int64_t value) {
  return std::string(name) + " = " + std::to_string(value) + " : i64";
}

inline std::string bool_attribute(const char* name, bool value) {
  return std::string(name) + (value ? " = true" : " = false");
}

// "padding = dense<[[l0, h0], ...]> : tensor<nx2xi64>"
inline std::string padding_attribute(Ints low, Ints high) {
  std::string text = "padding = dense<[";
  for (size_t i = 0; i < low.size(); ++i) {
    text += (i > 0 ? ", [" : "[") + std::to_string(low[i]) + ", " + std::to_string(high[i]) + "]";
  }
  return text + "]> : tensor<" + std::to_string(low.size()) + "x2xi64>";
}

}  // namespace torch_xla::stablehlo
