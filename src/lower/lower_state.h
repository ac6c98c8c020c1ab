// The inside of a LowerContext: shared by context.cpp, host_call.cpp and graph_lowering.cpp only.
#pragma once

#include "lower/context.h"

#include <memory>

namespace torch_xla {

// A number while lowering: its literal value, or the program's input that carries it.
struct LoweredNumber {
  Number value;
  stablehlo::Val input;  // 0-d f64 or i64 (Complex: complex<f64>); empty for a literal
  bool* pinned = nullptr;
};

struct LowerContext::State {
  Vals frames;               // operands as they lie in memory
  std::vector<Dims> shapes;  // of these as they were recorded: values may have fewer dimensions
  std::vector<LoweredNumber> numbers;
  Vals results;  // frames, per output; random: the last is the state
  Val rng_state;
};

void lower_host_call(LowerContext& c, LowerContext::State& state);
// TORCH_XLA_CHECK_INDICES: whether the CPU's kernel is called because it refuses values (an index
// out of range, a division by zero) that a program would take.
bool is_checked(const Signature& signature);

// Lowers one node: picks its tier, returns its outputs' frames.
Vals lower_node(Builder& b, const Signature& signature, LowerContext::State state,
                HostCalls host_calls);

}  // namespace torch_xla
