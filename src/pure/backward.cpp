#include "pure/backward.h"

#include "base/error.h"
#include "base/location.h"
#include "eager/mode.h"
#include "execution/sync.h"
#include "pure/record.h"
#include "record/generator.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

namespace torch_xla {

namespace {

const at::Tensor& tensor_of(const PureEntry& entry, const PureEntry::Input& input,
                            const Tensors& arguments) {
  return input.argument >= 0 ? arguments[input.argument]
                             : entry.handles[input.handle].place.find(arguments);
}

StatePtr new_state(int device) {
  return std::make_shared<StorageState>(device, current_scope_ptr());
}

[[noreturn]] void throw_modified(uint32_t now, uint32_t expected) {
  throw Error(
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: it is at version " +
      std::to_string(now) + "; expected version " + std::to_string(expected) +
      " instead. It was passed to an assume_pure function, whose gradient needs its former value");
}

// The incoming gradient as the backward computation expects it: dense, in the result's layout.
at::Tensor as_traced(const at::Tensor& gradient, const PureEntry::Result& result, int device) {
  auto options = at::TensorOptions().dtype(result.dtype).device(device_of(device));
  if (!gradient.defined()) {
    return at::zeros(result.sizes, options);
  }
  auto bytes = static_cast<size_t>(gradient.numel()) * gradient.element_size();
  if (gradient.scalar_type() == result.dtype && gradient.is_contiguous() &&
      gradient.storage_offset() == 0 && gradient.storage().nbytes() == bytes &&
      !gradient.is_conj() && !gradient.is_neg()) {
    return gradient;
  }
  at::Tensor dense = at::empty_strided(result.sizes, row_major_strides(result.sizes), options);
  return dense.copy_(gradient);
}

// One node; a gradient per GradientInput that is wanted.
Tensors record_backward(const PureEntry& entry, const std::vector<StatePtr>& saved,
                        const Tensors& tangents, const CallNumbers& numbers,
                        c10::function_ref<bool(size_t)> wanted) {
  const PureEntry::Gradient& gradient = *entry.gradient;
  Tensors results(gradient.inputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const PureEntry::GradientInput& input = gradient.inputs[i];
    if (input.output >= 0 && wanted(i)) {
      results[i] = empty_tensor(input.dtype, input.sizes, input.strides, entry.device);
    }
  }
  current_location();
  NodePtr node = make_call_node(gradient.backward, numbers);
  TraceLock lock;
  for (const StatePtr& state : saved) {
    node->operands.push_back(value_of(*state));
  }
  for (const StatePtr& constant : entry.constants) {
    node->operands.push_back(constant->value());
  }
  for (const at::Tensor& tangent : tangents) {
    node->operands.push_back(value_of(*tangent.unsafeGetTensorImpl()));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined()) {
      state_of(results[i])->set_value({node, static_cast<uint32_t>(gradient.inputs[i].output)});
    }
  }
  return results;
}

}  // namespace

SavedValues::SavedValues(const PureEntry& entry, const Tensors& arguments)
    : former_(entry.inputs.size()), hooks_(at::SavedTensorDefaultHooks::get_hooks().has_value()) {
  items_.reserve(entry.gradient->saved.size());
  for (const PureEntry::Saved& saved : entry.gradient->saved) {
    Item item;
    const PureEntry::Input* input = saved.input >= 0 ? &entry.inputs[saved.input] : nullptr;
    if (input != nullptr && input->written < 0 && !input->generator.defined()) {
      const at::Tensor& tensor = tensor_of(entry, *input, arguments);
      item.state = state_of(tensor);
      item.checked = !tensor.is_inference();
      if (item.checked) {
        item.version = tensor.unsafeGetTensorImpl()->version_counter();
        item.expected = item.version.current_version();
      }
      item.tensor = hooks_ ? tensor : at::Tensor();
    } else if (hooks_) {
      const TensorType& type = saved_type(entry, saved);
      item.tensor = empty_tensor(type.dtype, type.dims, row_major_strides(type.dims), entry.device);
      item.state = state_of(item.tensor);
    } else {
      item.state = new_state(entry.device);
    }
    items_.push_back(std::move(item));
  }
  for (size_t i = 0; i < former_.size(); ++i) {
    former_[i] = entry.inputs[i].written >= 0 ? new_state(entry.device) : nullptr;
  }
}

void SavedValues::fill(const PureEntry& entry, const NodePtr& forward) {
  for (size_t i = 0; i < items_.size(); ++i) {
    const PureEntry::Saved& saved = entry.gradient->saved[i];
    if (saved.input < 0) {
      items_[i].state->set_value({forward, saved.output});
    } else if (!items_[i].state->value()) {
      items_[i].state->set_value(forward->operands[saved.input]);
    }
  }
  for (size_t i = 0; i < former_.size(); ++i) {
    if (former_[i]) {
      former_[i]->set_value(forward->operands[i]);
    }
  }
}

void SavedValues::pack() {
  if (!hooks_) {
    return;
  }
  for (Item& item : items_) {
    packed_.emplace_back(item.tensor, /*is_output=*/false);
  }
  items_.clear();
}

std::vector<StatePtr> SavedValues::unpack(const PureEntry& entry) {
  std::vector<StatePtr> states;
  for (torch::autograd::SavedVariable& variable : packed_) {
    at::Tensor tensor = variable.unpack();
    TORCH_CHECK(is_xla(tensor) && tensor.device().index() == entry.device,
                "a saved-tensor hook returned a tensor on ", tensor.device(),
                " for one saved on xla:", entry.device);
    states.push_back(state_of(tensor));
  }
  for (const Item& item : items_) {
    if (item.checked && item.version.current_version() != item.expected) {
      throw_modified(item.version.current_version(), item.expected);
    }
    states.push_back(item.state);
  }
  return states;
}

PureBackward::PureBackward(EntryPtr entry, const Tensors& arguments, const CallNumbers& numbers)
    : entry_(std::move(entry)),
      arguments_(arguments),
      numbers_(numbers),
      saved_(std::make_unique<SavedValues>(*entry_, arguments)) {}

void PureBackward::lead_to_leaves(const Tensors& results) {
  for (size_t i = 0; i < entry_->gradient->inputs.size(); ++i) {
    if (const int32_t leaf = entry_->gradient->inputs[i].result; leaf >= 0) {
      set_next_edge(i, torch::autograd::impl::gradient_edge(results[leaf]));
    }
  }
}

std::string PureBackward::name() const { return "PureBackward(" + entry_->name + ")"; }

void PureBackward::release_variables() {
  std::unique_ptr<SavedValues> saved;
  Tensors arguments;
  std::lock_guard<std::mutex> lock(mutex_);
  saved.swap(saved_);
  arguments.swap(arguments_);
}

Tensors PureBackward::run(const Tensors& tangents) {
  std::vector<StatePtr> saved = saved_->unpack(*entry_);
  if (!eager::enabled()) {
    return record(saved, tangents);
  }
  std::vector<StatePtr> operands = saved;
  for (const at::Tensor& tangent : tangents) {
    operands.push_back(state_of(tangent));
  }
  sync_storages(operands);
  Tensors results = record(saved, tangents);
  std::vector<StatePtr> computed;
  for (const at::Tensor& result : results) {
    if (result.defined()) {
      computed.push_back(state_of(result));
    }
  }
  sync_storages(computed, entry_->name + "/backward");
  return results;
}

Tensors PureBackward::record(const std::vector<StatePtr>& saved, const Tensors& tangents) {
  return record_backward(*entry_, saved, tangents, numbers_,
                         [&](size_t i) { return task_should_compute_output(i); });
}

Tensors call_backward(const PureEntry& entry, const Tensors& kept, const Tensors& tangents) {
  std::vector<StatePtr> saved;
  for (const at::Tensor& tensor : kept) {
    saved.push_back(state_of(tensor));
  }
  return record_backward(entry, saved, tangents, {}, [](size_t) { return true; });
}

namespace {

// Puts inputs that the function writes back to what they were at the call, for as long as the
// function is run again: random numbers repeat, and effects happen once.
class FormerValues {
 public:
  FormerValues(const PureEntry& entry, const Tensors& arguments,
               const std::vector<StatePtr>& former) {
    for (size_t i = 0; i < former.size(); ++i) {
      const PureEntry::Input& input = entry.inputs[i];
      if (!former[i]) {
        continue;
      }
      TORCH_CHECK(input.argument < 0, "the pure function ", entry.name,
                  " changes an argument in place and cannot be differentiated twice: clone the "
                  "argument inside the function");
      tensors_.push_back(input.generator.defined()
                             ? xla_generator(input.generator).state_tensor()
                             : entry.handles[input.handle].place.find(arguments));
      now_.push_back(new_state(entry.device));
      TraceLock lock;
      c10::TensorImpl& impl = *tensors_.back().unsafeGetTensorImpl();
      now_.back()->set_value(value_of(impl));
      assign_value(impl, former[i]->value());
    }
  }
  ~FormerValues() {
    TraceLock lock;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      assign_value(*tensors_[i].unsafeGetTensorImpl(), now_[i]->value());
    }
  }
  FormerValues(const FormerValues&) = delete;
  FormerValues& operator=(const FormerValues&) = delete;

 private:
  Tensors tensors_;
  std::vector<StatePtr> now_;
};

}  // namespace

Tensors PureBackward::differentiate(const Tensors& tangents) {
  FormerValues then(*entry_, arguments_, saved_->former());
  return torch_xla::differentiate(entry_, arguments_, tangents);
}

torch::autograd::variable_list PureBackward::apply(torch::autograd::variable_list&& gradients) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(saved_ != nullptr,
              "Trying to backward through the graph a second time (or directly access saved "
              "tensors after they have already been freed). Specify retain_graph=True if you need "
              "to backward through the graph a second time: the values kept by ",
              name(), " were freed.");
  Tensors tangents;
  for (size_t i = 0; i < gradients.size(); ++i) {
    tangents.push_back(
        as_traced(gradients[i], entry_->results[entry_->gradient->tangents[i]], entry_->device));
  }
  return at::GradMode::is_enabled() ? differentiate(tangents) : run(tangents);
}

c10::intrusive_ptr<PureBackward> make_backward(const EntryPtr& entry, const Tensors& arguments,
                                               const CallNumbers& numbers) {
  auto node = c10::make_intrusive<PureBackward>(entry, arguments, numbers);
  torch::autograd::edge_list edges;
  edges.reserve(entry->gradient->inputs.size());
  for (const PureEntry::GradientInput& input : entry->gradient->inputs) {
    if (input.result >= 0) {
      edges.emplace_back();  // until the results are there
      continue;
    }
    edges.push_back(torch::autograd::impl::gradient_edge(
        input.argument >= 0 ? arguments[input.argument]
                            : entry->handles[input.handle].place.find(arguments)));
  }
  node->set_next_edges(std::move(edges));
  return node;
}

void connect(const at::Tensor& result, const c10::intrusive_ptr<PureBackward>& node) {
  torch::autograd::set_history(result, node);
}

void connect_to_error(const at::Tensor& result, const std::string& reason,
                      const PureBackward& node) {
  torch::autograd::edge_list edges = node.next_edges();
  torch::autograd::set_history(
      result, c10::make_intrusive<torch::autograd::Error>(reason, std::move(edges)));
}

}  // namespace torch_xla
