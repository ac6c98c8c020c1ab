#include "graph/collect.h"

#include "base/hasher.h"
#include "base/location.h"
#include "stablehlo/builder.h"

#include <atomic>

namespace torch_xla {

namespace {

std::atomic<uint64_t> next_epoch{1};

class Collector {
 public:
  Graph run(const std::vector<Value>& outputs) {
    for (const Value& output : outputs) {
      visit(output.node);
      graph_.outputs.push_back(reference(output));
    }
    graph_.donated.assign(outputs.size(), -1);
    return std::move(graph_);
  }

 private:
  struct Frame {
    const NodePtr* node;
    size_t next_operand;
  };

  bool seen(const Node& node) const { return node.visit.epoch == epoch_; }

  GraphValue reference(const Value& value) const {
    int32_t id = static_cast<int32_t>(value.node->visit.id);
    if (value.node->kind == Node::Kind::Op) {
      return {id, value.index};
    }
    return {-1, static_cast<uint32_t>(id)};
  }

  // Depth first without recursion: traces are deep.
  void visit(const NodePtr& root) {
    if (seen(*root)) {
      return;
    }
    stack_.push_back({&root, 0});
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      const Node& node = **frame.node;
      if (frame.next_operand < node.operands.size()) {
        const NodePtr& operand = node.operands[frame.next_operand++].node;
        if (!seen(*operand)) {
          stack_.push_back({&operand, 0});
        }
        continue;
      }
      const NodePtr& done = *frame.node;
      stack_.pop_back();
      if (!seen(*done)) {
        add(done);
      }
    }
  }

  void add(const NodePtr& node) {
    node->visit.epoch = epoch_;
    if (node->kind != Node::Kind::Op) {
      node->visit.id = static_cast<uint32_t>(graph_.inputs.size());
      graph_.inputs.push_back(node);
      return;
    }
    node->visit.id = static_cast<uint32_t>(graph_.nodes.size());
    graph_.nodes.push_back({node, static_cast<uint32_t>(graph_.operands.size()),
                            static_cast<uint32_t>(graph_.numbers.size())});
    for (const Value& operand : node->operands) {
      graph_.operands.push_back(reference(operand));
    }
    graph_.numbers.insert(graph_.numbers.end(), node->numbers.begin(), node->numbers.end());
  }

  uint64_t epoch_ = next_epoch.fetch_add(1);
  Graph graph_;
  std::vector<Frame> stack_;
};

std::string reference_text(GraphValue value) {
  std::string name = value.producer < 0 ? "%in" + std::to_string(value.index)
                                        : "%" + std::to_string(value.producer);
  return value.producer >= 0 && value.index > 0 ? name + "#" + std::to_string(value.index) : name;
}

uint64_t pack(GraphValue value) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(value.producer)) << 32) | value.index;
}

}  // namespace

Graph collect_graph(const std::vector<Value>& outputs) { return Collector().run(outputs); }

void finish_graph(Graph& graph) {
  Hasher hasher;
  for (const NodePtr& input : graph.inputs) {
    const TensorType& type = input->type(0);
    hasher.add(static_cast<uint64_t>(type.dtype) << 32 | type.dims.size());
    for (int64_t dim : type.dims) {
      hasher.add(static_cast<uint64_t>(dim));
    }
  }
  for (const GraphNode& entry : graph.nodes) {
    hasher.add(entry.node->signature->hash);
    hasher.add(entry.first_operand);
  }
  for (GraphValue operand : graph.operands) {
    hasher.add(pack(operand));
  }
  for (GraphValue output : graph.outputs) {
    hasher.add(pack(output));
  }
  for (int32_t donated : graph.donated) {
    hasher.add(static_cast<uint64_t>(donated) + 1);
  }
  for (const auto& [name, value] : graph.xla_options) {
    hasher.add(std::string_view(name));
    hasher.add(std::string_view(value));
  }
  if (graph.precision != "DEFAULT") {
    hasher.add(std::string_view(graph.precision));
  }
  if (graph.partitions > 1) {
    hasher.add(static_cast<uint64_t>(graph.partitions));
    for (ShardingPtr sharding : graph.input_shardings) {
      hasher.add(sharding->hash());
    }
    for (ShardingPtr sharding : graph.output_shardings) {
      hasher.add(sharding == nullptr ? 0 : sharding->hash());
    }
  }
  graph.hash = hasher.low();
  graph.hash_high = hasher.high();
}

Graph without_values(const Graph& graph) {
  Graph copy = graph;
  for (NodePtr& input : copy.inputs) {
    input = make_parameter_node(input->type(0));
  }
  for (GraphNode& entry : copy.nodes) {
    NodePtr node = c10::make_intrusive<Node>();
    node->location = entry.node->location;
    node->signature = entry.node->signature;
    node->signature_owner = entry.node->signature_owner;
    node->numbers = entry.node->numbers;
    node->operands.resize(entry.node->operands.size());  // the graph's own links say which
    entry.node = std::move(node);
  }
  return copy;
}

std::string graph_text(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    text +=
        "%in" + std::to_string(i) + ": " + stablehlo::type_string(graph.inputs[i]->type(0)) + "\n";
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& entry = graph.nodes[n];
    const Node& node = *entry.node;
    text += "%" + std::to_string(n) + " = " + node.signature->op + "(";
    for (size_t i = 0; i < node.operands.size(); ++i) {
      text += (i > 0 ? ", " : "") + reference_text(graph.operands[entry.first_operand + i]);
    }
    text += "): " + stablehlo::type_string(node.type(0));
    if (node.location != 0) {
      text += "  # " + location_of(node.location).str();
    }
    text += "\n";
  }
  text += "return";
  for (GraphValue output : graph.outputs) {
    text += " " + reference_text(output);
  }
  return text + "\n";
}

}  // namespace torch_xla
