// Operators of our own, which users reach under names of torch_xla (record/own_ops.cpp).
#include "lower/composite.h"
#include "lower/table.h"

namespace torch_xla {
namespace {

void set_all(LowerContext& c, const Vals& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    c.set(i, results[i]);
  }
}

// stablehlo(Tensor[] inputs, str text)
void lower_fragment(LowerContext& c) { set_all(c, c.b.call_fragment(c.text(1), c.tensors(0))); }

// optimization_barrier(Tensor[] tensors)
void lower_barrier(LowerContext& c) { set_all(c, c.b.optimization_barrier(c.tensors(0))); }

// mark_tensor(Tensor x, ...): the value itself. What the marks say is read from the graph
// (lower/composite.h).
void lower_mark(LowerContext& c) { c.set(0, c.tensor(0)); }

}  // namespace

void register_own(LowerTable& table) {
  table["torch_xla::stablehlo"] = {lower_fragment};
  table["torch_xla::optimization_barrier"] = {lower_barrier};
  table[kMarkTensor] = {lower_mark};
}

}  // namespace torch_xla
