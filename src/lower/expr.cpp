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
