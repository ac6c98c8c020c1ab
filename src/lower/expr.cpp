#include "lower/expr.h"

#include <algorithm>

namespace torch_xla {
namespace {

// The numpy-style common dimensions. The builder checks compatibility when it expands to them.
Dims common_dims(const Dims& x, const Dims& y) {
  const Dims& longer = x.size() >= y.size() ? x : y;
  const Dims& shorter = x.size() >= y.size() ? y : x;
  Dims result = longer;
  size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    if (result[shift + i] == 1) {
      result[shift + i] = shorter[i];
    }
  }
  return result;
}

Val expanded(Expr x, const Dims& dims) {
  return x.value().dims() == dims ? x.value() : x.b().expand(x.value(), dims);
}

}  // namespace

Expr add(Expr x, Expr y) { return {x.b(), x.b().add(x.value(), y.value())}; }
Expr sub(Expr x, Expr y) { return {x.b(), x.b().sub(x.value(), y.value())}; }
Expr mul(Expr x, Expr y) { return {x.b(), x.b().mul(x.value(), y.value())}; }
Expr div(Expr x, Expr y) { return {x.b(), x.b().div(x.value(), y.value())}; }
Expr maximum(Expr x, Expr y) { return {x.b(), x.b().maximum(x.value(), y.value())}; }
Expr minimum(Expr x, Expr y) { return {x.b(), x.b().minimum(x.value(), y.value())}; }

Expr compare(std::string_view direction, Expr x, Expr y) {
  Dims dims = common_dims(x.value().dims(), y.value().dims());
  return {x.b(), x.b().compare(direction, expanded(x, dims), expanded(y, dims))};
}

Expr where(Expr condition, Expr if_true, Expr if_false) {
  Dims dims = common_dims(if_true.value().dims(), if_false.value().dims());
  dims = common_dims(dims, condition.value().dims());
  return {condition.b(), condition.b().select(expanded(condition, dims), expanded(if_true, dims),
                                              expanded(if_false, dims))};
}

// XLA-CPU's function takes twice as long. What 1 + x rounds off is added to its logarithm.
Expr log1p(Expr x) {
  if (x.value().dtype() != DType::Float) {
    return {x.b(), x.b().unary("log_plus_one", x.value())};
  }
  const Expr sum = 1 + x;
  const Expr taken = maximum(sum, 0) - 1;                     // XLA would find that 1 + x - 1 is x
  const Expr rest = where(taken == x, 0, (x - taken) / sum);  // also of -1 and of infinity
  return where(sum == 1, x, log(sum) + rest);
}

// With less than the general function, if it is fused with an exponential a quarter. It is
// 2 atanh(y / (2 + y)), here t (1 + t^2 p(t^2)) with t = 2 y / (2 + y), within 5e-9 of it.
Expr log1p_of_unit(Expr y) {
  if (y.value().dtype() != DType::Float) {
    return log1p(y);
  }
  const Expr t = (y + y) / (2 + y), square = t * t;
  const Expr p =
      ((5.4741464555263519e-4 * square + 2.1873575169593096e-3) * square + 0.012506810016930103) *
          square +
      0.08333301544189453;
  return t + t * (square * p);
}

Expr softplus(Expr x) { return maximum(x, 0) + log1p_of_unit(exp(-abs(x))); }

DType compute_dtype(DType dtype) {
  if (c10::isReducedFloatingType(dtype)) {
    return DType::Float;
  }
  return dtype == DType::ComplexHalf ? DType::ComplexFloat : dtype;
}

Expr operand(LowerContext& c, size_t i) {
  return {c.b, c.tensor_as(i, compute_dtype(c.output(0).dtype))};
}

Expr scalar(LowerContext& c, size_t i) {
  return {c.b, c.number(i, compute_dtype(c.output(0).dtype))};
}

void finish(LowerContext& c, Expr value, size_t output) {
  c.set(output, c.b.rounded(value.value(), c.output(output).dtype));
}

}  // namespace torch_xla
