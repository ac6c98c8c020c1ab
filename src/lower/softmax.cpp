// Softmax, its logarithm and their gradients.
#include "lower/graph_lowering.h"
#include "lower/reduction.h"
#include "lower/table.h"

#include <optional>

namespace torch_xla {

namespace {

struct Shifted {
  Val high, shifted, powers, total;  // max in x's sizes, x - max, exp of it, its sum
};

// `r` is of argument 0, which may have been widened.
Shifted shift_by_max(LowerContext& c, const Reduction& r) {
  Builder& b = c.b;
  std::optional<Val> rows;
  if (r.dims.size() == 1 && count_behind(r) == 1 && r.x.dtype() == DType::Float) {
    rows = matrix_for_host(c, c.tensor(0), r.count);
  }
  Vals found;  // of each row
  if (rows) {
    const TensorType type{DType::Float, {rows->dim(0)}};
    found = b.custom_call(kRowExponentialsTarget, {*rows}, {type, type}, "", /*may_fail=*/false);
    for (Val& of_rows : found) {
      of_rows = b.reshape(of_rows, Ints(r.x.dims()).slice(0, r.dims[0]));
    }
  } else {
    found = {extreme(c, r.x, r.dims, true)};
  }
  Val high = r.spread_back(b, found[0]);
  Val shifted = b.sub(r.x, high);
  Val powers = b.unary("exponential", shifted);
  return {high, shifted, powers, rows ? found[1] : sum_of(c, Reduction(powers, r.dims))};
}

Reduction along_dim(LowerContext& c, Val x, size_t argument) {
  return {x, x.rank() == 0 ? Dims{} : Dims{c.dim(argument, x.rank())}};
}

// Rows that lie dense, whose results have their type. Not for logarithms: of those a loss picks one
// of each row, and the others need never be written.
std::optional<Val> rows_like_output(LowerContext& c, size_t argument, size_t dim) {
  const Val x = c.tensor(argument);
  if (x.rank() == 0 || c.dim(dim, x.rank()) != x.rank() - 1 || x.dtype() != c.output(0).dtype) {
    return std::nullopt;
  }
  return matrix_for_host(c, x, x.dim(x.rank() - 1));
}

Val result_of_rows(LowerContext& c, const char* target, const Vals& rows) {
  const Val found = c.b.custom_call(target, rows, {rows[0].type()}, "", /*may_fail=*/false)[0];
  return c.b.reshape(found, c.output(0).sizes);
}

std::optional<Val> softmax_on_host(LowerContext& c, const char* target) {
  const std::optional<Val> rows = rows_like_output(c, 0, 1);
  return rows ? std::optional(result_of_rows(c, target, {*rows})) : std::nullopt;
}

std::optional<Val> softmax_gradient_on_host(LowerContext& c) {
  const std::optional<Val> gradient = rows_like_output(c, 0, 2), output = rows_like_output(c, 1, 2);
  return gradient && output
             ? std::optional(result_of_rows(c, kRowSoftmaxGradientTarget, {*gradient, *output}))
             : std::nullopt;
}

void lower_softmax(LowerContext& c) {
  if (const std::optional<Val> found = softmax_on_host(c, kRowSoftmaxTarget)) {
    return c.set(0, *found);
  }
  Val x = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  Reduction r = along_dim(c, x, 1);
  Shifted s = shift_by_max(c, r);
  c.set(0, c.b.div(s.powers, r.spread_back(c.b, s.total)));
}

void lower_safe_softmax(LowerContext& c) {
  if (const std::optional<Val> found = softmax_on_host(c, kRowSafeSoftmaxTarget)) {
    return c.set(0, *found);
  }
  Builder& b = c.b;
  Val x = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  Reduction r = along_dim(c, x, 1);
  Shifted s = shift_by_max(c, r);
  Val result = b.div(s.powers, r.spread_back(b, s.total));
  Val masked = b.compare("EQ", s.high, b.lowest(x.dtype()));
  c.set(0, b.select(masked, b.full(0.0, result.type()), result));
}

void lower_log_softmax(LowerContext& c) {
  Val x = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  Reduction r = along_dim(c, x, 1);
  Shifted s = shift_by_max(c, r);
  c.set(0, c.b.sub(s.shifted, r.spread_back(c.b, c.b.unary("log", s.total))));
}

// _softmax_backward_data(grad_output, output, dim, input_dtype)
void lower_softmax_backward(LowerContext& c) {
  if (const std::optional<Val> found = softmax_gradient_on_host(c)) {
    return c.set(0, *found);
  }
  Expr grad = operand(c, 0);
  Expr output = operand(c, 1);
  Expr weighted = grad * output;
  Reduction r = along_dim(c, weighted.value(), 2);
  Expr total{c.b, r.spread_back(c.b, sum_of(c, r))};
  finish(c, weighted - output * total);
}

void lower_log_softmax_backward(LowerContext& c) {
  Expr grad = operand(c, 0);
  Reduction r = along_dim(c, grad.value(), 2);
  Expr total{c.b, r.spread_back(c.b, sum_of(c, r))};
  finish(c, grad - exp(operand(c, 1)) * total);
}

}  // namespace

void register_softmax(LowerTable& table) {
  table["aten::_softmax"] = {lower_softmax};
  table["aten::_safe_softmax"] = {lower_safe_softmax};
  table["aten::_log_softmax"] = {lower_log_softmax};
  table["aten::_softmax_backward_data"] = {lower_softmax_backward};
  table["aten::_log_softmax_backward_data"] = {lower_log_softmax_backward};
}

}  // namespace torch_xla
