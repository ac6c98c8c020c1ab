// Helpers shared by the forward and the backward call.
#pragma once

#include "pure/entry.h"

namespace torch_xla {

// A node that calls the signature's computation; operands are still to be added.
NodePtr make_call_node(const std::shared_ptr<const Signature>& signature);

// The storage that an input stands for.
const StatePtr& operand_state(const PureEntry& entry, const PureEntry::Input& input,
                              const Tensors& arguments);

// The tensors that the call returns; `storages` are those of the entry, with their new values.
Tensors make_results(const PureEntry& entry, const std::vector<c10::Storage>& storages,
                     const Tensors& arguments);

// Tells autograd which tensors the call has written.
void bump_versions(const PureEntry& entry, const Tensors& arguments);

// The function and its gradient as one differentiable function: arguments, then incoming
// gradients, to one gradient per input that has one (pure/gradient.cpp).
Tensors differentiate(const EntryPtr& entry, const Tensors& arguments, const Tensors& tangents);

}  // namespace torch_xla
