// Helpers shared by the forward and the backward call.
#pragma once

#include "pure/entry.h"

namespace torch_xla {

// A node that calls the signature's computation; operands are still to be added.
NodePtr make_call_node(const std::shared_ptr<OwnedSignature>& signature);

// The function and its gradient as one differentiable function: arguments, then incoming
// gradients, to one gradient per input that has one (pure/gradient.cpp).
Tensors differentiate(const EntryPtr& entry, const Tensors& arguments, const Tensors& tangents);

}  // namespace torch_xla
