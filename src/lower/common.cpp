#include "lower/common.h"

#include "pjrt/doubles.h"

namespace torch_xla {

namespace {

DType promote_known(DType x, DType y) {
  return x == DType::Undefined ? y : y == DType::Undefined ? x : c10::promoteTypes(x, y);
}

// `lower` counts only where its kind is higher than that of `higher`.
DType combine(DType higher, DType lower) {
  if (lower == DType::Undefined || c10::isComplexType(higher)) {
    return higher;
  }
  if (c10::isFloatingType(higher)) {
    return c10::isComplexType(lower) ? c10::toComplexType(higher) : higher;
  }
  bool lower_kind_decides = higher == DType::Undefined || higher == DType::Bool ||
                            c10::isFloatingType(lower) || c10::isComplexType(lower);
  return lower_kind_decides ? promote_known(higher, lower) : higher;
}

DType dtype_of_number(Number::Kind kind) {
  switch (kind) {
    case Number::Kind::Bool:
      return DType::Bool;
    case Number::Kind::Int:
      return DType::Long;
    case Number::Kind::UInt:
      return DType::UInt64;
    case Number::Kind::Double:
      return DType::Float;
    default:
      return DType::ComplexFloat;
  }
}

struct Promotion {
  DType dimensioned = DType::Undefined;
  DType zero_dim = DType::Undefined;
  DType number = DType::Undefined;

  void add(const Signature& signature, const Attribute& argument) {
    if (const auto* ref = std::get_if<OperandRef>(&argument)) {
      const Window& window = signature.operands[ref->index];
      DType& group = window.sizes.empty() ? zero_dim : dimensioned;
      group = promote_known(group, window.dtype);
      return;
    }
    const auto& ref = std::get<NumberRef>(argument);
    if (ref.is_tensor && !ref.wrapped) {
      zero_dim = promote_known(zero_dim, ref.dtype);
    } else {
      number = promote_known(number, dtype_of_number(signature.number_kinds[ref.slot]));
    }
  }
};

}  // namespace

DType promoted_dtype(const LowerContext& c, std::initializer_list<size_t> arguments) {
  Promotion promotion;
  for (size_t i : arguments) {
    promotion.add(c.signature(), c.signature().arguments.at(i));
  }
  return combine(promotion.dimensioned, combine(promotion.zero_dim, promotion.number));
}

Val broadcast_operand(LowerContext& c, size_t argument, DType dtype) {
  return c.b.expand(c.tensor_as(argument, dtype), c.output(0).sizes);
}

std::pair<Val, Val> broadcast_pair(LowerContext& c, DType dtype) {
  return {broadcast_operand(c, 0, dtype), broadcast_operand(c, 1, dtype)};
}

Val sign_bit(Builder& b, Val x) {
  if (c10::isReducedFloatingType(x.dtype())) {
    x = b.convert(x, DType::Float);
  }
  DType integer = pjrt::device_dtype(x.dtype()) == DType::Double ? DType::Long : DType::Int;
  Val bits = b.bitcast_convert(x, {integer, x.dims()});
  return b.compare("LT", bits, b.scalar_like(bits, 0));
}

}  // namespace torch_xla
