// Gradients of a function while it is traced. Call inside the scope, without locks.
#pragma once

#include "pure/entry.h"

#include <torch/csrc/autograd/edge.h>

namespace torch_xla {

// Tensors of the caller's graph as fresh leaves with the same values, on storage objects of the
// trace's own: equal arguments stay equal, those that share a storage go on sharing.
Tensors as_leaves(const Tensors& arguments);

// Runs autograd from `results` (which must require gradients) to `inputs`. Undefined where a
// result does not depend on an input. Hooks on the inputs are left to the call's own backward.
Tensors gradients_of(const Tensors& results, const Tensors& tangents, const Tensors& inputs,
                     bool create_graph);

}  // namespace torch_xla
