// Dimensions of elementwise work that are one to a program. A loop of XLA-CPU's over images of 14 x
// 14 pixels has 14 steps inside, which fill no vector; over their 196 pixels it takes a tenth of
// the time. What is fused should agree about this, so it is decided for all arrays of the same
// sizes in a graph at once.
#pragma once

#include "ir/graph.h"

#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace torch_xla {

// Inputs that are parameters of one dimension, and so is the result that is written over them. The
// update of a kernel of 3 x 3 pixels has loops of three steps otherwise; the memory is the same.
std::vector<bool> flat_inputs(const Graph& graph);

class Coalescing {
 public:
  explicit Coalescing(const Graph& graph);

  // An elementwise operation's signature with fewer dimensions; nullopt: it is better as it is.
  std::optional<Signature> of(const Signature& signature) const;

 private:
  void restrict(const Dims& sizes, const std::function<bool(size_t d)>& may_join);

  // May dimensions d and d + 1 of arrays of these sizes be one?
  std::map<Dims, std::vector<bool>> joined_;
};

}  // namespace torch_xla
