#include "graph/collect.h"

#include "base/hasher.h"

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

}  // namespace torch_xla
