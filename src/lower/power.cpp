// Powers: pow of tensors and numbers.
#include "lower/activation.h"
#include "lower/common.h"
#include "lower/elementwise.h"
#include "lower/library_function.h"

#include <cmath>

namespace torch_xla {

namespace {

Expr multiplied(Expr x, int64_t times) {
  Expr result = x;
  for (int64_t i = 1; i < times; ++i) {
    result = result * x;
  }
  return result;
}

Expr raise(Expr x, Expr y) { return {x.b(), x.b().binary("power", x.value(), y.value())}; }

// XLA looks at the last six bits of a whole exponent, and at its sign.
constexpr int64_t kBits = 6;

Expr power(Expr x, Expr y) {
  Builder& b = x.b();
  const TensorType type = y.value().type();
  if (!c10::isIntegralType(type.dtype, false)) {
    return raise(x, y);
  }
  const bool is_signed = c10::isSignedType(type.dtype);
  const Val last_bits = b.full((1 << kBits) - 1.0, type);
  Expr result = raise(x, is_signed ? y : Expr{b, b.binary("and", y.value(), last_bits)});
  const auto* shift = is_signed ? "shift_right_arithmetic" : "shift_right_logical";
  const int64_t bits = static_cast<int64_t>(c10::elementSize(type.dtype)) * 8 - (is_signed ? 1 : 0);
  for (int64_t seen = kBits; seen < bits; seen += kBits) {
    for (int64_t i = 0; i < kBits; ++i) {
      x = x * x;
    }
    const Val count = b.full(static_cast<double>(seen), type);
    result = result * raise(x, {b, b.binary(shift, y.value(), count)});
  }
  return result;
}

void raise_to_number(LowerContext& c) {
  const Expr x = operand(c, 0);
  const Val number = c.b.convert(c.number(1, c.output(0).dtype), x.value().dtype());
  const Expr exponent{c.b, c.b.expand(number, x.value().dims())};
  const std::optional<Number> literal = c.literal(1);
  const bool is_small = literal && std::abs(literal->to_double()) < 1 << kBits;
  finish(c, is_small ? raise(x, exponent) : power(x, exponent));
}

// By a computation of the exponent's own, if it has one.
bool raises_simply(LowerContext& c, double exponent) {
  Expr x = operand(c, 0);
  const DType dtype = x.value().dtype();
  if (exponent == 1 || exponent == 2 || exponent == 3) {
    finish(c, multiplied(x, static_cast<int64_t>(exponent)));
    return true;
  }
  if (!c10::isFloatingType(dtype) && !c10::isComplexType(dtype)) {
    return false;
  }
  if (exponent == -1) {
    finish(c, 1.0 / x);
    return true;
  }
  // ATen, too, takes roots here, which differ from powers at -0 and -inf; but not of halves.
  if (std::abs(exponent) == 0.5 && c.output(0).dtype != DType::Half) {
    finish(c, {c.b, c.b.unary(exponent > 0 ? "sqrt" : "rsqrt", x.value())});
    return true;
  }
  return false;
}

void lower_pow_scalar(LowerContext& c) {
  const std::optional<Number> literal = c.literal(1);
  const bool is_real = literal && literal->kind != Number::Kind::Complex;
  if (!is_real || !raises_simply(c, literal->to_double())) {
    or_library<raise_to_number>(c);
  }
}

// Both operands are rounded to the output's dtype first.
void raise_to_tensor(LowerContext& c) {
  const DType dtype = c.output(0).dtype, compute = compute_dtype(dtype);
  const auto [x, y] = broadcast_pair(c, dtype);
  finish(c, power({c.b, c.b.convert(x, compute)}, {c.b, c.b.convert(y, compute)}));
}

}  // namespace

void register_power(LowerTable& table) {
  table["aten::pow.Tensor_Scalar"] = {lower_pow_scalar, kElementwise | kStaticNumbers};
  table["aten::pow.Tensor_Tensor"] = {or_library<raise_to_tensor>, kElementwise};
  table["aten::pow.Scalar"] = {or_library<raise_to_tensor>, kElementwise};
}

}  // namespace torch_xla
