#include "lower/library_function.h"

#include <algorithm>
#include <array>

namespace torch_xla {

bool is_library_function(std::string_view op, DType dtype) {
  constexpr std::array<std::string_view, 13> kOfFloats = {
      "aten::sin",   "aten::cos",    "aten::tan",         "aten::asin", "aten::acos",
      "aten::atan",  "aten::atan2",  "aten::pow",         "aten::fmod", "aten::remainder",
      "aten::atanh", "aten::lgamma", "aten::floor_divide"};
  constexpr std::array<std::string_view, 6> kOfDoubles = {
      "aten::log", "aten::log1p", "aten::log2", "aten::log10", "aten::erf", "aten::erfinv"};
  const std::string_view name = op.substr(0, op.find('.'));
  auto has = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return c10::isFloatingType(dtype) &&
         (has(kOfFloats) || (dtype == DType::Double && has(kOfDoubles)));
}

}  // namespace torch_xla
