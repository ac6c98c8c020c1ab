// Comparisons, logic, bits, selection, clamping, casts and copies.
#include "lower/activation.h"
#include "lower/common.h"
#include "lower/elementwise.h"

#include <cmath>
#include <limits>

namespace torch_xla {

namespace {

template <const char* const& kDirection>
void lower_compare(LowerContext& c) {
  auto [x, y] = broadcast_pair(c, promoted_dtype(c, {0, 1}));
  c.set(0, c.b.compare(kDirection, x, y));
}
const char* const kEq = "EQ";
const char* const kNe = "NE";
const char* const kLt = "LT";
const char* const kLe = "LE";
const char* const kGt = "GT";
const char* const kGe = "GE";

template <const char* const& kOp>
void lower_logical(LowerContext& c) {
  auto [x, y] = broadcast_pair(c, DType::Bool);
  c.set(0, c.b.binary(kOp, x, y));
}

template <const char* const& kOp>
void lower_bitwise(LowerContext& c) {
  auto [x, y] = broadcast_pair(c, c.output(0).dtype);
  c.set(0, c.b.binary(kOp, x, y));
}
const char* const kAnd = "and";
const char* const kOr = "or";

// XLA's compiler crashes where both sides of an `and` or `or` have just been truncated from wider
// integers, as in `x.int() & y.int()`. It does not look through this for y; LLVM finds that it is
// y.
Val opaque(Builder& b, Val y) {
  Val one = b.full(1.0, y.type());
  Val more = b.binary("add", b.binary("maximum", y, one), b.binary("minimum", y, one));
  return b.binary("subtract", more, one);
}

template <const char* const& kOp>
void lower_and_or(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  auto [x, y] = broadcast_pair(c, dtype);
  bool is_narrow = dtype != DType::Bool && c10::elementSize(dtype) < sizeof(int64_t);
  c.set(0, c.b.binary(kOp, x, is_narrow ? opaque(c.b, y) : y));
}
const char* const kXor = "xor";
const char* const kShiftLeft = "shift_left";

void lower_shift_right(LowerContext& c) {
  auto [x, y] = broadcast_pair(c, c.output(0).dtype);
  bool is_signed = c10::isSignedType(x.dtype());
  c.set(0, c.b.binary(is_signed ? "shift_right_arithmetic" : "shift_right_logical", x, y));
}

void lower_logical_not(LowerContext& c) { c.set(0, c.b.logical_not(c.tensor_as(0, DType::Bool))); }

void lower_bitwise_not(LowerContext& c) { c.set(0, c.b.unary("not", c.tensor(0))); }

void lower_isnan(LowerContext& c) {
  Val x = c.tensor(0);
  c.set(0, c.b.compare("NE", x, x));
}

void lower_isinf(LowerContext& c) {
  Val x = c.tensor(0);
  auto infinite = [&](Val part) {
    Val magnitude = c.b.unary("abs", part);
    return c.b.compare("EQ", magnitude,
                       c.b.scalar_like(part, std::numeric_limits<double>::infinity()));
  };
  if (c10::isComplexType(x.dtype())) {
    c.set(0, c.b.logical_or(infinite(c.b.real(x)), infinite(c.b.imag(x))));
  } else if (c10::isFloatingType(x.dtype())) {
    c.set(0, infinite(x));
  } else {
    c.set(0, c.b.full(0.0, {DType::Bool, x.dims()}));
  }
}

template <int kSign>
void lower_signed_infinity(LowerContext& c) {
  Val x = c.tensor(0);
  if (c10::isFloatingType(x.dtype())) {
    Val infinity = c.b.scalar_like(x, kSign * std::numeric_limits<double>::infinity());
    c.set(0, c.b.compare("EQ", x, infinity));
  } else {
    c.set(0, c.b.full(0.0, {DType::Bool, x.dims()}));
  }
}

void lower_signbit(LowerContext& c) {
  Val x = c.tensor(0);
  Builder& b = c.b;
  if (!c10::isFloatingType(x.dtype())) {
    c.set(0, x.dtype() == DType::Bool ? b.full(0.0, x.type())
                                      : b.compare("LT", x, b.scalar_like(x, 0)));
    return;
  }
  c.set(0, sign_bit(b, x));
}

// ---- selection ----------------------------------------------------------------------------------

void lower_where(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  Val condition = broadcast_operand(c, 0, DType::Bool);
  Val on_true = broadcast_operand(c, 1, dtype);
  c.set(0, c.b.select(condition, on_true, broadcast_operand(c, 2, dtype)));
}

void lower_masked_fill(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  Val x = broadcast_operand(c, 0, dtype);
  Val mask = broadcast_operand(c, 1, DType::Bool);
  c.set(0, c.b.select(mask, broadcast_operand(c, 2, dtype), x));
}

// clamp(self, min?, max?): NaN in any operand wins.
void lower_clamp(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  Val x = broadcast_operand(c, 0, dtype);
  if (!c.is_none(1)) {
    x = c.b.maximum(x, broadcast_operand(c, 1, dtype));
  }
  if (c.argument_count() > 2 && !c.is_none(2)) {
    x = c.b.minimum(x, broadcast_operand(c, 2, dtype));
  }
  c.set(0, x);
}

void lower_clamp_max(LowerContext& c) {
  auto [x, high] = broadcast_pair(c, c.output(0).dtype);
  c.set(0, c.b.minimum(x, high));
}

void lower_nan_to_num(LowerContext& c) {
  Val x = c.tensor(0);
  if (!c10::isFloatingType(x.dtype())) {
    c.set(0, x);
    return;
  }
  Builder& b = c.b;
  DType dtype = x.dtype();
  Val infinity = b.highest(dtype);
  double largest = dtype == DType::Double     ? std::numeric_limits<double>::max()
                   : dtype == DType::Half     ? 65504.0
                   : dtype == DType::BFloat16 ? 3.3895313892515355e38
                                              : std::numeric_limits<float>::max();
  auto replacement = [&](size_t i, double fallback) {
    return c.is_none(i) ? b.constant(fallback, dtype) : c.number(i, dtype);
  };
  Val nan = replacement(1, 0.0);
  Val high = replacement(2, largest);
  Val low = replacement(3, -largest);
  Val result = b.select(b.compare("EQ", x, infinity), b.expand(high, x.dims()), x);
  result = b.select(b.compare("EQ", x, b.lowest(dtype)), b.expand(low, x.dims()), result);
  c.set(0, b.select(b.compare("NE", x, x), b.expand(nan, x.dims()), result));
}

void lower_heaviside(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  auto [self, values] = broadcast_pair(c, dtype);
  Expr x{c.b, self}, y{c.b, values};
  if (dtype == DType::Bool) {
    c.set(0, c.b.logical_or(x.value(), y.value()));
    return;
  }
  Expr step{c.b, c.b.convert((x > 0).value(), dtype)};
  c.set(0, where(x == 0, y, step).value());
}

// ---- casts and copies ---------------------------------------------------------------------------

void lower_cast(LowerContext& c) { c.set(0, c.tensor_as(0, c.output(0).dtype)); }

// copy(self, src): only self's sizes and dtype matter.
void lower_copy(LowerContext& c) { c.set(0, broadcast_operand(c, 1, c.output(0).dtype)); }

}  // namespace

void register_logic(LowerTable& table) {
  auto set = [&](const std::string& name, LowerFunction function, uint32_t flags = kNone) {
    table["aten::" + name] = {function, flags | kElementwise};
  };
  for (const char* overload : {".Tensor", ".Scalar"}) {
    std::string suffix = overload;
    set("eq" + suffix, lower_compare<kEq>);
    set("ne" + suffix, lower_compare<kNe>);
    set("lt" + suffix, lower_compare<kLt>);
    set("le" + suffix, lower_compare<kLe>);
    set("gt" + suffix, lower_compare<kGt>);
    set("ge" + suffix, lower_compare<kGe>);
    set("bitwise_and" + suffix, lower_and_or<kAnd>);
    set("bitwise_or" + suffix, lower_and_or<kOr>);
    set("bitwise_xor" + suffix, lower_bitwise<kXor>);
    set("masked_fill" + suffix, lower_masked_fill);
  }
  set("bitwise_left_shift.Tensor", lower_bitwise<kShiftLeft>);
  set("bitwise_left_shift.Tensor_Scalar", lower_bitwise<kShiftLeft>);
  set("bitwise_right_shift.Tensor", lower_shift_right);
  set("bitwise_right_shift.Tensor_Scalar", lower_shift_right);
  set("logical_and", lower_logical<kAnd>);
  set("logical_or", lower_logical<kOr>);
  set("logical_xor", lower_logical<kXor>);
  set("logical_not", lower_logical_not);
  set("bitwise_not", lower_bitwise_not);
  set("isnan", lower_isnan);
  set("isinf", lower_isinf);
  set("isposinf", lower_signed_infinity<1>);
  set("isneginf", lower_signed_infinity<-1>);
  set("signbit", lower_signbit);
  set("where.self", lower_where);
  set("where.ScalarSelf", lower_where);
  set("where.ScalarOther", lower_where);
  set("where.Scalar", lower_where);
  set("clamp", lower_clamp);
  set("clamp.Tensor", lower_clamp);
  set("clamp_min", lower_clamp);
  set("clamp_min.Tensor", lower_clamp);
  set("clamp_max", lower_clamp_max);
  set("clamp_max.Tensor", lower_clamp_max);
  set("nan_to_num", lower_nan_to_num);
  set("heaviside", lower_heaviside);
  set("clone", lower_cast);
  set("copy", lower_copy, kShapeOnlySelf);
}

void register_elementwise(LowerTable& table) {
  register_arithmetic(table);
  register_logic(table);
  register_power(table);
}

}  // namespace torch_xla
