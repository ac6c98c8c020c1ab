// One- and two-operand arithmetic.
#include "lower/elementwise.h"
#include "lower/activation.h"
#include "lower/common.h"
#include "lower/library_function.h"

#include <cmath>
#include <limits>

namespace torch_xla {

namespace {

bool is_float(DType dtype) { return c10::isFloatingType(dtype) || c10::isComplexType(dtype); }

// ---- unary --------------------------------------------------------------------------------------

// A StableHLO operation of the same meaning; integers go to the output's float type first.
#define UNARY(name, op)                         \
  void lower_##name(LowerContext& c) {          \
    Expr x = operand(c, 0);                     \
    finish(c, {c.b, c.b.unary(op, x.value())}); \
  }
UNARY(exp, "exponential")
UNARY(expm1, "exponential_minus_one")
UNARY(log, "log")
UNARY(sqrt, "sqrt")
UNARY(rsqrt, "rsqrt")
UNARY(sin, "sine")
UNARY(cos, "cosine")
UNARY(tan, "tan")
UNARY(tanh, "tanh")
UNARY(sigmoid, "logistic")
#undef UNARY

void lower_neg(LowerContext& c) {
  c.set(0, c.b.unary("negate", c.tensor_as(0, c.output(0).dtype)));
}

#define CHLO(name, op)                         \
  void lower_##name(LowerContext& c) {         \
    Expr x = operand(c, 0);                    \
    finish(c, {c.b, c.b.chlo(op, x.value())}); \
  }
CHLO(erf, "erf")
CHLO(erfc, "erfc")
CHLO(erfinv, "erf_inv")
CHLO(lgamma, "lgamma")
CHLO(asin, "asin")
CHLO(acos, "acos")
CHLO(atan, "atan")
CHLO(sinh, "sinh")
CHLO(cosh, "cosh")
CHLO(asinh, "asinh")
CHLO(acosh, "acosh")
CHLO(atanh, "atanh")
#undef CHLO

void lower_digamma(LowerContext& c) {
  Expr x = operand(c, 0);
  Expr value{c.b, c.b.chlo("digamma", x.value())};
  // At zero it is the infinity of the other sign, at negative integers undefined.
  finish(c, where(x == 0, -1.0 / x, value));
}

void lower_log1p(LowerContext& c) { finish(c, log1p(operand(c, 0))); }
void lower_exp2(LowerContext& c) { finish(c, exp(operand(c, 0) * std::log(2.0))); }
void lower_log2(LowerContext& c) { finish(c, log(operand(c, 0)) / std::log(2.0)); }
void lower_log10(LowerContext& c) { finish(c, log(operand(c, 0)) / std::log(10.0)); }
void lower_square(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, x * x);
}
void lower_reciprocal(LowerContext& c) { finish(c, 1.0 / operand(c, 0)); }

void lower_abs(LowerContext& c) {
  Val x = c.tensor(0);
  bool plain = x.dtype() == DType::Bool || x.dtype() == DType::Byte;
  c.set(0, plain ? x : c.b.unary("abs", x));
}

// Rounding leaves integers alone.
template <const char* const& kOp>
void lower_round_like(LowerContext& c) {
  Val x = c.tensor(0);
  c.set(0, c10::isFloatingType(x.dtype()) ? c.b.unary(kOp, x) : x);
}
const char* const kFloor = "floor";
const char* const kCeil = "ceil";
const char* const kRound = "round_nearest_even";

Val truncate(Builder& b, Val x) {
  Val zero = b.scalar_like(x, 0);
  return b.select(b.compare("LT", x, zero), b.unary("ceil", x), b.unary("floor", x));
}

void lower_trunc(LowerContext& c) {
  Val x = c.tensor(0);
  c.set(0, c10::isFloatingType(x.dtype()) ? truncate(c.b, x) : x);
}

void lower_frac(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, x - Expr{c.b, truncate(c.b, x.value())});
}

// Of ten, by the size of an integer argument: exact where that is an input of the program, which is
// at most 22.
Val power_of_ten(LowerContext& c, size_t argument, DType dtype) {
  if (std::optional<Number> literal = c.literal(argument)) {
    return c.b.constant(std::pow(10.0, std::abs(literal->to_double())), dtype);
  }
  const Expr exponent = abs(number(c, argument, DType::Long));
  Expr power{c.b, c.b.constant(1.0, DType::Double)};
  for (int64_t bit = 1; bit <= 16; bit *= 2) {
    const Expr mask = exponent.constant(static_cast<double>(bit));
    const Expr bits{c.b, c.b.binary("and", exponent.value(), mask.value())};
    power = where(bits == mask, power * std::pow(10.0, static_cast<double>(bit)), power);
  }
  return c.b.convert(power.value(), dtype);
}

void lower_round_decimals(LowerContext& c) {
  Expr x = operand(c, 0);
  if (!is_float(x.value().dtype())) {
    finish(c, x);
    return;
  }
  const Expr scale{c.b, power_of_ten(c, 1, x.value().dtype())};
  const Expr before_point = number(c, 1, DType::Long) < 0;
  const Expr scaled = where(before_point, x / scale, x * scale);
  const Expr rounded{c.b, c.b.unary("round_nearest_even", scaled.value())};
  finish(c, where(before_point, rounded * scale, rounded / scale));
}

void lower_sign(LowerContext& c) {
  Val x = c.tensor(0);
  if (x.dtype() == DType::Bool) {
    c.set(0, x);
    return;
  }
  Val zero = c.b.full(0.0, x.type());
  Val positive = c.b.convert(c.b.compare("GT", x, zero), x.dtype());
  Val negative = c.b.convert(c.b.compare("LT", x, zero), x.dtype());
  c.set(0, c.b.sub(positive, negative));
}

void lower_sgn(LowerContext& c) {
  Val x = c.tensor(0);
  if (c10::isComplexType(x.dtype())) {
    c.set(0, c.b.unary("sign", x));
  } else {
    lower_sign(c);
  }
}

void lower_conj(LowerContext& c) { finish(c, conj(operand(c, 0))); }

void lower_angle(LowerContext& c) {
  Val x = c.tensor(0);
  Builder& b = c.b;
  if (c10::isComplexType(x.dtype())) {
    c.set(0, b.binary("atan2", b.imag(x), b.real(x)));
    return;
  }
  x = b.convert(x, c.output(0).dtype);
  Val angle = b.select(b.compare("LT", x, b.scalar_like(x, 0)),
                       b.full(3.14159265358979323846, x.type()), b.full(0.0, x.type()));
  c.set(0, b.select(b.compare("NE", x, x), x, angle));
}

void lower_sinc(LowerContext& c) {
  Expr x = operand(c, 0) * 3.14159265358979323846;
  Expr sine{c.b, c.b.unary("sine", x.value())};
  finish(c, where(x == 0, 1.0, sine / x));
}

std::pair<Expr, Expr> parts(Expr x) {
  return {{x.b(), x.b().real(x.value())}, {x.b(), x.b().imag(x.value())}};
}

Expr complex(Expr real, Expr imag) {
  return {real.b(), real.b().complex(real.value(), imag.value())};
}

// ---- binary -------------------------------------------------------------------------------------

// ATen rounds numbers and 0-d tensors of other dtypes to the output's before it computes.
Expr rounded_operand(LowerContext& c, size_t i) {
  const DType dtype = c.output(0).dtype;
  return {c.b, c.b.convert(c.tensor_as(i, dtype), compute_dtype(dtype))};
}

// But what all elements are multiplied with or divided by.
Expr factor(LowerContext& c, size_t i) {
  const Window* window = c.window(i);
  const bool is_one = window == nullptr || window->numel() == 1;
  return is_one ? operand(c, i) : rounded_operand(c, i);
}

// Argument `i`, times alpha (argument 2) unless that is 1.
Expr times_alpha(LowerContext& c, size_t i) {
  Expr x = rounded_operand(c, i);
  std::optional<Number> literal = c.literal(2);
  return literal && literal->to_complex() == 1.0 ? x : x * rounded_operand(c, 2);
}

void lower_add(LowerContext& c) {
  Expr x = rounded_operand(c, 0);
  finish(c, x + times_alpha(c, 1));
}
void lower_sub(LowerContext& c) {
  Expr x = rounded_operand(c, 0);
  finish(c, x - times_alpha(c, 1));
}
void lower_rsub(LowerContext& c) {
  Expr x = times_alpha(c, 0);
  finish(c, rounded_operand(c, 1) - x);
}

// XLA leaves out what a literal one is multiplied with or divides. PyTorch's kernels multiply with
// its imaginary part, too: zero, which makes no number of an infinity.
void lower_mul(LowerContext& c) {
  const Expr x = rounded_operand(c, 0);
  const Expr y = factor(c, 1);
  if (!c10::isComplexType(x.value().dtype())) {
    finish(c, x * y);
    return;
  }
  const auto [a, b] = parts(x);
  const auto [s, t] = parts(y);
  finish(c, complex(a * s - b * t, a * t + b * s));
}

// By a real number: XLA multiplies complex ones with its reciprocal, and zero's would be no number.
void lower_div(LowerContext& c) {
  const Expr x = rounded_operand(c, 0);
  if (!c10::isComplexType(x.value().dtype()) || !c.is_real_number(1)) {
    finish(c, x / factor(c, 1));
    return;
  }
  const auto [a, b] = parts(x);
  const Expr divisor = number(c, 1, a.value().dtype());
  finish(c, complex((a + b * 0.0) / divisor, (b - a * 0.0) / divisor));
}

// Truncated remainder, with PyTorch's result where the divisor is zero left to the operation.
Expr fmod(Expr x, Expr y) { return {x.b(), x.b().binary("remainder", x.value(), y.value())}; }

// Dividend and divisor broadcast to the output, in the dtype computations run in.
std::pair<Expr, Expr> quotient_pair(LowerContext& c) {
  auto [x, y] = broadcast_pair(c, compute_dtype(c.output(0).dtype));
  return {{c.b, x}, {c.b, y}};
}

// Both operands so, rounded to the output's dtype first.
std::pair<Expr, Expr> pair(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  auto [x, y] = broadcast_pair(c, dtype);
  return {{c.b, c.b.convert(x, compute_dtype(dtype))}, {c.b, c.b.convert(y, compute_dtype(dtype))}};
}

// The remainder with the divisor's sign.
Expr python_remainder(Expr x, Expr y) {
  Expr r = fmod(x, y);
  if (!c10::isSignedType(x.value().dtype())) {
    return r;
  }
  Expr differs = (r < 0) != (y < 0);
  return where(differs && (r != r.constant(0)), r + y, r);
}

Expr floor_divide(Expr x, Expr y) {
  DType dtype = x.value().dtype();
  if (!c10::isFloatingType(dtype)) {
    Expr quotient = x / y;
    if (!c10::isSignedType(dtype)) {
      return quotient;
    }
    Expr inexact = fmod(x, y) != x.constant(0);
    return where(inexact && ((x < 0) != (y < 0)), quotient - 1.0, quotient);
  }
  // Exact where x/y rounds to the next integer: as CPython divides floats.
  Expr remainder = fmod(x, y);
  Expr quotient = (x - remainder) / y;
  Expr lower = where((remainder != remainder.constant(0)) && ((y < 0) != (remainder < 0)),
                     quotient - 1.0, quotient);
  Expr floored{x.b(), x.b().unary("floor", lower.value())};
  floored = where(lower - floored > 0.5, floored + 1.0, floored);
  Expr exact = x / y;
  Expr zero = where({x.b(), sign_bit(x.b(), exact.value())}, -0.0, exact.constant(0));
  return where(y == 0, exact, where(lower == 0, zero, floored));
}

void lower_remainder(LowerContext& c) {
  auto [x, y] = pair(c);
  finish(c, python_remainder(x, y));
}

void lower_fmod(LowerContext& c) {
  auto [x, y] = pair(c);
  finish(c, fmod(x, y));
}

void lower_floor_divide(LowerContext& c) {
  auto [x, y] = quotient_pair(c);
  finish(c, floor_divide(x, y));
}

void lower_div_mode(LowerContext& c) {
  std::string mode = c.text_or(2, "");
  if (mode == "floor" && c.signature().op == "aten::div.Tensor_mode" &&
      c10::isFloatingType(c.output(0).dtype) && c.prefers_host() && is_worth_a_call(c)) {
    return c.call_host();  // as floor_divide is
  }
  auto [x, y] = quotient_pair(c);
  if (mode == "floor") {
    finish(c, floor_divide(x, y));
  } else if (mode == "trunc" && c10::isFloatingType(x.value().dtype())) {
    // The quotient is rounded to its dtype first, as ATen does.
    c.set(0, truncate(c.b, c.b.convert((x / y).value(), c.output(0).dtype)));
  } else {
    finish(c, x / y);
  }
}

void lower_atan2(LowerContext& c) {
  auto [x, y] = pair(c);
  finish(c, {c.b, c.b.binary("atan2", x.value(), y.value())});
}

void lower_maximum(LowerContext& c) {
  auto [x, y] = broadcast_pair(c, c.output(0).dtype);
  c.set(0, c.b.maximum(x, y));
}

void lower_minimum(LowerContext& c) {
  auto [x, y] = broadcast_pair(c, c.output(0).dtype);
  c.set(0, c.b.minimum(x, y));
}

// fmax and fmin prefer numbers to NaN.
void lower_fmax(LowerContext& c) {
  auto [x, y] = pair(c);
  finish(c, where(x != x, y, where(y != y, x, maximum(x, y))));
}

void lower_fmin(LowerContext& c) {
  auto [x, y] = pair(c);
  finish(c, where(x != x, y, where(y != y, x, minimum(x, y))));
}

void lower_copysign(LowerContext& c) {
  auto [x, y] = pair(c);
  Expr negative{c.b, sign_bit(c.b, y.value())};
  finish(c, where(negative, -abs(x), abs(x)));
}

void lower_hypot(LowerContext& c) {
  auto [x, y] = pair(c);
  Expr a = abs(x);
  Expr b = abs(y);
  Expr high = maximum(a, b);
  Expr low = minimum(a, b);
  Expr ratio = where(high == 0, 0.0, low / high);
  Expr root{c.b, c.b.unary("sqrt", (ratio * ratio + 1.0).value())};
  Expr length = where(high == low, high * std::sqrt(2.0), high * root);
  double infinity = std::numeric_limits<double>::infinity();
  finish(c, where(a == infinity || b == infinity, infinity, length));
}

// Ordered by the real parts, which say which exponential is the larger one.
void lower_complex_logaddexp(LowerContext& c, Expr x, Expr y) {
  const Expr x_real{c.b, c.b.real(x.value())};
  const Expr y_real{c.b, c.b.real(y.value())};
  const Expr infinite = x_real == y_real && abs(x_real) == std::numeric_limits<double>::infinity();
  const Expr high = where(x_real < y_real, y, x);
  const Expr low = where(x_real < y_real, x, y);
  const Expr sum = where(infinite, where(x_real < 0.0, low, log(exp(x) + exp(y))),
                         high + log1p(exp(low - high)));
  finish(c, sum);
}

void lower_logaddexp(LowerContext& c) {
  auto [x, y] = pair(c);
  if (c10::isComplexType(x.value().dtype())) {
    return lower_complex_logaddexp(c, x, y);
  }
  Expr high = maximum(x, y);
  finish(c, where(x == y, x + std::log(2.0), high + log1p_of_unit(exp(-abs(x - y)))));
}

void lower_logaddexp2(LowerContext& c) {
  auto [x, y] = pair(c);
  Expr high = maximum(x, y);
  Expr tail = log1p_of_unit(exp(-abs(x - y) * std::log(2.0))) / std::log(2.0);
  finish(c, where(x == y, x + 1.0, high + tail));
}

// x * logarithm, 0 where x is; NaN where y is.
Expr times_logarithm(Expr x, Expr y, Expr logarithm) {
  return where(y != y, y, where(x == 0, 0.0, x * logarithm));
}

void lower_xlogy(LowerContext& c) {
  auto [x, y] = pair(c);
  finish(c, times_logarithm(x, y, log(y)));
}

void lower_xlog1py(LowerContext& c) {
  auto [x, y] = pair(c);
  finish(c, times_logarithm(x, y, log1p(y)));
}

void lower_entr(LowerContext& c) {
  Expr x = operand(c, 0);
  Expr inside = times_logarithm(x, x, -log(x));
  finish(c, where(x < 0, -std::numeric_limits<double>::infinity(), inside));
}

// ---- three operands -----------------------------------------------------------------------------

void lower_addcmul(LowerContext& c) {
  Expr self = operand(c, 0), x = operand(c, 1), y = operand(c, 2);
  finish(c, self + scalar(c, 3) * x * y);
}

void lower_addcdiv(LowerContext& c) {
  Expr self = operand(c, 0), x = operand(c, 1), y = operand(c, 2);
  finish(c, self + scalar(c, 3) * x / y);
}

Expr lerp(Expr start, Expr end, Expr weight) {
  Expr difference = end - start;
  Expr small = abs(weight) < 0.5;
  return where(small, start + weight * difference, end - difference * (1.0 - weight));
}

void lower_lerp_scalar(LowerContext& c) {
  if (std::optional<Number> literal = c.literal(2);
      literal && literal->kind != Number::Kind::Complex) {
    Expr start = operand(c, 0);
    Expr end = operand(c, 1);
    double weight = literal->to_double();
    finish(c, std::abs(weight) < 0.5 ? start + weight * (end - start)
                                     : end - (end - start) * (1.0 - weight));
    return;
  }
  Expr start = operand(c, 0), end = operand(c, 1);
  finish(c, lerp(start, end, scalar(c, 2)));
}

void lower_lerp(LowerContext& c) {
  Expr start = operand(c, 0), end = operand(c, 1);
  finish(c, lerp(start, end, operand(c, 2)));
}

}  // namespace

void register_arithmetic(LowerTable& table) {
  auto set = [&](const char* name, LowerFunction function, uint32_t flags = kNone) {
    table[std::string("aten::") + name] = {function, flags | kElementwise};
  };
  set("neg", lower_neg);
  set("exp", lower_exp);
  set("expm1", lower_expm1);
  set("exp2", lower_exp2);
  set("log", or_library<lower_log>);
  set("log1p", or_library<lower_log1p>);
  set("log2", or_library<lower_log2>);
  set("log10", or_library<lower_log10>);
  set("sqrt", lower_sqrt);
  set("rsqrt", lower_rsqrt);
  set("square", lower_square);
  set("reciprocal", lower_reciprocal);
  set("sin", or_library<lower_sin>);
  set("cos", or_library<lower_cos>);
  set("tan", or_library<lower_tan>);
  set("tanh", lower_tanh);
  set("sigmoid", lower_sigmoid);
  set("erf", or_library<lower_erf>);
  set("erfc", lower_erfc);
  set("erfinv", or_library<lower_erfinv>);
  set("lgamma", or_library<lower_lgamma>);
  set("digamma", lower_digamma);
  set("asin", or_library<lower_asin>);
  set("acos", or_library<lower_acos>);
  set("atan", or_library<lower_atan>);
  set("sinh", lower_sinh);
  set("cosh", lower_cosh);
  set("asinh", lower_asinh);
  set("acosh", lower_acosh);
  set("atanh", or_library<lower_atanh>);
  set("abs", lower_abs);
  set("floor", lower_round_like<kFloor>);
  set("ceil", lower_round_like<kCeil>);
  set("round", lower_round_like<kRound>);
  set("round.decimals", lower_round_decimals);
  set("trunc", lower_trunc);
  set("frac", lower_frac);
  set("sign", lower_sign);
  set("sgn", lower_sgn);
  set("_conj_physical", lower_conj);
  set("conj_physical", lower_conj);
  set("angle", lower_angle);
  set("sinc", lower_sinc);
  set("add.Tensor", lower_add);
  set("add.Scalar", lower_add);
  set("sub.Tensor", lower_sub);
  set("sub.Scalar", lower_sub);
  set("rsub.Tensor", lower_rsub);
  set("rsub.Scalar", lower_rsub);
  set("mul.Tensor", lower_mul);
  set("mul.Scalar", lower_mul);
  set("div.Tensor", lower_div);
  set("div.Scalar", lower_div);
  set("div.Tensor_mode", lower_div_mode);
  set("div.Scalar_mode", lower_div_mode);
  set("floor_divide", or_library<lower_floor_divide>);
  set("remainder.Tensor", or_library<lower_remainder>);
  set("remainder.Scalar", or_library<lower_remainder>);
  set("fmod.Tensor", or_library<lower_fmod>);
  set("fmod.Scalar", or_library<lower_fmod>);
  set("atan2", or_library<lower_atan2>);
  set("maximum", lower_maximum);
  set("minimum", lower_minimum);
  set("fmax", lower_fmax);
  set("fmin", lower_fmin);
  set("copysign.Tensor", lower_copysign);
  set("hypot", lower_hypot);
  set("logaddexp", lower_logaddexp);
  set("logaddexp2", lower_logaddexp2);
  set("xlogy.Tensor", lower_xlogy);
  set("special_xlog1py", lower_xlog1py);
  set("special_entr", lower_entr);
  set("addcmul", lower_addcmul);
  set("addcdiv", lower_addcdiv);
  set("lerp.Scalar", lower_lerp_scalar);
  set("lerp.Tensor", lower_lerp);
}

}  // namespace torch_xla
