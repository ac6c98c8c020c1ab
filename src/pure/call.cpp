// One call of a traced function: its node, its results, its place in the autograd graph.
#include "base/location.h"
#include "eager/mode.h"
#include "execution/sync.h"
#include "pure/backward.h"
#include "pure/entry.h"
#include "pure/record.h"
#include "record/generator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_xla {

namespace {

using Result = PureEntry::Result;

at::Tensor generator_state(const at::Generator& generator) {
  return xla_generator(generator).state_tensor();
}

// The value of one input, with the trace lock held.
Value input_value(const PureEntry& entry, const PureEntry::Input& input, const Tensors& arguments,
                  const Tensors& generator_states, size_t index) {
  if (input.argument >= 0) {
    return value_of(*arguments[input.argument].unsafeGetTensorImpl());
  }
  if (input.handle >= 0) {
    return value_of(*entry.handles[input.handle].tensor.unsafeGetTensorImpl());
  }
  if (input.generator.defined()) {
    return value_of_state(*generator_states[index].unsafeGetTensorImpl(), input.generator);
  }
  return value_of(*input.state);
}

const at::Tensor& input_tensor(const PureEntry& entry, const PureEntry::Input& input,
                               const Tensors& arguments, const Tensors& generator_states,
                               size_t index) {
  return input.argument >= 0 ? arguments[input.argument]
         : input.handle >= 0 ? entry.handles[input.handle].tensor
                             : generator_states[index];
}

at::Tensor view_like(const at::Tensor& base, const Result& result) {
  at::Tensor source = result.requires_grad ? base : base.detach();
  if (source.scalar_type() == result.dtype) {
    return at::as_strided(source, result.sizes, result.strides, result.offset);
  }
  if (result.requires_grad) {
    source = source.is_complex() ? at::view_as_real(source) : at::view_as_complex(source);
    return at::as_strided(source, result.sizes, result.strides, result.offset);
  }
  at::Tensor view =
      make_tensor(base.storage(), result.dtype, result.sizes, result.strides, result.offset);
  if (!base.is_inference()) {
    view.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
  }
  return view;
}

// The forward node with its operands; new values go to the inputs it writes and to `storages`.
NodePtr record_forward(const PureEntry& entry, const Tensors& arguments,
                       const Tensors& generator_states, const std::vector<c10::Storage>& storages,
                       SavedValues* saved) {
  NodePtr node = make_call_node(entry.forward);
  TraceLock lock;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    node->operands.push_back(input_value(entry, entry.inputs[i], arguments, generator_states, i));
  }
  for (const StatePtr& constant : entry.constants) {
    node->operands.push_back(constant->value());
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    state_of(storages[i])->set_value({node, entry.storages[i].output});
  }
  if (saved != nullptr) {
    saved->fill(entry, node);
  }
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const PureEntry::Input& input = entry.inputs[i];
    if (input.written >= 0) {
      assign_value(
          *input_tensor(entry, input, arguments, generator_states, i).unsafeGetTensorImpl(),
          {node, static_cast<uint32_t>(input.written)});
    }
  }
  return node;
}

Tensors record_call(const EntryPtr& pointer, const Tensors& arguments) {
  const PureEntry& entry = *pointer;
  Tensors generator_states;
  for (const PureEntry::Input& input : entry.inputs) {
    if (input.generator.defined()) {
      generator_states.resize(entry.inputs.size());
      generator_states[static_cast<size_t>(&input - entry.inputs.data())] =
          generator_state(input.generator);
    }
  }
  std::vector<c10::Storage> storages;
  storages.reserve(entry.storages.size());
  for (const PureEntry::ResultStorage& storage : entry.storages) {
    check_allocation(storage.nbytes, entry.device);
    storages.push_back(make_storage(storage.nbytes, entry.device));
  }
  c10::intrusive_ptr<PureBackward> backward;
  if (entry.gradient) {
    backward = make_backward(pointer, arguments);
  }
  record_forward(entry, arguments, generator_states, storages,
                 backward ? &backward->saved() : nullptr);
  bump_versions(entry, arguments);
  Tensors results = make_results(entry, storages, arguments);
  if (backward) {
    backward->saved().pack();
    for (int32_t tangent : entry.gradient->tangents) {
      connect(results[tangent], backward);
    }
  }
  return results;
}

}  // namespace

NodePtr make_call_node(const std::shared_ptr<const Signature>& signature) {
  NodePtr node = c10::make_intrusive<Node>();
  node->signature = signature.get();
  node->signature_owner = signature;
  node->location = last_location();
  node->operands.reserve(signature->operands.size());
  return node;
}

Tensors make_results(const PureEntry& entry, const std::vector<c10::Storage>& storages,
                     const Tensors& arguments) {
  Tensors results;
  results.reserve(entry.results.size());
  for (const Result& result : entry.results) {
    switch (result.kind) {
      case Result::Kind::New:
        results.push_back(make_tensor(storages[result.index], result.dtype, result.sizes,
                                      result.strides, result.offset));
        break;
      case Result::Kind::Argument:
        results.push_back(arguments[result.index]);
        break;
      case Result::Kind::Handle:
        results.push_back(entry.handles[result.index].tensor);
        break;
      case Result::Kind::ArgumentView:
        results.push_back(view_like(arguments[result.index], result));
        break;
      case Result::Kind::HandleView:
        results.push_back(view_like(entry.handles[result.index].tensor, result));
        break;
    }
  }
  return results;
}

const StatePtr& operand_state(const PureEntry& entry, const PureEntry::Input& input,
                              const Tensors& arguments) {
  return input.argument >= 0         ? state_of(arguments[input.argument])
         : input.handle >= 0         ? state_of(entry.handles[input.handle].tensor)
         : input.generator.defined() ? state_of(generator_state(input.generator))
                                     : input.state;
}

void bump_versions(const PureEntry& entry, const Tensors& arguments) {
  for (const PureEntry::Input& input : entry.inputs) {
    if (input.written < 0 || input.generator.defined()) {
      continue;
    }
    const at::Tensor& tensor =
        input.argument >= 0 ? arguments[input.argument] : entry.handles[input.handle].tensor;
    if (!tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

Tensors call_entry(const EntryPtr& pointer, const Tensors& arguments) {
  for (int32_t marked : pointer->marked) {
    arguments[marked].set_requires_grad(true);
  }
  if (!eager::enabled()) {
    return record_call(pointer, arguments);
  }
  if (std::optional<Tensors> results = launch_entry(pointer, arguments)) {
    return std::move(*results);
  }
  std::vector<StatePtr> operands;
  for (const PureEntry::Input& input : pointer->inputs) {
    operands.push_back(operand_state(*pointer, input, arguments));
  }
  sync_storages(operands);  // what is pending stays out of the call's program
  Tensors results = record_call(pointer, arguments);
  // Written operands and kept values are results of the same program.
  for (const at::Tensor& result : results) {
    operands.push_back(state_of(result));
  }
  sync_storages(operands, pointer->name);
  return results;
}

}  // namespace torch_xla
