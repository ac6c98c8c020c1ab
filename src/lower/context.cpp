#include "lower/context.h"

#include "base/error.h"
#include "lower/graph_lowering.h"
#include "lower/lower_state.h"

#include <numeric>

namespace torch_xla {

namespace {

[[noreturn]] void wrong_argument(const Signature& signature, size_t i, const char* wanted) {
  throw Error("lowering of " + signature.op + ": argument " + std::to_string(i) + " is not " +
              wanted);
}

template <typename T>
const T& get(const Signature& signature, size_t i, const char* wanted) {
  if (i < signature.arguments.size()) {
    if (const T* value = std::get_if<T>(&signature.arguments[i])) {
      return *value;
    }
  }
  wrong_argument(signature, i, wanted);
}

Val number_value(Builder& b, const LoweredNumber& number, DType dtype) {
  return number.input ? b.convert(number.input, dtype) : b.constant(number.value, dtype);
}

int64_t wrap(int64_t dim, int64_t rank) { return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim; }

}  // namespace

bool LowerContext::is_none(size_t i) const {
  const Attribute& argument = signature_.arguments.at(i);
  const auto* operand = std::get_if<OperandRef>(&argument);
  return std::holds_alternative<std::monostate>(argument) || (operand && operand->index < 0);
}

Val LowerContext::tensor(size_t i) {
  if (const auto* number = std::get_if<NumberRef>(&signature_.arguments.at(i))) {
    return number_value(b, state_.numbers[number->slot], number->dtype);
  }
  OperandRef ref = get<OperandRef>(signature_, i, "a tensor");
  if (ref.index < 0) {
    wrong_argument(signature_, i, "a tensor but None");
  }
  return read(ref.index);
}

const Window* LowerContext::window(size_t i) const {
  const auto* ref = std::get_if<OperandRef>(&signature_.arguments.at(i));
  return ref == nullptr || ref->index < 0 ? nullptr : &signature_.operands[ref->index];
}

Val LowerContext::tensor_as(size_t i, DType dtype) {
  if (const auto* number = std::get_if<NumberRef>(&signature_.arguments.at(i))) {
    return number_value(b, state_.numbers[number->slot], dtype);
  }
  return b.convert(tensor(i), dtype);
}

std::optional<Val> LowerContext::maybe_tensor(size_t i) {
  if (is_none(i)) {
    return std::nullopt;
  }
  return tensor(i);
}

Vals LowerContext::tensors(size_t i) {
  Vals result;
  for (OperandRef ref : get<std::vector<OperandRef>>(signature_, i, "a list of tensors")) {
    result.push_back(read(ref.index));
  }
  return result;
}

std::vector<std::optional<Val>> LowerContext::maybe_tensors(size_t i) {
  std::vector<std::optional<Val>> result;
  for (OperandRef ref : get<std::vector<OperandRef>>(signature_, i, "a list of tensors")) {
    result.push_back(ref.index < 0 ? std::nullopt : std::optional<Val>(read(ref.index)));
  }
  return result;
}

Val LowerContext::number(size_t i, DType dtype) {
  const auto* ref = std::get_if<NumberRef>(&signature_.arguments.at(i));
  if (ref != nullptr) {
    return number_value(b, state_.numbers[ref->slot], dtype);
  }
  return b.constant(static_number(i), dtype);
}

std::optional<Number> LowerContext::literal(size_t i) {
  if (const auto* ref = std::get_if<NumberRef>(&signature_.arguments.at(i))) {
    const LoweredNumber& number = state_.numbers[ref->slot];
    return number.input ? std::nullopt : std::optional<Number>(number.value);
  }
  if (is_none(i)) {
    return std::nullopt;
  }
  return static_number(i);
}

std::optional<Dims> LowerContext::literals(size_t i) {
  const auto* refs = std::get_if<std::vector<NumberRef>>(&signature_.arguments.at(i));
  if (refs == nullptr) {
    return integers(i);
  }
  Dims result;
  for (NumberRef ref : *refs) {
    if (state_.numbers[ref.slot].input) {
      return std::nullopt;
    }
    result.push_back(state_.numbers[ref.slot].value.to_int());
  }
  return result;
}

Vals LowerContext::numbers(size_t i, DType dtype) {
  Vals result;
  for (NumberRef ref : get<std::vector<NumberRef>>(signature_, i, "a list of numbers")) {
    result.push_back(number_value(b, state_.numbers[ref.slot], dtype));
  }
  return result;
}

bool LowerContext::is_real_number(size_t i) const {
  const auto* ref = std::get_if<NumberRef>(&signature_.arguments.at(i));
  return ref != nullptr && state_.numbers[ref->slot].value.kind != Number::Kind::Complex;
}

Number LowerContext::static_number(size_t i) {
  const Attribute& argument = signature_.arguments.at(i);
  if (const auto* ref = std::get_if<NumberRef>(&argument)) {
    const LoweredNumber& number = state_.numbers[ref->slot];
    if (number.value.parameter >= 0 || number.value.operand >= 0) {
      throw Error("its program needs to know argument " + std::to_string(i) +
                  ", which is a number that each call of the pure function around gives anew");
    }
    *number.pinned = true;
    return number.value;
  }
  if (const auto* value = std::get_if<double>(&argument)) {
    return Number::of(*value);
  }
  if (const auto* value = std::get_if<int64_t>(&argument)) {
    return Number::of(*value);
  }
  if (const auto* value = std::get_if<bool>(&argument)) {
    return Number::of(*value);
  }
  wrong_argument(signature_, i, "a number");
}

int64_t LowerContext::integer(size_t i) const { return get<int64_t>(signature_, i, "an integer"); }

int64_t LowerContext::integer_or(size_t i, int64_t if_none) const {
  return is_none(i) ? if_none : integer(i);
}

bool LowerContext::flag(size_t i) const {
  return !is_none(i) && get<bool>(signature_, i, "a bool");
}

std::string LowerContext::text(size_t i) const {
  return get<std::string>(signature_, i, "a string");
}

std::string LowerContext::text_or(size_t i, std::string if_none) const {
  return is_none(i) ? if_none : text(i);
}

DType LowerContext::dtype_or(size_t i, DType if_none) const {
  return is_none(i) ? if_none : get<DType>(signature_, i, "a dtype");
}

Dims LowerContext::integers(size_t i) const {
  if (is_none(i)) {
    return {};
  }
  if (const auto* single = std::get_if<int64_t>(&signature_.arguments.at(i))) {
    return {*single};
  }
  const auto& list = get<std::vector<int64_t>>(signature_, i, "a list of integers");
  return Dims(list.begin(), list.end());
}

std::vector<bool> LowerContext::flags(size_t i) const {
  return is_none(i) ? std::vector<bool>{}
                    : get<std::vector<bool>>(signature_, i, "a list of bools");
}

double LowerContext::real(size_t i) { return static_number(i).to_double(); }

double LowerContext::real_or(size_t i, double if_none) { return is_none(i) ? if_none : real(i); }

int64_t LowerContext::dim(size_t i, int64_t rank) const { return wrap(integer(i), rank); }

Dims LowerContext::dims(size_t i, int64_t rank) const {
  Dims result = integers(i);
  if (result.empty()) {
    result.resize(rank);
    std::iota(result.begin(), result.end(), 0);
    return result;
  }
  for (int64_t& dim : result) {
    dim = wrap(dim, rank);
  }
  if (rank == 0) {
    result.clear();
  }
  return result;
}

void LowerContext::set(size_t i, Val value) {
  const OutputSpec& spec = output(i);
  if (!spec.defined) {
    return;
  }
  if (value.dims() != spec.sizes) {
    throw Error("lowering of " + signature_.op + ": result " + std::to_string(i) + " is " +
                stablehlo::type_string(value.type()) + ", expected " +
                stablehlo::type_string({spec.dtype, spec.sizes}));
  }
  value = b.convert(value, spec.dtype);
  bool in_order = true;
  for (size_t d = 0; d < spec.frame_to_sizes.size(); ++d) {
    in_order = in_order && spec.frame_to_sizes[d] == static_cast<int64_t>(d);
  }
  state_.results[i] = in_order ? value : b.transpose(value, spec.frame_to_sizes);
}

Val LowerContext::frame(size_t operand) {
  const Val frame = state_.frames.at(operand);
  return operand < state_.shapes.size() ? b.reshape(frame, state_.shapes[operand]) : frame;
}

Place LowerContext::place(size_t operand) const {
  Place place{signature_.operands.at(operand), {}};
  if (place.window.start >= 0) {
    const LoweredNumber& start = state_.numbers.at(place.window.start);
    place.start = start.input;
    place.window.offset = start.input ? 0 : start.value.integer;
  }
  return place;
}

void LowerContext::set_frame(size_t i, Val value) { state_.results.at(i) = value; }

Val LowerContext::random_bits(DType dtype, Ints dims) {
  const TensorType type{dtype, Dims(dims)};
  if (prefers_host()) {  // the same bits in a tenth of the time (host_ops/philox.h)
    Vals drawn =
        b.custom_call(kRandomBitsTarget, {state_.rng_state}, {type, state_.rng_state.type()}, "",
                      /*may_fail=*/false);
    state_.rng_state = drawn[1];
    return drawn[0];
  }
  auto [state, bits] = b.rng_bit_generator(state_.rng_state, type);
  state_.rng_state = state;
  return bits;
}

void LowerContext::call_host() { lower_host_call(*this, state_); }

}  // namespace torch_xla
