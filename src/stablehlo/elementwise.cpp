#include "base/error.h"
#include "stablehlo/builder.h"
#include "stablehlo/text.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace torch_xla::stablehlo {

namespace {

void require_same(std::string_view op, const Val& x, const Val& y) {
  if (x.type() != y.type()) {
    throw Error("stablehlo." + std::string(op) + ": operands differ: " + type_string(x.type()) +
                " and " + type_string(y.type()));
  }
}

// So few that the instructions of what is done to each do not matter.
bool are_few(const Val& x) { return x.numel() < 1 << 14; }

}  // namespace

// ---- constants ----------------------------------------------------------------------------------

Val Builder::full(Number value, const TensorType& type) {
  if (type.numel() == 0) {
    // An empty dense<> attribute has its own syntax; a broadcast has none.
    return broadcast_in_dim(constant(value, type.dtype), type.dims, {});
  }
  Val result = append(
      "stablehlo.constant dense<" + number_text(value, type.dtype) + "> : " + type_string(type),
      {type})[0];
  open().constants.insert(result.id_);
  return result;
}

bool Builder::is_constant(Val x) { return open().constants.count(x.id_) != 0; }

Val Builder::full(double value, const TensorType& type) { return full(Number::of(value), type); }

Val Builder::constant(Number value, DType dtype) { return full(value, TensorType{dtype, {}}); }

Val Builder::constant(double value, DType dtype) { return constant(Number::of(value), dtype); }

Val Builder::ints(Ints values, DType dtype) {
  TensorType type{dtype, {static_cast<int64_t>(values.size())}};
  if (values.empty()) {
    return full(0.0, type);
  }
  return append("stablehlo.constant dense<[" + spaced(values) + "]> : " + type_string(type),
                {type})[0];
}

Val Builder::iota(const TensorType& type, int64_t dim) {
  if (c10::isComplexType(type.dtype) || type.dtype == DType::Bool) {
    return convert(iota({DType::Long, type.dims}, dim), type.dtype);
  }
  return append("stablehlo.iota dim = " + std::to_string(dim) + " : " + type_string(type),
                {type})[0];
}

namespace {

Number lowest_number(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return Number::of(false);
    case DType::Byte:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:
      return Number::of(int64_t{0});
    case DType::Char:
      return Number::of(int64_t{std::numeric_limits<int8_t>::min()});
    case DType::Short:
      return Number::of(int64_t{std::numeric_limits<int16_t>::min()});
    case DType::Int:
      return Number::of(int64_t{std::numeric_limits<int32_t>::min()});
    case DType::Long:
      return Number::of(std::numeric_limits<int64_t>::min());
    default:
      return Number::of(-std::numeric_limits<double>::infinity());
  }
}

Number highest_number(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return Number::of(true);
    case DType::Byte:
      return Number::of(int64_t{std::numeric_limits<uint8_t>::max()});
    case DType::UInt16:
      return Number::of(int64_t{std::numeric_limits<uint16_t>::max()});
    case DType::UInt32:
      return Number::of(int64_t{std::numeric_limits<uint32_t>::max()});
    case DType::UInt64:
      return Number::of(int64_t{-1});
    case DType::Char:
      return Number::of(int64_t{std::numeric_limits<int8_t>::max()});
    case DType::Short:
      return Number::of(int64_t{std::numeric_limits<int16_t>::max()});
    case DType::Int:
      return Number::of(int64_t{std::numeric_limits<int32_t>::max()});
    case DType::Long:
      return Number::of(std::numeric_limits<int64_t>::max());
    default:
      return Number::of(std::numeric_limits<double>::infinity());
  }
}

}  // namespace

Val Builder::lowest(DType dtype) { return constant(lowest_number(dtype), dtype); }

Val Builder::highest(DType dtype) { return constant(highest_number(dtype), dtype); }

// ---- element-wise ----------------------------------------------------------------------------

Val Builder::unary(std::string_view op, Val x) {
  TensorType type = x.type();
  if (moves_as_bits(type.dtype) && (op == "abs" || op == "negate")) {
    Val bits = bits_of(x);
    return from_bits(op == "abs"
                         ? binary("and", bits, full(Number::of(int64_t{0x7FFF}), bits.type()))
                         : binary("xor", bits, full(Number::of(int64_t{0x8000}), bits.type())));
  }
  if (op == "abs" && c10::isComplexType(type.dtype)) {
    type.dtype = c10::toRealValueType(type.dtype);
  }
  return emit_like(op, {x}, type);
}

Val Builder::chlo(std::string_view op, Val x) {
  const std::string type = type_string(x.type());
  return append("chlo." + std::string(op) + " " + name_list({x}) + " : " + type + " -> " + type,
                {x.type()})[0];
}

Val Builder::binary(std::string_view op, Val x, Val y) {
  require_same(op, x, y);
  return emit_like(op, {x, y}, x.type());
}

Vals Builder::broadcast_pair(Val x, Val y) {
  if (x.dims() == y.dims()) {
    return {x, y};
  }
  Dims dims;
  size_t rank = std::max(x.dims().size(), y.dims().size());
  for (size_t i = 0; i < rank; ++i) {
    auto at = [&](const Val& v) {
      int64_t d = static_cast<int64_t>(i + v.dims().size()) - static_cast<int64_t>(rank);
      return d < 0 ? int64_t{1} : v.dim(d);
    };
    dims.push_back(at(x) == 1 ? at(y) : at(x));
  }
  return {expand(x, dims), expand(y, dims)};
}

Val Builder::compare(std::string_view direction, Val a, Val b) {
  Vals pair = broadcast_pair(a, b);
  require_same("compare", pair[0], pair[1]);
  const TensorType type{DType::Bool, pair[0].dims()};
  return append("stablehlo.compare " + std::string(direction) + ", " + name_list(pair) + " : " +
                    function_type(types_of(pair), {type}),
                {type})[0];
}

// LLVM takes a choice between bits for one between vectors of bfloat16, which it makes number by
// number where the processor has none of these; the least of two it leaves.
Val Builder::select_bits(Val predicate, Val on_true, Val on_false) {
  if (predicate.rank() == 0 || are_few(on_true)) {
    return select(predicate, on_true, on_false);
  }
  Val all_or_none = unary("negate", convert(predicate, on_true.dtype()));
  Val difference = binary("minimum", binary("xor", on_true, on_false), all_or_none);
  return binary("xor", on_false, difference);
}

Val Builder::select(Val predicate, Val on_true, Val on_false) {
  Vals pair = broadcast_pair(on_true, on_false);
  require_same("select", pair[0], pair[1]);
  if (predicate.rank() != 0 && predicate.dims() != pair[0].dims()) {
    Vals with_first = broadcast_pair(predicate, pair[0]);
    predicate = with_first[0];
    pair = {with_first[1], expand(pair[1], with_first[1].dims())};
  }
  if (moves_as_bits(pair[0].dtype())) {
    return from_bits(select_bits(predicate, bits_of(pair[0]), bits_of(pair[1])));
  }
  return append("stablehlo.select " + name_list({predicate, pair[0], pair[1]}) + " : " +
                    type_list({predicate.type(), pair[0].type()}),
                {pair[0].type()})[0];
}

Val Builder::clamp(Val low, Val x, Val high) {
  auto fit = [&](Val bound) { return bound.rank() == 0 ? bound : expand(bound, x.dims()); };
  return emit_like("clamp", {fit(low), x, fit(high)}, x.type());
}

Val Builder::is_finite(Val x) { return emit("is_finite", {x}, {DType::Bool, x.dims()}); }

Val Builder::complex(Val re, Val im) {
  Vals pair = broadcast_pair(re, im);
  require_same("complex", pair[0], pair[1]);
  const TensorType type{c10::toComplexType(re.dtype()), pair[0].dims()};
  return append("stablehlo.complex " + name_list(pair) + " : " + type_string(type), {type})[0];
}

Val Builder::real(Val x) {
  return c10::isComplexType(x.dtype())
             ? emit("real", {x}, {c10::toRealValueType(x.dtype()), x.dims()})
             : x;
}

Val Builder::imag(Val x) {
  return c10::isComplexType(x.dtype())
             ? emit("imag", {x}, {c10::toRealValueType(x.dtype()), x.dims()})
             : full(0.0, x.type());
}

// The integer that a CPU's instruction makes of a floating point number: of 64 bits for wide types,
// else of 32, and the smallest one for NaN and whatever has no such integer. Unsigned types of that
// many bits have their upper half from what is beyond the largest signed one.
Val Builder::to_integer(Val x, DType dtype) {
  const bool wide = dtype == DType::Long || dtype == DType::UInt64;
  const TensorType integer{wide ? DType::Long : DType::Int, x.dims()};
  x = convert(x, x.dtype() == DType::Double ? DType::Double : DType::Float);
  Val limit = scalar_like(x, std::ldexp(1.0, wide ? 63 : 31));
  Val smallest = full(Number::of(wide ? INT64_MIN : int64_t{INT32_MIN}), integer);
  auto truncated = [&](Val value) {
    Val fits = compare("LT", value, limit);
    return select(fits, emit("convert", {value}, integer), smallest);
  };
  if (dtype != DType::UInt64 && dtype != DType::UInt32) {
    return truncated(x);
  }
  Val upper = binary("xor", truncated(sub(x, limit)), smallest);
  return select(compare("GE", x, limit), upper, truncated(x));
}

Val Builder::convert(Val x, DType dtype) {
  DType from = x.dtype();
  if (from == dtype) {
    return x;
  }
  bool from_complex = c10::isComplexType(from);
  if (dtype == DType::Bool) {
    Val zero = scalar_like(x, 0);
    return compare("NE", x, zero);
  }
  if (c10::isComplexType(dtype)) {
    DType part = c10::toRealValueType(dtype);
    Val re = convert(from_complex ? real(x) : x, part);
    return complex(re, from_complex ? convert(imag(x), part) : full(0.0, re.type()));
  }
  if (from_complex) {
    return convert(real(x), dtype);
  }
  if (c10::isFloatingType(from) && c10::isIntegralType(dtype, false)) {
    x = to_integer(x, dtype);
  }
  if ((moves_as_bits(dtype) && c10::isIntegralType(from, false)) ||
      (c10::isReducedFloatingType(dtype) && from == DType::Double)) {
    return rounded(emit("convert", {x}, {DType::Float, x.dims()}), dtype);
  }
  if (from == DType::Bool && c10::isFloatingType(dtype)) {
    // XLA takes a product with a converted one for a choice: infinity times false would be zero.
    return select(x, full(1.0, {dtype, x.dims()}), full(0.0, {dtype, x.dims()}));
  }
  return emit("convert", {x}, {dtype, x.dims()});
}

// Of bfloat16 as XLA-CPU does it, in three quarters of its instructions: NaN loses its payload. It
// is chosen before it is rounded (select_bits says why). XLA fuses a conversion with more.
Val Builder::rounded(Val x, DType dtype) {
  if (!moves_as_bits(dtype) || x.dtype() != DType::Float || are_few(x)) {
    return convert(x, dtype);
  }
  const TensorType whole{DType::UInt32, x.dims()};
  auto number = [&](int64_t value) { return full(Number::of(value), whole); };
  Val bits = select(compare("NE", x, x), number(0x7FC00000), bitcast_convert(x, whole));
  Val odd = binary("and", binary("shift_right_logical", bits, number(16)), number(1));
  return upper_half(binary("add", binary("add", bits, number(0x7FFF)), odd));
}

Val Builder::upper_half(Val bits) {
  Val half = binary("shift_right_logical", bits, full(Number::of(int64_t{16}), bits.type()));
  return from_bits(emit("convert", {half}, {DType::UInt16, half.dims()}));
}

// One of both, which of bfloat16 is one as they are.
Val Builder::choose(std::string_view op, Val x, Val y) {
  Vals pair = broadcast_pair(x, y);
  if (!moves_as_bits(x.dtype())) {
    return binary(op, pair[0], pair[1]);
  }
  Val chosen = binary(op, convert(pair[0], DType::Float), convert(pair[1], DType::Float));
  return upper_half(bitcast_convert(chosen, {DType::UInt32, chosen.dims()}));
}

Val Builder::bitcast_convert(Val x, const TensorType& type) {
  return emit("bitcast_convert", {x}, type);
}

// ---- shorthands ---------------------------------------------------------------------------------

Val Builder::add(Val x, Val y) {
  Vals pair = broadcast_pair(x, y);
  return binary(x.dtype() == DType::Bool ? "or" : "add", pair[0], pair[1]);
}

Val Builder::sub(Val x, Val y) {
  Vals pair = broadcast_pair(x, y);
  return binary("subtract", pair[0], pair[1]);
}

Val Builder::mul(Val x, Val y) {
  Vals pair = broadcast_pair(x, y);
  return binary(x.dtype() == DType::Bool ? "and" : "multiply", pair[0], pair[1]);
}

Val Builder::div(Val x, Val y) {
  Vals pair = broadcast_pair(x, y);
  return binary("divide", pair[0], pair[1]);
}

Val Builder::maximum(Val x, Val y) { return choose("maximum", x, y); }

Val Builder::minimum(Val x, Val y) { return choose("minimum", x, y); }

Val Builder::logical_and(Val x, Val y) {
  Vals pair = broadcast_pair(x, y);
  return binary("and", pair[0], pair[1]);
}

Val Builder::logical_or(Val x, Val y) {
  Vals pair = broadcast_pair(x, y);
  return binary("or", pair[0], pair[1]);
}

Val Builder::logical_not(Val x) { return unary("not", x); }

Val Builder::scalar_like(Val x, double value) { return constant(value, x.dtype()); }

}  // namespace torch_xla::stablehlo
