#include "pure/wire.h"

#include "base/hasher.h"
#include "graph/collect.h"
#include "graph/partition.h"
#include "pure/key.h"
#include "values/internal_ops.h"

#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <bit>

namespace torch_xla {

namespace {

using Kind = PureEntry::Result::Kind;

uint64_t hash_of(Graph& graph) {
  finish_graph(graph);
  Hasher hasher;
  hasher.add(graph.hash);
  hasher.add(graph.hash_high);
  for (const Number& number : graph.numbers) {
    hasher.add(static_cast<uint64_t>(number.kind));
    hasher.add(static_cast<uint64_t>(number.parameter));
    hasher.add(static_cast<uint64_t>(number.operand));
    if (number.parameter >= 0 || number.operand >= 0) {
      continue;  // each call says what it is
    }
    hasher.add(static_cast<uint64_t>(number.integer));
    hasher.add(std::bit_cast<uint64_t>(number.floating.real()));
    hasher.add(std::bit_cast<uint64_t>(number.floating.imag()));
  }
  return hasher.low();
}

OutputSpec frame_spec(const TensorType& type) {
  return make_output_spec(type.dtype, type.dims, row_major_strides(type.dims));
}

// The signature of a node that calls the graph, with so many numbers.
std::shared_ptr<const Signature> call_of(const std::string& name, Graph graph, size_t numbers) {
  std::vector<TensorType> operands, outputs;
  for (const NodePtr& input : graph.inputs) {
    operands.push_back(input->type(0));
  }
  for (GraphValue output : graph.outputs) {
    outputs.push_back(graph.type(output));
  }
  return call_signature("pure::" + name, make_computation(name, std::move(graph)), operands,
                        outputs, numbers);
}

// Puts the graph's inputs into this order; those it does not use become inputs too.
void order_inputs(Graph& graph, const std::vector<NodePtr>& wanted) {
  std::unordered_map<const Node*, uint32_t> position;
  for (size_t i = 0; i < wanted.size(); ++i) {
    position[wanted[i].get()] = static_cast<uint32_t>(i);
  }
  std::vector<uint32_t> moved;
  for (const NodePtr& input : graph.inputs) {
    moved.push_back(position.at(input.get()));
  }
  for (auto* values : {&graph.operands, &graph.outputs}) {
    for (GraphValue& value : *values) {
      if (value.producer < 0) {
        value.index = moved[value.index];
      }
    }
  }
  graph.inputs = wanted;
}

// Which of the results before this one is the same tensor; -1: none.
int32_t earlier_result(const Tensors& results, size_t index) {
  for (size_t i = 0; i < index; ++i) {
    if (results[i].is_same(results[index])) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

// What as_strided() was given on the way to a view, which may show more of the storage. Without the
// trace lock.
std::vector<PureEntry::Window> windows_on_the_way(const at::Tensor& view) {
  std::vector<PureEntry::Window> windows;
  if (!view.is_view()) {
    return windows;
  }
  const torch::autograd::Node* base = view._base().grad_fn().get();
  const torch::autograd::Node* function = view.grad_fn().get();
  while (function != nullptr && function != base && function->num_outputs() == 1) {
    using AsStrided = torch::autograd::generated::AsStridedBackward0;
    if (const auto* strided = dynamic_cast<const AsStrided*>(function)) {
      const at::TensorGeometry& given = strided->self_geometry;
      windows.insert(windows.begin(), {Dims(given.sizes().begin(), given.sizes().end()),
                                       Dims(given.strides().begin(), given.strides().end()),
                                       given.storage_offset()});
    }
    function = function->next_edge(0).function.get();
  }
  return windows;
}

class Wiring {
 public:
  Wiring(const std::string& name, const Trace& trace, const Tensors& arguments)
      : trace_(trace), arguments_(arguments), entry_(std::make_shared<PureEntry>()) {
    entry_->name = name;
    entry_->device = trace.scope->device;
    entry_->marked = trace.marked;
    entry_->returned = trace.returned;
    for (const Trace::Leaf& leaf : trace.leaves) {
      if (leaf.before.defined()) {
        leaf_of_[leaf.before.unsafeGetTensorImpl()] = &leaf;
      }
    }
  }

  std::shared_ptr<PureEntry> run() {
    std::vector<NodePtr> constants;
    Graph joint;
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const at::Tensor& result = trace_.results[i];
      const bool views = state_of(result)->scope != trace_.scope && can_require_grad(result) &&
                         !trace_.spoilt.contains(i) && !result.is_leaf();
      windows_.push_back(views ? windows_on_the_way(result) : std::vector<PureEntry::Window>());
    }
    {
      TraceLock lock;
      wire_inputs();
      wire_results();
      wire_gradients();
      joint = collect(constants);
    }
    build(joint, constants);
    return entry_;
  }

 private:
  void wire_inputs() REQUIRES(trace_mutex) {
    const auto& all = trace_.scope->all_outside();
    std::unordered_map<const StorageState*, int32_t> first_argument;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      first_argument.try_emplace(state_of(arguments_[i]).get(), static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      PureEntry::Input input;
      auto argument = first_argument.find(all[i].state.get());
      input_of_[all[i].state.get()] = static_cast<int32_t>(i);
      bool is_argument = argument != first_argument.end();
      if (is_argument) {
        input.argument = argument->second;
      } else if (all[i].generator.defined()) {
        input.generator = all[i].generator;
      }
      wire_handles(all[i], static_cast<int32_t>(i), is_argument ? nullptr : &input);
      bool reached = is_argument || input.generator.defined() || input.handle >= 0;
      input.state = reached ? nullptr : all[i].state;
      bool outlives = is_argument || (reached && all[i].state->scope == nullptr);
      entry_->transient = entry_->transient || !outlives;
      entry_->inputs.push_back(std::move(input));
    }
  }

  // Closed-over tensors on one storage. Arguments, seen as leaves during the trace, are none.
  void wire_handles(const TraceScope::Outside& outside, int32_t index, PureEntry::Input* input)
      REQUIRES(trace_mutex) {
    for (const at::Tensor& tensor : outside.handles) {
      if (is_made_of_argument(trace_, tensor) || outside.generator.defined()) {
        continue;
      }
      if (input != nullptr && input->handle < 0) {
        input->handle = static_cast<int32_t>(entry_->handles.size());
      }
      handle_of_[tensor.unsafeGetTensorImpl()] = static_cast<int32_t>(entry_->handles.size());
      PureEntry::Handle handle{place_of(tensor), {}, index};
      append_tensor(handle.key, tensor);
      entry_->handles.push_back(std::move(handle));
    }
  }

  // A leaf has another gradient at each call.
  PureEntry::Place place_of(const at::Tensor& tensor) {
    auto leaf = leaf_of_.find(tensor.unsafeGetTensorImpl());
    if (leaf == leaf_of_.end()) {
      return {tensor};
    }
    reads_gradients_ = true;
    return leaf->second->place;
  }

  // A function that changes no gradient does not depend on them either.
  void wire_gradients() {
    for (const Trace::Leaf& leaf : trace_.leaves) {
      if (leaf.changed) {
        entry_->gradient_writes.push_back({leaf.place, leaf.result});
      }
    }
    if (entry_->gradient_writes.empty() && !reads_gradients_) {
      return;
    }
    for (const Trace::Leaf& leaf : trace_.leaves) {
      if (!leaf.before.defined()) {
        entry_->without_gradient.push_back(leaf.place);
      }
    }
  }

  void wire_results() REQUIRES(trace_mutex) {
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const at::Tensor& tensor = trace_.results[i];
      PureEntry::Result result;
      result.same = earlier_result(trace_.results, i);
      result.dtype = tensor.scalar_type();
      result.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
      result.strides.assign(tensor.strides().begin(), tensor.strides().end());
      result.offset = tensor.storage_offset();
      result.requires_grad = can_require_grad(tensor);
      result.spoilt = trace_.spoilt.contains(i);
      result.leaf = result.requires_grad && !result.spoilt && tensor.is_leaf();
      result.conj = tensor.is_conj();
      result.neg = tensor.is_neg();
      result.through = std::move(windows_[i]);
      classify(tensor, result);
      entry_->results.push_back(std::move(result));
    }
  }

  void classify(const at::Tensor& tensor, PureEntry::Result& result) REQUIRES(trace_mutex) {
    for (size_t i = 0; i < trace_.arguments.size(); ++i) {
      if (tensor.is_same(trace_.arguments[i])) {
        result.kind = Kind::Argument;
        result.index = static_cast<int32_t>(i);
        return;
      }
    }
    auto handle = handle_of_.find(tensor.unsafeGetTensorImpl());
    if (handle != handle_of_.end()) {
      result.kind = Kind::Handle;
      result.index = handle->second;
      return;
    }
    StorageState* state = state_of(tensor).get();
    if (state->scope != trace_.scope) {
      const PureEntry::Input& input = entry_->inputs.at(input_of_.at(state));
      result.kind = input.argument >= 0 ? Kind::ArgumentView : Kind::HandleView;
      result.index = input.argument >= 0 ? input.argument : input.handle;
      return;
    }
    auto [found, inserted] =
        storage_of_.try_emplace(state, static_cast<int32_t>(entry_->storages.size()));
    if (inserted) {
      values_.push_back(value_in_trace(tensor));
      entry_->storages.push_back({0, static_cast<int64_t>(tensor.storage().nbytes())});
    }
    result.index = found->second;
  }

  Value value_in_trace(const at::Tensor& tensor) const REQUIRES(trace_mutex) {
    StorageState& state = *state_of(tensor);
    if (state.value()) {
      return state.value();
    }
    auto count = static_cast<int64_t>(tensor.storage().nbytes()) / tensor.element_size();
    return make_zeros({tensor.scalar_type(), {static_cast<int64_t>(count)}});
  }

  bool is_parameter(const PureEntry::Input& input) const {
    const at::Tensor tensor = input.argument >= 0 ? arguments_[input.argument]
                              : input.handle >= 0 && !entry_->handles[input.handle].place.gradient
                                  ? entry_->handles[input.handle].place.tensor
                                  : at::Tensor();
    return tensor.defined() && tensor.is_leaf() && tensor.requires_grad();
  }

  // Outputs of the joint graph: results, written inputs, gradients.
  Graph collect(std::vector<NodePtr>& constants) REQUIRES(trace_mutex) {
    std::vector<Value> outputs = values_;
    for (size_t i = 0; i < entry_->storages.size(); ++i) {
      entry_->storages[i].output = static_cast<uint32_t>(i);
    }
    std::vector<NodePtr> inputs;
    const auto& all = trace_.scope->all_outside();
    for (size_t i = 0; i < all.size(); ++i) {
      inputs.push_back(all[i].parameter.node);
      if (all[i].written()) {
        entry_->inputs[i].written = static_cast<int32_t>(outputs.size());
        entry_->trains = entry_->trains || is_parameter(entry_->inputs[i]);
        outputs.push_back(all[i].current);
      }
    }
    forward_outputs_ = outputs.size();
    for (const at::Tensor& gradient : trace_.gradients) {
      if (gradient.defined()) {
        outputs.push_back(gradient_value(gradient));
      }
    }
    Graph joint = collect_graph(outputs);
    roles_.assign(inputs.size(), InputRole::Primal);
    for (const NodePtr& input : joint.inputs) {
      if (input->kind == Node::Kind::Data) {
        constants.push_back(input);
      }
    }
    inputs.insert(inputs.end(), constants.begin(), constants.end());
    roles_.resize(inputs.size(), InputRole::Constant);
    for (const at::Tensor& tangent : trace_.tangents) {
      inputs.push_back(state_of(tangent)->value().node);
    }
    roles_.resize(inputs.size(), InputRole::Tangent);
    order_inputs(joint, inputs);
    return joint;
  }

  // A gradient may be a tensor from outside as it is (the derivative of w * x, say).
  Value gradient_value(const at::Tensor& gradient) const REQUIRES(trace_mutex) {
    StorageState* state = state_of(gradient).get();
    if (state->scope == trace_.scope) {
      return state->value();
    }
    return trace_.scope->all_outside().at(input_of_.at(state)).current;
  }

  void build(const Graph& joint, const std::vector<NodePtr>& constants) {
    for (const NodePtr& constant : constants) {
      // Without a scope: it lives as long as the entry.
      auto state = std::make_shared<StorageState>(entry_->device, nullptr);
      TraceLock lock;
      state->set_value({constant, 0});
      entry_->constants.push_back(std::move(state));
    }
    const size_t numbers = trace_.scope->number_count();
    Partition parts = partition(joint, roles_, forward_outputs_);
    if (!trace_.gradients.empty()) {
      entry_->gradient = std::make_unique<PureEntry::Gradient>();
      wire_gradient(parts);
      entry_->gradient->backward =
          call_of(entry_->name + "/backward", std::move(parts.backward), numbers);
    }
    entry_->forward = call_of(entry_->name, std::move(parts.forward), numbers);
  }

  void wire_gradient(const Partition& parts) {
    PureEntry::Gradient& gradient = *entry_->gradient;
    for (size_t i = 0; i < parts.saved.size(); ++i) {
      PureEntry::Saved saved;
      if (parts.saved_outputs[i] < 0) {
        saved.input = static_cast<int32_t>(parts.saved[i].index);
      } else {
        saved.output = static_cast<uint32_t>(parts.saved_outputs[i]);
      }
      gradient.saved.push_back(saved);
    }
    gradient.tangents = trace_.differentiable;
    gradient.refused = trace_.refused;
    int32_t output = 0;
    for (size_t i = 0; i < trace_.sources.size(); ++i) {
      const at::Tensor& value = trace_.gradients[i];
      PureEntry::GradientInput input;
      input.argument = trace_.sources[i].argument;
      input.result = trace_.sources[i].result;
      if (input.argument < 0 && input.result < 0) {
        input.handle = handle_of_.at(trace_.sources[i].tensor.unsafeGetTensorImpl());
      }
      if (value.defined()) {
        input.output = output++;
        input.dtype = value.scalar_type();
        input.sizes.assign(value.sizes().begin(), value.sizes().end());
        input.strides.assign(value.strides().begin(), value.strides().end());
      }
      gradient.inputs.push_back(std::move(input));
    }
  }

  std::vector<std::vector<PureEntry::Window>> windows_;  // per result
  const Trace& trace_;
  const Tensors& arguments_;
  std::shared_ptr<PureEntry> entry_;
  std::unordered_map<const StorageState*, int32_t> input_of_;
  std::unordered_map<const c10::TensorImpl*, int32_t> handle_of_;
  std::unordered_map<const c10::TensorImpl*, const Trace::Leaf*> leaf_of_;  // by gradient
  bool reads_gradients_ = false;
  std::unordered_map<const StorageState*, int32_t> storage_of_;
  std::vector<Value> values_;
  std::vector<InputRole> roles_;
  size_t forward_outputs_ = 0;
};

}  // namespace

std::shared_ptr<Computation> make_computation(const std::string& name, Graph graph) {
  auto computation = std::make_shared<Computation>();
  computation->name = name;
  computation->hash = hash_of(graph);
  computation->graph = std::move(graph);
  return computation;
}

std::shared_ptr<const Signature> call_signature(const std::string& op,
                                                std::shared_ptr<const Computation> computation,
                                                const std::vector<TensorType>& operands,
                                                const std::vector<TensorType>& outputs,
                                                size_t numbers) {
  auto owned = std::make_shared<Signature>();
  Signature& signature = *owned;
  signature.op = op;
  signature.tier = Tier::Call;
  for (const TensorType& type : operands) {
    signature.arguments.emplace_back(OperandRef{static_cast<int32_t>(signature.operands.size())});
    signature.operands.push_back({type.dtype, type.dims, row_major_strides(type.dims), 0});
  }
  signature.number_kinds.assign(numbers, Number::Kind::Double);
  for (size_t i = 0; i < numbers; ++i) {
    NumberRef ref;
    ref.slot = static_cast<int32_t>(i);
    signature.arguments.emplace_back(ref);
  }
  for (const TensorType& type : outputs) {
    signature.outputs.push_back(frame_spec(type));
  }
  const Control& control = computation->control;
  Hasher hasher;
  hasher.add(finish_signature(signature));
  hasher.add(computation->hash);
  if (control.kind != Control::Kind::Call) {
    hasher.add(static_cast<uint64_t>(control.kind) << 1 | uint64_t{control.reverse});
    hasher.add(control.carried);
    hasher.add(control.sliced);
    hasher.add(static_cast<uint64_t>(control.length));
    hasher.add(control.otherwise ? control.otherwise->hash : 0);
  }
  signature.hash = hasher.low();
  signature.computation = std::move(computation);
  return owned;
}

bool can_require_grad(const at::Tensor& result) {
  return result.requires_grad() && torch::autograd::isDifferentiableType(result.scalar_type());
}

bool is_made_of_argument(const Trace& trace, const at::Tensor& tensor) {
  // Arguments have storage objects of their own during the trace.
  return std::any_of(trace.arguments.begin(), trace.arguments.end(),
                     [&](const at::Tensor& leaf) { return leaf.is_alias_of(tensor); });
}

std::shared_ptr<PureEntry> wire_entry(const std::string& name, const Trace& trace,
                                      const Tensors& arguments) {
  return Wiring(name, trace, arguments).run();
}

}  // namespace torch_xla
