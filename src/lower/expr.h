// Element-wise formulas written as formulas: `x * sigmoid(x)`. Operands broadcast numpy-style and
// share one dtype; a plain number takes the dtype of the other operand. Cheap to copy; valid as
// long as its Builder, and like it not thread-safe.
#pragma once

#include "lower/context.h"

namespace torch_xla {

class Expr {
 public:
  Expr(Builder& b, Val value) : b_(&b), value_(value) {}

  Builder& b() const { return *b_; }
  Val value() const { return value_; }
  Expr constant(double number) const { return {*b_, b_->scalar_like(value_, number)}; }

 private:
  Builder* b_;
  Val value_;
};

// Argument i, a number.
inline Expr number(LowerContext& c, size_t i, DType dtype) { return {c.b, c.number(i, dtype)}; }

Expr add(Expr x, Expr y);
Expr sub(Expr x, Expr y);
Expr mul(Expr x, Expr y);
Expr div(Expr x, Expr y);
Expr maximum(Expr x, Expr y);
Expr minimum(Expr x, Expr y);
Expr compare(std::string_view direction, Expr x, Expr y);
Expr where(Expr condition, Expr if_true, Expr if_false);

inline Expr where(Expr condition, Expr if_true, double if_false) {
  return where(condition, if_true, if_true.constant(if_false));
}
inline Expr where(Expr condition, double if_true, Expr if_false) {
  return where(condition, if_false.constant(if_true), if_false);
}

inline Expr maximum(Expr x, double y) { return maximum(x, x.constant(y)); }
inline Expr minimum(Expr x, double y) { return minimum(x, x.constant(y)); }

inline Expr operator+(Expr x, Expr y) { return add(x, y); }
inline Expr operator+(Expr x, double y) { return add(x, x.constant(y)); }
inline Expr operator+(double x, Expr y) { return add(y.constant(x), y); }
inline Expr operator-(Expr x, Expr y) { return sub(x, y); }
inline Expr operator-(Expr x, double y) { return sub(x, x.constant(y)); }
inline Expr operator-(double x, Expr y) { return sub(y.constant(x), y); }
inline Expr operator*(Expr x, Expr y) { return mul(x, y); }
inline Expr operator*(Expr x, double y) { return mul(x, x.constant(y)); }
inline Expr operator*(double x, Expr y) { return mul(y.constant(x), y); }
inline Expr operator/(Expr x, Expr y) { return div(x, y); }
inline Expr operator/(Expr x, double y) { return div(x, x.constant(y)); }
inline Expr operator/(double x, Expr y) { return div(y.constant(x), y); }
inline Expr operator-(Expr x) { return {x.b(), x.b().unary("negate", x.value())}; }

inline Expr operator<(Expr x, Expr y) { return compare("LT", x, y); }
inline Expr operator<(Expr x, double y) { return compare("LT", x, x.constant(y)); }
inline Expr operator<=(Expr x, Expr y) { return compare("LE", x, y); }
inline Expr operator<=(Expr x, double y) { return compare("LE", x, x.constant(y)); }
inline Expr operator>(Expr x, Expr y) { return compare("GT", x, y); }
inline Expr operator>(Expr x, double y) { return compare("GT", x, x.constant(y)); }
inline Expr operator>=(Expr x, Expr y) { return compare("GE", x, y); }
inline Expr operator>=(Expr x, double y) { return compare("GE", x, x.constant(y)); }
inline Expr operator==(Expr x, Expr y) { return compare("EQ", x, y); }
inline Expr operator==(Expr x, double y) { return compare("EQ", x, x.constant(y)); }
inline Expr operator!=(Expr x, Expr y) { return compare("NE", x, y); }

// Both sides are built: operands, not control flow.
inline Expr operator&&(Expr x, Expr y) { return {x.b(), x.b().logical_and(x.value(), y.value())}; }
inline Expr operator||(Expr x, Expr y) { return {x.b(), x.b().logical_or(x.value(), y.value())}; }
inline Expr operator!(Expr x) { return {x.b(), x.b().logical_not(x.value())}; }

inline Expr exp(Expr x) { return {x.b(), x.b().unary("exponential", x.value())}; }
inline Expr expm1(Expr x) { return {x.b(), x.b().unary("exponential_minus_one", x.value())}; }
inline Expr log(Expr x) { return {x.b(), x.b().unary("log", x.value())}; }
Expr log1p(Expr x);
// log(1 + y) of y from 0 to 1, as the exponential of something negative is.
Expr log1p_of_unit(Expr y);
// log(1 + exp(x))
Expr softplus(Expr x);
inline Expr tanh(Expr x) { return {x.b(), x.b().unary("tanh", x.value())}; }
inline Expr sigmoid(Expr x) { return {x.b(), x.b().unary("logistic", x.value())}; }
inline Expr abs(Expr x) { return {x.b(), x.b().unary("abs", x.value())}; }
inline Expr erf(Expr x) { return {x.b(), x.b().chlo("erf", x.value())}; }
inline Expr conj(Expr x) {
  if (!c10::isComplexType(x.value().dtype())) {
    return x;
  }
  Builder& b = x.b();
  return {b, b.complex(b.real(x.value()), b.unary("negate", b.imag(x.value())))};
}

// ---- arguments and results of a lowering --------------------------------------------------

// The dtype in which ATen computes element-wise: 16-bit floats widen to f32 and are rounded once,
// at the end.
DType compute_dtype(DType dtype);

// Tensor or number argument in the compute dtype of output 0.
Expr operand(LowerContext& c, size_t i);
Expr scalar(LowerContext& c, size_t i);
// Sets an output, rounded to its dtype.
void finish(LowerContext& c, Expr value, size_t output = 0);

}  // namespace torch_xla
