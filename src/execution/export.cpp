#include "execution/export.h"

#include "base/error.h"
#include "base/location.h"
#include "execution/settings.h"
#include "execution/sync.h"
#include "graph/collect.h"
#include "lower/graph_lowering.h"
#include "trace/scope.h"

#include <ATen/ops/empty.h>

#include <set>
#include <unordered_map>
#include <utility>

namespace torch_xla {

namespace {

// Makes `inputs` the graph's first ones, in this order.
void put_first(Graph& graph, const std::vector<NodePtr>& inputs) {
  std::unordered_map<const Node*, uint32_t> place;
  std::vector<NodePtr> ordered = inputs;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    place.emplace(inputs[i].get(), i);
  }
  std::vector<uint32_t> moved;
  for (const NodePtr& input : graph.inputs) {
    auto [found, inserted] = place.emplace(input.get(), static_cast<uint32_t>(ordered.size()));
    if (inserted) {
      ordered.push_back(input);
    }
    moved.push_back(found->second);
  }
  for (std::vector<GraphValue>* values : {&graph.operands, &graph.outputs}) {
    for (GraphValue& value : *values) {
      if (value.producer < 0) {
        value.index = moved[value.index];
      }
    }
  }
  graph.inputs = std::move(ordered);
}

void find_host_operators(const Graph& graph, std::set<std::string>& names) {
  for (const GraphNode& entry : graph.nodes) {
    const Signature& signature = *entry.node->signature;
    if (signature.tier == Tier::Host) {
      names.insert(signature.op);
    }
    if (signature.computation) {
      find_host_operators(signature.computation->graph, names);
    }
  }
}

at::Tensor on_cpu(const NodePtr& leaf) {
  const TensorType& type = leaf->type(0);
  at::Tensor tensor = at::empty(type.dims, at::TensorOptions().dtype(type.dtype));
  device_data(*leaf)->buffer()->copy_to_host(tensor.mutable_data_ptr(), tensor.nbytes());
  return tensor;
}

std::vector<NodePtr> leaves_of(const std::vector<at::Tensor>& tensors) {
  std::vector<NodePtr> leaves;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) {
      leaves.push_back(materialize_data(tensor).data());
      continue;
    }
    // No graph reads it, and no frame says how it lies: it has its own sizes.
    TensorType type{tensor.scalar_type(), Dims(tensor.sizes().begin(), tensor.sizes().end())};
    leaves.push_back(c10::make_intrusive<DeviceData>(std::move(type), tensor.device().index()));
  }
  return leaves;
}

thread_local const ExportScope* current_export = nullptr;

}  // namespace

ExportScope::ExportScope(const std::vector<at::Tensor>& inputs) {
  for (const NodePtr& leaf : leaves_of(inputs)) {
    inputs_.insert(leaf.get());
  }
}

void ExportScope::begin() { outer_ = std::exchange(current_export, this); }

void ExportScope::end() { current_export = outer_; }

bool ExportScope::active() { return current_export != nullptr; }

bool is_traced_or_exported() { return current_scope() != nullptr || ExportScope::active(); }

void ExportScope::refuse_to_read(const std::vector<StatePtr>& states) {
  if (current_export == nullptr) {
    return;
  }
  std::vector<Value> values;
  TraceLock lock;
  for (const StatePtr& state : states) {
    if (state->value()) {
      values.push_back(state->value());
    }
  }
  for (const NodePtr& leaf : collect_graph(values).inputs) {
    if (current_export->inputs_.count(leaf.get()) > 0) {
      throw Error("this program cannot be exported: at " + location_of(current_location()).str() +
                  " it reads a value that depends on its inputs (.item(), a condition, or a result "
                  "whose size depends on values), which would be that of the example for ever. "
                  "Keep to tensor operations: torch.where, torch.cond, a mask");
    }
  }
}

ExportedGraph export_graph(const std::vector<at::Tensor>& outputs,
                           const std::vector<at::Tensor>& inputs, const std::string& name) {
  const std::vector<NodePtr> leaves = leaves_of(inputs);
  Graph graph;
  {
    TraceLock lock;
    std::vector<Value> values;
    for (const at::Tensor& output : outputs) {
      values.push_back(state_of(output)->value());
    }
    graph = collect_graph(values);
  }
  put_first(graph, leaves);
  apply_settings(graph);
  finish_graph(graph);
  ExportedGraph exported;
  exported.text = lower_graph(graph, name, NumberPlacement{}, HostCalls::IfNeeded).readable;
  for (size_t i = leaves.size(); i < graph.inputs.size(); ++i) {
    exported.captured.push_back(on_cpu(graph.inputs[i]));
  }
  std::set<std::string> names;
  find_host_operators(graph, names);
  exported.host_operators.assign(names.begin(), names.end());
  return exported;
}

}  // namespace torch_xla
