// Helpers shared by the forward and the backward call.
#pragma once

#include "pure/entry.h"

namespace torch_xla {

// A node that calls the signature's computation; operands are still to be added.
NodePtr make_call_node(const std::shared_ptr<const Signature>& signature,
                       const CallNumbers& numbers = {});

// The states of the generators among an entry's inputs, at the inputs' places.
Tensors generator_states(const PureEntry& entry);

// The value of input `index`.
Value input_value(const PureEntry& entry, size_t index, const Tensors& arguments,
                  const Tensors& generator_states) REQUIRES(trace_mutex);
// Gives a written input its new value.
void assign_input(const PureEntry& entry, size_t index, const Tensors& arguments,
                  const Tensors& generator_states, Value value) REQUIRES(trace_mutex);

// The frame of a value that the gradient saves.
const TensorType& saved_type(const PureEntry& entry, const PureEntry::Saved& saved);

// The forward's call by itself; `kept` becomes the values that the gradient saves, each the whole
// of a storage of its own.
Tensors call_keeping(const PureEntry& entry, const Tensors& arguments, Tensors& kept);
// The gradient's call on such values: a gradient per GradientInput, undefined where there is none.
Tensors call_backward(const PureEntry& entry, const Tensors& kept, const Tensors& tangents);

// The storage that an input stands for.
const StatePtr& operand_state(const PureEntry& entry, const PureEntry::Input& input,
                              const Tensors& arguments);

// The tensors that the call returns; `storages` are those of the entry, with their new values. One
// that is missing leaves its results undefined.
Tensors make_results(const PureEntry& entry, const std::vector<c10::Storage>& storages,
                     const Tensors& arguments);

// Leaves get the gradients that the call has made, which follow what it returns; an undefined one
// leaves the leaf's own in place.
void write_gradients(const PureEntry& entry, const Tensors& arguments, Tensors& results);

// Tells autograd which tensors the call has written.
void bump_versions(const PureEntry& entry, const Tensors& arguments);

// The function and its gradient as one differentiable function: arguments, then incoming
// gradients, to one gradient per input that has one (pure/gradient.cpp).
Tensors differentiate(const EntryPtr& entry, const Tensors& arguments, const Tensors& tangents);

}  // namespace torch_xla
