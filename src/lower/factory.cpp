// New tensors: full, zeros, arange, linspace, eye, fill, complex, ...
#include <algorithm>

#include "lower/expr.h"
#include "lower/table.h"

namespace torch_xla {
namespace {

TensorType output_type(LowerContext& c) { return {c.output(0).dtype, c.output(0).sizes}; }

// ---- constants ------------------------------------------------------------------------------

template <int value>
void lower_constant(LowerContext& c) {
  c.set(0, c.b.full(static_cast<double>(value), output_type(c)));
}

template <size_t argument>
void lower_full(LowerContext& c) {
  c.set(0, c.b.expand(c.number(argument, c.output(0).dtype), c.output(0).sizes));
}

void lower_fill_tensor(LowerContext& c) {
  Val value = c.b.reshape(c.tensor_as(1, c.output(0).dtype), {});
  c.set(0, c.b.expand(value, c.output(0).sizes));
}

// ---- sequences --------------------------------------------------------------------------------

// Sequences are computed as wide as ATen accumulates: f64 for floats, i64 for integers.
DType sequence_dtype(LowerContext& c) {
  return c10::isIntegralType(c.output(0).dtype, true) ? DType::Long : DType::Double;
}

void sequence(LowerContext& c, Val start, Val step) {
  Builder& b = c.b;
  const Dims sizes = c.output(0).sizes;
  Val scaled = b.mul(b.iota({start.dtype(), sizes}, 0), b.expand(step, sizes));
  c.set(0, b.convert(b.add(scaled, b.expand(start, sizes)), c.output(0).dtype));
}

void lower_arange(LowerContext& c) {
  const DType wide = sequence_dtype(c);
  sequence(c, c.b.constant(0.0, wide), c.b.constant(1.0, wide));
}

// arange.start, range
void lower_arange_start(LowerContext& c) {
  const DType wide = sequence_dtype(c);
  sequence(c, c.number(0, wide), c.b.constant(1.0, wide));
}

// arange.start_step, range.step
void lower_arange_start_step(LowerContext& c) {
  const DType wide = sequence_dtype(c);
  sequence(c, c.number(0, wide), c.number(2, wide));
}

// Integers and 16-bit floats are interpolated in a wider type.
DType interpolation_dtype(DType dtype) {
  if (c10::isIntegralType(dtype, true)) {
    return DType::Double;
  }
  return c10::isReducedFloatingType(dtype) ? DType::Float : dtype;
}

// steps numbers from start to end, computed from the nearer end so that both are exact.
Expr interpolated(LowerContext& c, Val start_value, Val end_value) {
  Builder& b = c.b;
  DType dtype = interpolation_dtype(c.output(0).dtype);
  Expr start(b, b.convert(b.reshape(start_value, {}), dtype));
  Expr end(b, b.convert(b.reshape(end_value, {}), dtype));
  int64_t steps = c.output(0).sizes[0];
  if (steps <= 1) {
    return {b, b.expand(start.value(), {steps})};
  }
  // XLA would multiply by the reciprocal of a constant, and 49 * (1 / 49) is less than 1.
  Val intervals = b.optimization_barrier(b.constant(static_cast<double>(steps - 1), dtype));
  Expr step = (end - start) / Expr(b, intervals);
  Expr position(b, b.iota({DType::Long, {steps}}, 0));
  Expr from_start(b, b.convert(position.value(), dtype));
  Expr from_end(b, b.convert((static_cast<double>(steps - 1) - position).value(), dtype));
  return where(position < static_cast<double>(steps / 2), start + step * from_start,
               end - step * from_end);
}

enum class Endpoint { Number, Tensor };

Val endpoint(LowerContext& c, size_t i, Endpoint kind, DType dtype) {
  return kind == Endpoint::Number ? c.number(i, dtype) : c.tensor_as(i, dtype);
}

// Rounded to the result's dtype first, as ATen does.
template <Endpoint start, Endpoint end>
Expr interpolated(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  return interpolated(c, endpoint(c, 0, start, dtype), endpoint(c, 1, end, dtype));
}

template <Endpoint start, Endpoint end>
void lower_linspace(LowerContext& c) {
  c.set(0, c.b.convert(interpolated<start, end>(c).value(), c.output(0).dtype));
}

template <Endpoint start, Endpoint end>
void lower_logspace(LowerContext& c) {
  Builder& b = c.b;
  const OutputSpec& output = c.output(0);
  bool only_start = output.sizes[0] == 1 && c10::isFloatingType(output.dtype);  // not rounded then
  Val exponent = only_start ? b.reshape(endpoint(c, 0, start, DType::Double), {1})
                            : interpolated<start, end>(c).value();
  Val base = b.expand(c.number(3, exponent.dtype()), exponent.dims());
  c.set(0, b.convert(b.binary("power", base, exponent), output.dtype));
}

// ---- patterns -----------------------------------------------------------------------------------

void lower_eye(LowerContext& c) {
  Builder& b = c.b;
  TensorType index{DType::Long, c.output(0).sizes};
  Val diagonal = b.compare("EQ", b.iota(index, 0), b.iota(index, 1));
  c.set(0, b.convert(diagonal, c.output(0).dtype));
}

struct RowColumn {
  Expr row, column;
};

// Coordinates, in row-major order, of the `count` elements on or below a diagonal. The first rows
// grow by one element each (a trapezoid), the others are full.
RowColumn lower_triangle(Builder& b, int64_t rows, int64_t columns, int64_t offset, int64_t count) {
  int64_t first_row = std::max<int64_t>(-offset, 0);
  int64_t first_length = std::min(columns, first_row + 1 + offset);
  int64_t growing = std::min(rows - first_row, columns - first_length + 1);
  int64_t trapezoid = growing * first_length + growing * (growing - 1) / 2;
  Expr position(b, b.iota({DType::Long, {count}}, 0));
  // Row k of the trapezoid starts at k * first_length + k (k - 1) / 2: solved for k. The square
  // root is exact wherever a row starts.
  double twice = 2.0 * static_cast<double>(first_length) - 1;
  Expr wide(b, b.convert(position.value(), DType::Double));
  Expr root(b, b.unary("sqrt", (wide * 8 + twice * twice).value()));
  Expr k(b, b.convert(((root - twice) / 2).value(), DType::Long));
  Expr column = position - (k * static_cast<double>(first_length) + k * (k - 1) / 2);
  Expr past = position - static_cast<double>(trapezoid);
  double width = static_cast<double>(columns);
  Expr full_rows = past / width;
  Expr in_trapezoid = past < 0;
  return {where(in_trapezoid, k, full_rows + static_cast<double>(growing)) +
              static_cast<double>(first_row),
          where(in_trapezoid, column, past - full_rows * width)};
}

void set_coordinates(LowerContext& c, RowColumn at) {
  Builder& b = c.b;
  int64_t count = c.output(0).sizes[1];
  Val both = b.concatenate(
      {b.reshape(at.row.value(), {1, count}), b.reshape(at.column.value(), {1, count})}, 0);
  c.set(0, b.convert(both, c.output(0).dtype));
}

void lower_tril_indices(LowerContext& c) {
  int64_t count = c.output(0).sizes[1];
  if (count == 0) {
    return lower_constant<0>(c);
  }
  set_coordinates(c, lower_triangle(c.b, c.integer(0), c.integer(1), c.integer(2), count));
}

// The upper triangle is a lower one read backwards from the last row and column.
void lower_triu_indices(LowerContext& c) {
  int64_t rows = c.integer(0), columns = c.integer(1), count = c.output(0).sizes[1];
  if (count == 0) {
    return lower_constant<0>(c);
  }
  RowColumn mirrored = lower_triangle(c.b, rows, columns, columns - rows - c.integer(2), count);
  auto reversed = [&](Expr x) { return Expr(c.b, c.b.reverse(x.value(), {0})); };
  set_coordinates(c, {static_cast<double>(rows - 1) - reversed(mirrored.row),
                      static_cast<double>(columns - 1) - reversed(mirrored.column)});
}

// ---- complex numbers ----------------------------------------------------------------------------

DType part_dtype(LowerContext& c) { return c10::toRealValueType(c.output(0).dtype); }

void lower_complex(LowerContext& c) {
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  c.set(0, b.complex(b.expand(c.tensor_as(0, part_dtype(c)), sizes),
                     b.expand(c.tensor_as(1, part_dtype(c)), sizes)));
}

void lower_polar(LowerContext& c) {
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  Val radius = b.expand(c.tensor_as(0, part_dtype(c)), sizes);
  Val angle = b.expand(c.tensor_as(1, part_dtype(c)), sizes);
  c.set(0,
        b.complex(b.mul(radius, b.unary("cosine", angle)), b.mul(radius, b.unary("sine", angle))));
}

void register_interpolations(LowerTable& table) {
  constexpr Endpoint kNumber = Endpoint::Number, kTensor = Endpoint::Tensor;
  table.insert({
      {"aten::linspace", {lower_linspace<kNumber, kNumber>}},
      {"aten::linspace.Tensor_Tensor", {lower_linspace<kTensor, kTensor>}},
      {"aten::linspace.Tensor_Scalar", {lower_linspace<kTensor, kNumber>}},
      {"aten::linspace.Scalar_Tensor", {lower_linspace<kNumber, kTensor>}},
      {"aten::logspace", {lower_logspace<kNumber, kNumber>}},
      {"aten::logspace.Tensor_Tensor", {lower_logspace<kTensor, kTensor>}},
      {"aten::logspace.Tensor_Scalar", {lower_logspace<kTensor, kNumber>}},
      {"aten::logspace.Scalar_Tensor", {lower_logspace<kNumber, kTensor>}},
  });
}

}  // namespace

void register_factory(LowerTable& table) {
  table.insert({
      {"aten::zeros", {lower_constant<0>}},
      {"aten::ones", {lower_constant<1>}},
      {"aten::zeros_like", {lower_constant<0>, kShapeOnlySelf}},
      {"aten::ones_like", {lower_constant<1>, kShapeOnlySelf}},
      {"aten::new_zeros", {lower_constant<0>, kShapeOnlySelf}},
      {"aten::new_ones", {lower_constant<1>, kShapeOnlySelf}},
      {"aten::zero", {lower_constant<0>, kShapeOnlySelf}},
      {"aten::full", {lower_full<1>}},
      {"aten::full_like", {lower_full<1>, kShapeOnlySelf}},
      {"aten::new_full", {lower_full<2>, kShapeOnlySelf}},
      {"aten::fill.Scalar", {lower_full<1>, kShapeOnlySelf}},
      {"aten::fill.Tensor", {lower_fill_tensor, kShapeOnlySelf}},
      {"aten::scalar_tensor", {lower_full<0>}},
      {"aten::arange", {lower_arange, kStaticNumbers}},
      {"aten::arange.start", {lower_arange_start, kStaticNumbers}},
      {"aten::arange.start_step", {lower_arange_start_step, kStaticNumbers}},
      {"aten::range", {lower_arange_start, kStaticNumbers}},
      {"aten::range.step", {lower_arange_start_step, kStaticNumbers}},
      {"aten::eye", {lower_eye}},
      {"aten::eye.m", {lower_eye}},
      {"aten::tril_indices", {lower_tril_indices}},
      {"aten::triu_indices", {lower_triu_indices}},
      {"aten::complex", {lower_complex}},
      {"aten::polar", {lower_polar}},
  });
  register_interpolations(table);
}

}  // namespace torch_xla
