// One call of a traced function: its node, its results, its place in the autograd graph.
#include "base/location.h"
#include "eager/mode.h"
#include "execution/sync.h"
#include "pure/backward.h"
#include "pure/entry.h"
#include "pure/record.h"
#include "record/generator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

namespace torch_xla {

namespace {

using Result = PureEntry::Result;

at::Tensor generator_state(const at::Generator& generator) {
  return xla_generator(generator).state_tensor();
}

const at::Tensor& input_tensor(const PureEntry& entry, size_t index, const Tensors& arguments,
                               const Tensors& generator_states) {
  const PureEntry::Input& input = entry.inputs[index];
  return input.argument >= 0 ? arguments[input.argument]
         : input.handle >= 0 ? entry.handles[input.handle].place.find(arguments)
                             : generator_states[index];
}

at::Tensor with_lazy_bits(at::Tensor view, const Result& result) {
  if (view.is_conj() != result.conj) {
    view = at::_conj(view);
  }
  return view.is_neg() == result.neg ? view : at::_neg_view(view);
}

void set_leaf(at::Tensor& tensor, const Result& result) {
  if (result.leaf) {
    tensor.set_requires_grad(true);
  }
}

at::Tensor view_like(const at::Tensor& base, const Result& result) {
  const bool differentiable = result.requires_grad && !result.leaf;
  at::Tensor source = differentiable ? base : base.detach();
  if (source.scalar_type() != result.dtype && differentiable) {
    source = source.is_complex() ? at::view_as_real(source) : at::view_as_complex(source);
  }
  if (source.scalar_type() == result.dtype) {
    for (const PureEntry::Window& window : result.through) {
      source = at::as_strided(source, window.sizes, window.strides, window.offset);
    }
    return with_lazy_bits(at::as_strided(source, result.sizes, result.strides, result.offset),
                          result);
  }
  at::Tensor view =
      make_tensor(base.storage(), result.dtype, result.sizes, result.strides, result.offset);
  if (!base.is_inference()) {
    view.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
  }
  return with_lazy_bits(std::move(view), result);
}

// The forward node with its operands; new values go to the inputs it writes and to `storages`.
NodePtr record_forward(const PureEntry& entry, const Tensors& arguments, const CallNumbers& numbers,
                       const Tensors& generator_states, const std::vector<c10::Storage>& storages,
                       SavedValues* saved) {
  NodePtr node = make_call_node(entry.forward, numbers);
  TraceLock lock;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    node->operands.push_back(input_value(entry, i, arguments, generator_states));
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
    if (const int32_t output = entry.inputs[i].written; output >= 0) {
      assign_input(entry, i, arguments, generator_states, {node, static_cast<uint32_t>(output)});
    }
  }
  return node;
}

std::vector<c10::Storage> result_storages(const PureEntry& entry) {
  std::vector<c10::Storage> storages;
  storages.reserve(entry.storages.size());
  for (const PureEntry::ResultStorage& storage : entry.storages) {
    check_allocation(storage.nbytes, entry.device);
    storages.push_back(make_storage(storage.nbytes, entry.device));
  }
  return storages;
}

Tensors record_call(const EntryPtr& pointer, const Tensors& arguments, const CallNumbers& numbers) {
  const PureEntry& entry = *pointer;
  const Tensors states = generator_states(entry);
  const std::vector<c10::Storage> storages = result_storages(entry);
  c10::intrusive_ptr<PureBackward> backward;
  if (entry.gradient) {
    backward = make_backward(pointer, arguments, numbers);
  }
  record_forward(entry, arguments, numbers, states, storages,
                 backward ? &backward->saved() : nullptr);
  bump_versions(entry, arguments);
  Tensors results = make_results(entry, storages, arguments);
  if (backward) {
    backward->saved().pack();
    backward->lead_to_leaves(results);
    for (int32_t tangent : entry.gradient->tangents) {
      connect(results[tangent], backward);
    }
    for (const PureEntry::Refused& refused : entry.gradient->refused) {
      connect_to_error(results[refused.result], refused.reason, *backward);
    }
  }
  return results;
}

}  // namespace

Tensors generator_states(const PureEntry& entry) {
  Tensors states;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    if (entry.inputs[i].generator.defined()) {
      states.resize(entry.inputs.size());
      states[i] = generator_state(entry.inputs[i].generator);
    }
  }
  return states;
}

Value input_value(const PureEntry& entry, size_t index, const Tensors& arguments,
                  const Tensors& generator_states) {
  const PureEntry::Input& input = entry.inputs[index];
  if (input.argument >= 0 || input.handle >= 0) {
    return value_of(*input_tensor(entry, index, arguments, generator_states).unsafeGetTensorImpl());
  }
  if (input.generator.defined()) {
    return value_of_state(*generator_states[index].unsafeGetTensorImpl(), input.generator);
  }
  return value_of(*input.state);
}

void assign_input(const PureEntry& entry, size_t index, const Tensors& arguments,
                  const Tensors& generator_states, Value value) {
  assign_value(*input_tensor(entry, index, arguments, generator_states).unsafeGetTensorImpl(),
               std::move(value));
}

const TensorType& saved_type(const PureEntry& entry, const PureEntry::Saved& saved) {
  return saved.input >= 0 ? entry.forward->computation->graph.inputs[saved.input]->type(0)
                          : entry.forward->outputs[saved.output].frame;
}

Tensors call_keeping(const PureEntry& entry, const Tensors& arguments, Tensors& kept) {
  const Tensors states = generator_states(entry);
  const std::vector<c10::Storage> storages = result_storages(entry);
  const std::vector<PureEntry::Saved> none;
  const auto& all_saved = entry.gradient ? entry.gradient->saved : none;
  kept.clear();
  for (const PureEntry::Saved& saved : all_saved) {
    const TensorType& type = saved_type(entry, saved);
    kept.push_back(empty_tensor(type.dtype, type.dims, row_major_strides(type.dims), entry.device));
  }
  const NodePtr node = record_forward(entry, arguments, {}, states, storages, nullptr);
  {
    TraceLock lock;
    for (size_t i = 0; i < kept.size(); ++i) {
      const PureEntry::Saved& saved = all_saved[i];
      assign_value(*kept[i].unsafeGetTensorImpl(),
                   saved.input >= 0 ? node->operands[saved.input] : Value{node, saved.output});
    }
  }
  bump_versions(entry, arguments);
  return make_results(entry, storages, arguments);
}

NodePtr make_call_node(const std::shared_ptr<const Signature>& signature,
                       const CallNumbers& numbers) {
  TORCH_INTERNAL_ASSERT(numbers.size() == signature->number_kinds.size());
  NodePtr node = new_operation();
  node->signature = signature;
  node->location = last_location();
  node->operands.reserve(signature->operands.size());
  for (double number : numbers) {
    node->numbers.push_back(Number::of(number));
  }
  return node;
}

namespace {

// Under a base that looks as if it was written since.
at::Tensor spoilt_part(const at::Tensor& tensor) {
  at::AutoGradMode with_gradients(true);
  at::Tensor part = at::alias(tensor.detach().set_requires_grad(true));
  auto* meta = torch::autograd::impl::get_view_autograd_meta(part);
  meta->set_creation_meta(torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
  meta->set_attr_version(meta->get_attr_version() - 1);
  return part;
}

at::Tensor new_result(const Result& result, const c10::Storage& storage) {
  if (!storage) {
    return {};
  }
  at::Tensor tensor =
      make_tensor(storage, result.dtype, result.sizes, result.strides, result.offset);
  tensor._set_conj(result.conj);
  tensor._set_neg(result.neg);
  return tensor;
}

at::Tensor make_result(const PureEntry& entry, const Result& result,
                       const std::vector<c10::Storage>& storages, const Tensors& arguments) {
  auto handle = [&] { return entry.handles[result.index].place.find(arguments); };
  switch (result.kind) {
    case Result::Kind::Argument:
      return arguments[result.index];
    case Result::Kind::Handle:
      return handle();
    case Result::Kind::New:
      return new_result(result, storages[result.index]);
    case Result::Kind::ArgumentView:
      return view_like(arguments[result.index], result);
    case Result::Kind::HandleView:
      return view_like(handle(), result);
  }
  return {};
}

}  // namespace

Tensors make_results(const PureEntry& entry, const std::vector<c10::Storage>& storages,
                     const Tensors& arguments) {
  Tensors results;
  results.reserve(entry.results.size());
  for (const Result& result : entry.results) {
    if (result.same >= 0) {
      results.push_back(results[result.same]);
      continue;
    }
    results.push_back(make_result(entry, result, storages, arguments));
    if (result.kind == Result::Kind::Argument || result.kind == Result::Kind::Handle ||
        !results.back().defined()) {
      continue;
    }
    if (result.spoilt) {
      results.back() = spoilt_part(results.back());
    } else {
      set_leaf(results.back(), result);
    }
  }
  return results;
}

const StatePtr& operand_state(const PureEntry& entry, const PureEntry::Input& input,
                              const Tensors& arguments) {
  return input.argument >= 0         ? state_of(arguments[input.argument])
         : input.handle >= 0         ? state_of(entry.handles[input.handle].place.find(arguments))
         : input.generator.defined() ? state_of(generator_state(input.generator))
                                     : input.state;
}

void bump_versions(const PureEntry& entry, const Tensors& arguments) {
  for (const PureEntry::Input& input : entry.inputs) {
    if (input.written < 0 || input.generator.defined()) {
      continue;
    }
    const at::Tensor& tensor = input.argument >= 0
                                   ? arguments[input.argument]
                                   : entry.handles[input.handle].place.find(arguments);
    if (!tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

void write_gradients(const PureEntry& entry, const Tensors& arguments, Tensors& results) {
  Tensors made_outside, gradients;
  for (const PureEntry::GradientWrite& write : entry.gradient_writes) {
    const at::Tensor& leaf = write.leaf.owner(arguments);
    if (!leaf.is_leaf()) {
      if (write.result >= 0 && results[write.result].defined()) {
        made_outside.push_back(leaf);
        gradients.push_back(std::move(results[write.result]));
      }
    } else if (write.result < 0) {
      leaf.mutable_grad().reset();
    } else if (results[write.result].defined()) {
      leaf.mutable_grad() = std::move(results[write.result]);
    }
  }
  results.resize(entry.returned);
  if (!made_outside.empty()) {
    torch::autograd::backward(made_outside, gradients);
  }
}

Tensors call_entry(const EntryPtr& pointer, const Tensors& arguments, const CallNumbers& numbers) {
  for (int32_t marked : pointer->marked) {
    arguments[marked].set_requires_grad(true);
  }
  const bool eager = eager::enabled();
  if (eager || pointer->trains) {
    const Pending pending = eager ? Pending::RunsBefore : Pending::Declines;
    if (std::optional<Tensors> results = launch_entry(pointer, arguments, numbers, pending)) {
      return std::move(*results);
    }
  }
  if (!eager) {
    Tensors results = record_call(pointer, arguments, numbers);
    write_gradients(*pointer, arguments, results);
    return results;
  }
  std::vector<StatePtr> operands;
  for (const PureEntry::Input& input : pointer->inputs) {
    operands.push_back(operand_state(*pointer, input, arguments));
  }
  sync_storages(operands);  // what is pending stays out of the call's program
  Tensors results = record_call(pointer, arguments, numbers);
  // Written operands and kept values are results of the same program.
  for (const at::Tensor& result : results) {
    operands.push_back(state_of(result));
  }
  sync_storages(operands, pointer->name);
  write_gradients(*pointer, arguments, results);
  return results;
}

}  // namespace torch_xla
