// Texts of lists. Plain functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace torch_xla {

// "1,2": of integers.
template <typename Integers>
std::string joined(const Integers& values, std::string_view separator = ",") {
  std::string text;
  for (int64_t value : values) {
    text += (text.empty() ? "" : std::string(separator)) + std::to_string(value);
  }
  return text;
}

}  // namespace torch_xla
