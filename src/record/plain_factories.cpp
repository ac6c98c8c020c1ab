#include "record/plain_factories.h"

#include "record/plain_rules.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace torch_xla::plain {

namespace {

// dtype, layout, device and pinned memory come last.
constexpr size_t kOptions = 4;

std::optional<at::ScalarType> dtype_of(const IValues& arguments) {
  return arguments[arguments.size() - kOptions].toOptional<at::ScalarType>();
}

Results made(const IValues& arguments, std::initializer_list<int64_t> sizes, at::ScalarType usual) {
  const auto layout = arguments[arguments.size() - kOptions + 1].toOptional<at::Layout>();
  const at::ScalarType dtype = dtype_of(arguments).value_or(usual);
  if (layout.value_or(at::kStrided) != at::kStrided || dtype == at::kBool ||
      std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; })) {
    return std::nullopt;
  }
  return IValues{at::detail::empty_meta(sizes, dtype)};
}

// Of arange(end), (start, end) or (start, end, step).
struct Steps {
  double start = 0, end = 0, step = 1;
  bool whole = true;
};

std::optional<Steps> steps_of(const IValues& arguments, size_t given) {
  constexpr double kLargest = int64_t{1} << 31;  // no sum of these overflows
  Steps steps;
  const std::array<double*, 3> places = {given == 1 ? &steps.end : &steps.start, &steps.end,
                                         &steps.step};
  for (size_t i = 0; i < given; ++i) {
    if (!arguments[i].isInt() && !arguments[i].isDouble()) {
      return std::nullopt;
    }
    steps.whole = steps.whole && arguments[i].isInt();
    *places[i] = arguments[i].toScalar().toDouble();
    if (!(std::abs(*places[i]) <= kLargest)) {
      return std::nullopt;
    }
  }
  const double length = steps.end - steps.start;
  const bool leads_there = steps.step != 0 && (length == 0 || (length < 0) == (steps.step < 0));
  return leads_there ? std::optional(steps) : std::nullopt;
}

// PyTorch rounds fractions before it counts whole numbers.
std::optional<int64_t> size_of(const Steps& steps, std::optional<at::ScalarType> dtype) {
  constexpr double kMost = int64_t{1} << 40;
  const double size = std::ceil((steps.end - steps.start) / steps.step);
  const bool rounds = !steps.whole && dtype && c10::isIntegralType(*dtype, true);
  return rounds || size > kMost ? std::nullopt : std::optional(static_cast<int64_t>(size));
}

// Of the lower triangle, with so many diagonals above the main one.
int64_t places_below(int64_t rows, int64_t columns, int64_t diagonals) {
  int64_t places = 0;
  for (int64_t row = 0; row < rows; ++row) {
    places += std::clamp<int64_t>(row + 1 + diagonals, 0, columns);
  }
  return places;
}

Results triangle(const IValues& arguments, bool lower) {
  const int64_t rows = arguments[0].toInt(), columns = arguments[1].toInt(),
                offset = arguments[2].toInt();
  if (rows < 0 || columns < 0 || std::abs(offset) > std::max(rows, columns)) {
    return std::nullopt;
  }
  return made(arguments,
              {2, lower ? places_below(rows, columns, offset)
                        : rows * columns - places_below(rows, columns, offset - 1)},
              at::kLong);
}

}  // namespace

Results range(const IValues& arguments) {
  const std::optional<Steps> steps = steps_of(arguments, arguments.size() - kOptions);
  const auto size = steps ? size_of(*steps, dtype_of(arguments)) : std::nullopt;
  return size ? made(arguments, {*size},
                     steps->whole ? at::kLong : c10::get_default_dtype_as_scalartype())
              : std::nullopt;
}

Results range_into(const IValues& arguments) {
  const std::optional<Steps> steps = steps_of(arguments, 3);
  const at::Tensor& out = arguments[3].toTensor();
  const auto size = steps ? size_of(*steps, out.scalar_type()) : std::nullopt;
  if (!size || out.dim() != 1 || out.scalar_type() == at::kBool) {
    return std::nullopt;
  }
  if (out.size(0) == *size) {
    return IValues{out};
  }
  return out.numel() > 0 ? std::nullopt
                         : Results(IValues{at::detail::empty_meta({*size}, out.scalar_type())});
}

Results spaced(const IValues& arguments) {
  const bool real = !arguments[0].toScalar().isComplex() && !arguments[1].toScalar().isComplex();
  return real ? made(arguments, {arguments[2].toInt()}, c10::get_default_dtype_as_scalartype())
              : std::nullopt;
}

Results identity(const IValues& arguments) {
  const int64_t rows = arguments[0].toInt(),
                columns = arguments.size() > 1 + kOptions ? arguments[1].toInt() : rows;
  return made(arguments, {rows, columns}, c10::get_default_dtype_as_scalartype());
}

Results permutation(const IValues& arguments) {
  return dtype_of(arguments).value_or(at::kLong) == at::kLong
             ? made(arguments, {arguments[0].toInt()}, at::kLong)
             : std::nullopt;
}

Results lower_triangle(const IValues& arguments) { return triangle(arguments, true); }

Results upper_triangle(const IValues& arguments) { return triangle(arguments, false); }

}  // namespace torch_xla::plain
