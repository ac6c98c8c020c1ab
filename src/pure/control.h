// Branches and loops over traced functions, each one node, with gradients. Tensors are on one
// device; functions read closed-over tensors, draw random numbers and change closed-over tensors as
// pure functions do. Any thread; without locks and the GIL.
#pragma once

#include "pure/entry.h"

#include <functional>

namespace torch_xla {

// A function that control flow calls: its trace for arguments like these.
using Subgraph = std::function<EntryPtr(const Tensors& examples)>;

// A callee that control flow can use: its results are tensors of its own, even where the function
// returns what it was given, so that gradients pass through all of them. Of the first `carried`,
// those that are the argument in the same place stay that: a scan then knows that they never
// change.
std::shared_ptr<PureCallee> with_own_results(std::shared_ptr<PureCallee> callee,
                                             size_t carried = 0);

// The results of one of two functions of `operands`, as the predicate says.
Tensors run_cond(const at::Tensor& predicate, const Subgraph& on_true, const Subgraph& on_false,
                 const Tensors& operands);

// Condition and body get carried values, and what is the same each time. The body gives the next
// carried values, as long as the condition gives true. Where gradients are needed, the number of
// iterations is read first.
Tensors run_while(const Subgraph& condition, const Subgraph& body, const Tensors& init,
                  const Tensors& same);

struct ScanInputs {
  Tensors init;    // carried values
  Tensors stacks;  // of which an iteration gets a slice
  Tensors same;
  int64_t length = 0;
  bool reverse = false;  // from the last slice to the first
};

// The body gets what an iteration gets, and gives the next carried values and slices of the stacks
// that are returned after them.
Tensors run_scan(const Subgraph& body, const ScanInputs& inputs);

}  // namespace torch_xla
