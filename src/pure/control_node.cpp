#include "pure/control_node.h"

#include "base/error.h"
#include "base/location.h"
#include "eager/mode.h"
#include "execution/sync.h"
#include "pure/record.h"
#include "pure/trace.h"
#include "pure/wire.h"
#include "values/internal_ops.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace torch_xla {

namespace {

class PartCallee : public PureCallee {
 public:
  explicit PartCallee(const std::function<Tensors(const Tensors&)>& run) : run_(run) {}
  Tensors run(const Tensors& arguments) override { return run_(arguments); }

 private:
  const std::function<Tensors(const Tensors&)>& run_;
};

const char* word_of(Control::Kind kind) {
  return kind == Control::Kind::If ? "if" : kind == Control::Kind::While ? "while" : "scan";
}

TensorType stacked(TensorType type, int64_t length) {
  type.dims.insert(type.dims.begin(), length);
  return type;
}

class ControlNode {
 public:
  ControlNode(Control control, const std::vector<EntryPtr>& parts, const Tensors& arguments)
      : control_(std::move(control)),
        is_loop_(control_.kind != Control::Kind::If),
        parts_(parts),
        arguments_(arguments),
        first_(is_loop_ ? 0 : 1),
        own_carried_(control_.carried) {
    find_outside();
    order_operands();
    place_results();
    make_signature();
  }

  // The storages that it reads and writes.
  std::vector<StatePtr> storages() const {
    std::vector<StatePtr> states;
    for (const at::Tensor& argument : arguments_) {
      states.push_back(state_of(argument));
    }
    for (const Outside& outside : outside_) {
      states.push_back(outside.state);
    }
    return states;
  }

  Tensors record(bool commit) {
    std::vector<Tensors> generators;
    for (const EntryPtr& part : parts_) {
      generators.push_back(generator_states(*part));
    }
    Tensors results = make_results();
    NodePtr node = make_call_node(signature_);
    {
      TraceLock lock;
      if (!is_loop_) {
        node->operands.push_back(value_of(*arguments_[0].unsafeGetTensorImpl()));
      }
      for (const Operand& operand : operands_) {
        node->operands.push_back(value_of_operand(operand, generators));
      }
      for (size_t i = 0; i < results.size(); ++i) {
        assign_value(*results[i].unsafeGetTensorImpl(), {node, output_of_result_[i]});
      }
      for (size_t i = 0; commit && i < outside_.size(); ++i) {
        const Outside& outside = outside_[i];
        if (outside.written) {
          assign_input(*parts_[outside.part], outside.input, {}, generators[outside.part],
                       {node, outside.output});
        }
      }
    }
    if (commit) {
      bump_written();
    }
    return results;
  }

  const std::string& name() const { return parts_[0]->name; }

 private:
  // Something that a part reads without being given it.
  struct Outside {
    StatePtr state;
    size_t part = 0,
           input = 0;             // a part that reads it and, if any does, writes it
    std::vector<int32_t> inputs;  // of each part, or -1
    bool written = false;
    uint32_t output = 0;  // of the node: its new value
  };
  struct Operand {
    enum class Kind : uint8_t { Argument, Outside, Constant };
    Kind kind = Kind::Argument;
    size_t index = 0;
    size_t part = 0;  // whose constant it is
  };

  size_t own_inputs() const { return arguments_.size() - first_; }

  void find_outside() {
    std::unordered_map<const StorageState*, size_t> known;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const PureEntry& part = *parts_[p];
      for (size_t i = own_inputs(); i < part.inputs.size(); ++i) {
        const bool written = part.inputs[i].written >= 0;
        const StatePtr& state = operand_state(part, part.inputs[i], {});
        auto [found, inserted] = known.try_emplace(state.get(), outside_.size());
        if (inserted) {
          outside_.push_back({state, p, i, std::vector<int32_t>(parts_.size(), -1), false, 0});
        }
        Outside& outside = outside_[found->second];
        outside.inputs[p] = static_cast<int32_t>(i);
        if (written && !outside.written) {
          outside.part = p;
          outside.input = i;
          outside.written = true;
        }
      }
    }
  }

  // Carried values, then slices, then what stays; for a branch the order does not matter.
  void order_operands() {
    auto add_arguments = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        operands_.push_back({Operand::Kind::Argument, first_ + i, 0});
      }
    };
    auto add_outside = [&](bool written) {
      for (size_t i = 0; i < outside_.size(); ++i) {
        if (outside_[i].written == written) {
          operands_.push_back({Operand::Kind::Outside, i, 0});
        }
      }
    };
    add_arguments(0, own_carried_);
    add_outside(true);
    control_.carried = operands_.size();
    add_arguments(own_carried_, own_inputs());
    add_outside(false);
    for (size_t p = 0; p < parts_.size(); ++p) {
      for (size_t i = 0; i < parts_[p]->constants.size(); ++i) {
        operands_.push_back({Operand::Kind::Constant, i, p});
      }
    }
  }

  // Where the operand is among the inputs of the part's graph, or -1.
  int32_t input_of(const Operand& operand, size_t part) const {
    switch (operand.kind) {
      case Operand::Kind::Argument:
        return static_cast<int32_t>(operand.index - first_);
      case Operand::Kind::Outside:
        return outside_[operand.index].inputs[part];
      case Operand::Kind::Constant:
        break;
    }
    return operand.part == part ? static_cast<int32_t>(parts_[part]->inputs.size() + operand.index)
                                : -1;
  }

  const Graph& graph_of(size_t part) const { return parts_[part]->forward->computation->graph; }

  // As one iteration or branch sees it.
  const TensorType& type_of(const Operand& operand) const {
    size_t part = 0;
    while (input_of(operand, part) < 0) {
      ++part;
    }
    return graph_of(part).inputs[input_of(operand, part)]->type(0);
  }

  // The part's graph over all operands: results that are carried, what is written, other results.
  Graph wired(size_t part) {
    const PureEntry& entry = *parts_[part];
    Graph graph = graph_of(part);
    std::vector<uint32_t> moved(graph.inputs.size());
    std::vector<NodePtr> inputs;
    for (const Operand& operand : operands_) {
      const int32_t input = input_of(operand, part);
      inputs.push_back(input >= 0 ? graph.inputs[input] : make_parameter_node(type_of(operand)));
      if (input >= 0) {
        moved[input] = static_cast<uint32_t>(inputs.size() - 1);
      }
    }
    graph.inputs = std::move(inputs);
    std::vector<GraphValue> former = std::move(graph.outputs);
    for (auto* values : {&graph.operands, &former}) {
      for (GraphValue& value : *values) {
        value.index = value.producer < 0 ? moved[value.index] : value.index;
      }
    }
    auto add_result = [&](size_t i) {
      graph.outputs.push_back(former[entry.storages[entry.results[i].index].output]);
    };
    graph.outputs.clear();
    for (size_t i = 0; i < own_carried_; ++i) {
      add_result(i);
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].kind != Operand::Kind::Outside || !outside_[operands_[i].index].written) {
        continue;
      }
      Outside& outside = outside_[operands_[i].index];
      outside.output = static_cast<uint32_t>(graph.outputs.size());
      const int32_t input = outside.inputs[part];
      const int32_t output = input >= 0 ? entry.inputs[input].written : -1;
      graph.outputs.push_back(output >= 0 ? former[output]
                                          : GraphValue{-1, static_cast<uint32_t>(i)});
    }
    std::for_each(distinct_.begin(), distinct_.end(), add_result);
    graph.donated.assign(graph.outputs.size(), -1);
    return graph;
  }

  void make_signature() {
    if (!is_loop_) {
      control_.otherwise = make_computation(parts_[1]->name, wired(1));
    }
    std::shared_ptr<Computation> computation = make_computation(name(), wired(0));
    std::vector<TensorType> operands, outputs;
    if (!is_loop_) {
      operands.push_back({DType::Bool, {}});
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const bool is_slice = i >= control_.carried && i < control_.carried + control_.sliced;
      operands.push_back(is_slice ? stacked(type_of(operands_[i]), control_.length)
                                  : type_of(operands_[i]));
    }
    for (size_t i = 0; i < own_carried_; ++i) {
      outputs.push_back(type_of_result(i));
    }
    for (const Operand& operand : operands_) {
      if (operand.kind == Operand::Kind::Outside && outside_[operand.index].written) {
        outputs.push_back(type_of(operand));
      }
    }
    for (size_t i : distinct_) {
      outputs.push_back(type_of_result(i));
    }
    computation->control = control_;
    signature_ = call_signature(std::string(word_of(control_.kind)) + "::" + name(),
                                std::move(computation), operands, outputs);
  }

  TensorType type_of_result(size_t i) const {
    const PureEntry::Result& result = parts_[0]->results[i];
    TensorType type{result.dtype, result.sizes};
    return is_loop_ && i >= own_carried_ ? stacked(std::move(type), control_.length) : type;
  }

  GraphValue value_of_result(size_t part, size_t i) const {
    const PureEntry& entry = *parts_[part];
    return graph_of(part).outputs[entry.storages[entry.results[i].index].output];
  }

  // Results behind the carried ones that are the same in all parts are one output: a value that is
  // returned and kept for the gradient, too.
  void place_results() {
    std::map<std::vector<std::pair<int32_t, uint32_t>>, uint32_t> known;
    const auto written = std::count_if(outside_.begin(), outside_.end(),
                                       [](const Outside& outside) { return outside.written; });
    const size_t first = own_carried_ + static_cast<size_t>(written);
    for (size_t i = 0; i < parts_[0]->results.size(); ++i) {
      if (i < own_carried_) {
        output_of_result_.push_back(static_cast<uint32_t>(i));
        continue;
      }
      std::vector<std::pair<int32_t, uint32_t>> values;
      for (size_t p = 0; p < parts_.size(); ++p) {
        const GraphValue value = value_of_result(p, i);
        values.emplace_back(value.producer, value.index);
      }
      auto [found, inserted] =
          known.try_emplace(std::move(values), static_cast<uint32_t>(first + distinct_.size()));
      if (inserted) {
        distinct_.push_back(i);
      }
      output_of_result_.push_back(found->second);
    }
  }

  Tensors make_results() const {
    Tensors results;
    const int device = parts_[0]->device;
    for (size_t i = 0; i < parts_[0]->results.size(); ++i) {
      const TensorType type = type_of_result(i);
      check_allocation(type.nbytes(), device);
      results.push_back(empty_tensor(type.dtype, type.dims, row_major_strides(type.dims), device));
    }
    return results;
  }

  Value value_of_operand(const Operand& operand, const std::vector<Tensors>& generators) const
      REQUIRES(trace_mutex) {
    switch (operand.kind) {
      case Operand::Kind::Argument:
        return value_of(*arguments_[operand.index].unsafeGetTensorImpl());
      case Operand::Kind::Outside: {
        const Outside& outside = outside_[operand.index];
        return input_value(*parts_[outside.part], outside.input, {}, generators[outside.part]);
      }
      case Operand::Kind::Constant:
        break;
    }
    return parts_[operand.part]->constants[operand.index]->value();
  }

  void bump_written() const {
    for (const Outside& outside : outside_) {
      const PureEntry& part = *parts_[outside.part];
      const int32_t handle = part.inputs[outside.input].handle;
      if (outside.written && handle >= 0 && !part.handles[handle].place.tensor.is_inference()) {
        part.handles[handle].place.tensor.unsafeGetTensorImpl()->bump_version();
      }
    }
  }

  Control control_;
  const bool is_loop_;
  const std::vector<EntryPtr>& parts_;
  const Tensors& arguments_;
  const size_t first_;        // argument that is the parts' first
  const size_t own_carried_;  // carried values that are arguments
  std::vector<Outside> outside_;
  std::vector<Operand> operands_;  // but for a predicate
  std::vector<size_t> distinct_;   // results that are outputs, but for carried ones
  std::vector<uint32_t> output_of_result_;
  std::shared_ptr<const Signature> signature_;
};

}  // namespace

EntryPtr unchanging(EntryPtr function) {
  for (const PureEntry::Input& input : function->inputs) {
    if (input.argument >= 0 && input.written >= 0) {
      throw Error("the function " + function->name + ", called by control flow at " +
                  location_of(last_location()).str() + ", changes its tensor argument " +
                  std::to_string(input.argument) + " in place: return a new tensor instead");
    }
  }
  if (function->gradient && !function->gradient->refused.empty()) {
    throw Error("the function " + function->name + ", called by control flow at " +
                location_of(last_location()).str() +
                ", cannot be differentiated: " + function->gradient->refused[0].reason);
  }
  return function;
}

EntryPtr trace_part(const std::string& name, const Tensors& examples,
                    const std::function<Tensors(const Tensors&)>& run) {
  at::NoGradGuard no_grad;
  std::shared_ptr<PureEntry> entry =
      trace_function(name, std::make_shared<PartCallee>(run), examples);
  if (!entry->gradient_writes.empty()) {
    throw Error(name + " changes gradients (it calls backward()), which a branch or loop of the " +
                "program cannot: call backward() after it");
  }
  entry->callee.reset();  // it is not differentiated, so that nothing runs it again
  return entry;
}

at::Tensor make_example(const at::Tensor& like, c10::IntArrayRef sizes, bool requires_grad) {
  const TensorType type{like.scalar_type(), Dims(sizes.begin(), sizes.end())};
  at::Tensor example =
      empty_tensor(type.dtype, sizes, row_major_strides(sizes), like.device().index());
  {
    TraceLock lock;
    assign_value(*example.unsafeGetTensorImpl(), {make_parameter_node(type), 0});
  }
  if (requires_grad) {
    example.set_requires_grad(true);
  }
  return example;
}

Tensors owned(const Tensors& tensors) {
  Tensors results;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor source = dense(tensor);
    at::Tensor result = empty_tensor(source.scalar_type(), source.sizes(), source.strides(),
                                     source.device().index());
    TraceLock lock;
    assign_value(*result.unsafeGetTensorImpl(), value_of(*source.unsafeGetTensorImpl()));
    results.push_back(std::move(result));
  }
  return results;
}

at::Tensor dense(const at::Tensor& tensor) {
  at::Tensor plain = tensor.resolve_conj().resolve_neg();
  return plain.is_contiguous() && covers_storage(plain) ? plain
                                                        : plain.clone(at::MemoryFormat::Contiguous);
}

Tensors all_dense(const Tensors& tensors, const char* what) {
  Tensors results;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.has_storage()) {
      throw Error(std::string(what) + " (at " + location_of(last_location()).str() +
                  ") was given a tensor of a transformation (torch.func.grad, vmap, ...), which "
                  "does not see into it: use the transformation inside of its functions instead");
    }
    if (!is_xla(tensor) || tensor.device() != tensors[0].device()) {
      throw Error(std::string(what) + " (at " + location_of(last_location()).str() +
                  ") was given a tensor on " + tensor.device().str() +
                  ": move all its tensors to one xla device first, with .to('xla')");
    }
    results.push_back(dense(tensor));
  }
  return results;
}

Tensors run_control(Control control, const std::vector<EntryPtr>& parts, const Tensors& arguments,
                    bool commit) {
  ControlNode node(std::move(control), parts, arguments);
  if (!eager::enabled()) {
    return node.record(commit);
  }
  std::vector<StatePtr> states = node.storages();
  sync_storages(states);  // what is pending stays out of the node's program
  Tensors results = node.record(commit);
  for (const at::Tensor& result : results) {
    states.push_back(state_of(result));
  }
  sync_storages(states, node.name());
  return results;
}

}  // namespace torch_xla
