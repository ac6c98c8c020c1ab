// What a lowering function sees: the arguments of one node, by position in the operator's schema
// (functional form), and a builder to append StableHLO to. Include this (and helpers of this
// folder), never ATen: a lowering file must compile in seconds.
//
//   void lower_add(LowerContext& c) {          // add.Tensor(Tensor self, Tensor other, *, Scalar
//   alpha)
//     DType dtype = c.output(0).dtype;
//     Val other = c.tensor_as(1, dtype);
//     ...
//     c.set(0, c.b.add(c.tensor_as(0, dtype), other));
//   }
#pragma once

#include "ir/signature.h"
#include "lower/window.h"
#include "stablehlo/builder.h"

#include <optional>

namespace torch_xla {

using stablehlo::Builder;
using stablehlo::Ints;
using stablehlo::Region;
using stablehlo::Val;
using stablehlo::Vals;

class LowerContext {
 public:
  Builder& b;

  // ---- arguments -----------------------------------------------------------------------------
  const Signature& signature() const { return signature_; }
  size_t argument_count() const { return signature_.arguments.size(); }
  bool is_none(size_t i) const;

  // Tensor argument as a dense value of the user's sizes. A 0-d CPU tensor comes as a 0-d value
  // of a default dtype (i64, f64, bool, complex128).
  Val tensor(size_t i);
  Val tensor_as(size_t i, DType dtype);                     // converted to `dtype`
  std::optional<Val> maybe_tensor(size_t i);                // nullopt for None
  Vals tensors(size_t i);                                   // Tensor[]
  std::vector<std::optional<Val>> maybe_tensors(size_t i);  // Tensor?[]

  const Window* window(size_t i) const;  // how it lies in memory; null for a number or None

  // Scalar or float argument as a 0-d value: a literal, or an input of the program once the number
  // has been seen to change.
  Val number(size_t i, DType dtype);
  // Its value while it is a literal; nullopt once it is an input. Lowerings may use it to choose
  // cheaper code, as long as the general code exists.
  std::optional<Number> literal(size_t i);
  // Of a list of integers, which may be numbers.
  std::optional<Dims> literals(size_t i);
  Vals numbers(size_t i, DType dtype);
  // Whether it is a number without an imaginary part, whatever its value.
  bool is_real_number(size_t i) const;
  // Its value, always: pins the number, so that each new value is a new program.
  Number static_number(size_t i);

  int64_t integer(size_t i) const;
  int64_t integer_or(size_t i, int64_t if_none) const;
  bool flag(size_t i) const;
  std::string text(size_t i) const;
  std::string text_or(size_t i, std::string if_none) const;
  DType dtype_or(size_t i, DType if_none) const;
  Dims integers(size_t i) const;  // int[]; None gives {}
  std::vector<bool> flags(size_t i) const;
  double real(size_t i);  // static_number as double
  double real_or(size_t i, double if_none);

  // Dimension argument(s), negative ones wrapped for `rank`; an empty or None list means all.
  int64_t dim(size_t i, int64_t rank) const;
  Dims dims(size_t i, int64_t rank) const;

  // ---- results -------------------------------------------------------------------------------
  size_t output_count() const { return signature_.outputs.size() - (signature_.random ? 1 : 0); }
  const OutputSpec& output(size_t i) const { return signature_.outputs[i]; }
  // Result `i` in the user's sizes and dtype; checked against output(i).
  void set(size_t i, Val value);

  // Operand and result as they lie in memory, for operations on frames (lower/internal.cpp).
  Val frame(size_t operand);
  Place place(size_t operand) const;  // its window there
  Val read(size_t operand) { return read_window(b, frame(operand), place(operand)); }
  void set_frame(size_t i, Val value);

  // ---- random numbers ----------------------------------------------------------------------
  // `dims` uniformly distributed 32- or 64-bit integers (DType::UInt32, UInt64); advances the
  // generator's state. Only for signatures marked random.
  Val random_bits(DType dtype, Ints dims);

  HostCalls host_calls() const { return host_calls_; }
  // May an ATen kernel that was measured faster be called from the program?
  bool prefers_host() const { return host_calls_ == HostCalls::IfFaster; }
  // Runs this node as a host call after all (lower/host_call.cpp). Only where prefers_host().
  void call_host();

  // Implementation side: see lower/graph_lowering.cpp.
  struct State;
  LowerContext(Builder& builder, const Signature& signature, State& state, HostCalls host_calls)
      : b(builder), signature_(signature), state_(state), host_calls_(host_calls) {}

 private:
  const Signature& signature_;
  State& state_;
  HostCalls host_calls_;
};

}  // namespace torch_xla
