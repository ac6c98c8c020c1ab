#include "record/plain_factories.h"

#include <ATen/EmptyTensor.h>

namespace torch_xla::plain {

namespace {

// Behind the dtype come layout, device and pinned memory.
const c10::IValue& dtype_of(const IValues& arguments) { return arguments[arguments.size() - 4]; }

}  // namespace

std::optional<IValues> range(const IValues& arguments) {
  constexpr int64_t kLargest = int64_t{1} << 31;  // no sum of these overflows
  for (size_t i = 0; i < 3; ++i) {
    if (!arguments[i].isInt() || std::abs(arguments[i].toInt()) > kLargest) {
      return std::nullopt;
    }
  }
  const int64_t length = arguments[1].toInt() - arguments[0].toInt(), step = arguments[2].toInt();
  if (step == 0 || (length != 0 && (length < 0) != (step < 0))) {
    return std::nullopt;
  }
  const int64_t size = length / step + (length % step != 0 ? 1 : 0);
  const auto dtype = dtype_of(arguments).toOptional<at::ScalarType>().value_or(at::kLong);
  return IValues{at::detail::empty_meta({size}, dtype)};
}

std::optional<IValues> identity(const IValues& arguments) {
  const int64_t rows = arguments[0].toInt(),
                columns = arguments.size() > 5 ? arguments[1].toInt() : rows;
  if (rows < 0 || columns < 0) {
    return std::nullopt;
  }
  const auto dtype = dtype_of(arguments).toOptional<at::ScalarType>().value_or(
      c10::get_default_dtype_as_scalartype());
  return IValues{at::detail::empty_meta({rows, columns}, dtype)};
}

std::optional<IValues> permutation(const IValues& arguments) {
  const int64_t size = arguments[0].toInt();
  const auto dtype = dtype_of(arguments).toOptional<at::ScalarType>().value_or(at::kLong);
  if (size < 0 || dtype != at::kLong) {
    return std::nullopt;
  }
  return IValues{at::detail::empty_meta({size}, dtype)};
}

}  // namespace torch_xla::plain
