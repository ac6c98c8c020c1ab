// A traced function and its gradient, one graph -> two: what the forward computes and keeps, and
// what the backward computes from it. Values that are cheap to compute again are not kept.
#pragma once

#include "ir/graph.h"

namespace torch_xla {

enum class InputRole : uint8_t {
  Primal,    // an argument of the function: both halves may use it
  Tangent,   // an incoming gradient
  Constant,  // a buffer the trace found or made: both halves may use it
};

struct Partition {
  Graph forward;   // inputs: primals and constants, as in the joint graph
  Graph backward;  // inputs: `saved`, then constants, then tangents
  // What the forward keeps for the backward, as values of the joint graph: inputs as they are,
  // the others being outputs of `forward`.
  std::vector<GraphValue> saved;
  std::vector<int32_t> saved_outputs;  // parallel: which output, or -1 for an input
  std::vector<int32_t> constants;      // joint inputs with that role
  std::vector<int32_t> tangents;
};

// The first `forward_outputs` of the joint graph's outputs are the function's; the rest are
// gradients. `roles`: one per joint input.
Partition partition(const Graph& joint, const std::vector<InputRole>& roles,
                    size_t forward_outputs);

// The part of `graph` that computes `outputs`, over the given `inputs` (values of `graph`), with
// its settings. Not hashed.
Graph extract(const Graph& graph, const std::vector<GraphValue>& inputs,
              const std::vector<GraphValue>& outputs);

}  // namespace torch_xla
