#include "lower/composite.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace torch_xla {

namespace {

struct Mark {
  std::string name;
  int64_t position;
  std::string id;
  bool is_input;
  std::string attributes;
};

bool is_mark(const Node& node) { return node.signature->op == kMarkTensor; }

Mark mark_of(const Node& node) {
  const auto& arguments = node.signature->arguments;
  return {std::get<std::string>(arguments[1]), std::get<int64_t>(arguments[2]),
          std::get<std::string>(arguments[3]), std::get<bool>(arguments[4]),
          std::get<std::string>(arguments[5])};
}

struct Marks {
  std::map<int64_t, size_t> inputs, outputs;  // nodes by position
  std::string attributes;
};

// One marked part, while its nodes are looked for.
class Part {
 public:
  Part(const Graph& graph, const Marks& marks) : graph_(graph) {
    for (auto [position, node] : marks.inputs) {
      composite_.arguments.push_back({static_cast<int32_t>(node), 0});
      inputs_.insert(node);
    }
    for (auto [position, node] : marks.outputs) {
      composite_.outputs.push_back(node);
      walk_operands(node);
    }
    composite_.body.assign(body_.begin(), body_.end());
    composite_.attributes = marks.attributes;
  }

  // Everything it reads must be there before the first of its results is wanted.
  bool is_ordered() const {
    const size_t first = *std::min_element(composite_.outputs.begin(), composite_.outputs.end());
    return std::all_of(
        composite_.arguments.begin(), composite_.arguments.end(), [first](GraphValue argument) {
          return argument.producer < 0 || static_cast<size_t>(argument.producer) < first;
        });
  }

  Composite take() { return std::move(composite_); }

 private:
  void walk_operands(size_t node) {
    const GraphNode& entry = graph_.nodes[node];
    for (size_t i = 0; i < entry.node->operands.size(); ++i) {
      const GraphValue operand = graph_.operands[entry.first_operand + i];
      const auto producer = static_cast<size_t>(operand.producer);
      if (operand.producer < 0) {
        capture(operand);
      } else if (inputs_.count(producer) == 0 && body_.insert(producer).second) {
        walk_operands(producer);
      }
    }
  }

  void capture(GraphValue value) {
    if (captured_.insert(value.index).second) {
      composite_.arguments.push_back(value);
    }
  }

  const Graph& graph_;
  Composite composite_;
  std::set<size_t> inputs_, body_;
  std::set<uint32_t> captured_;
};

std::map<std::pair<std::string, std::string>, Marks> collect_marks(const Graph& graph) {
  std::map<std::pair<std::string, std::string>, Marks> found;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!is_mark(*graph.nodes[n].node)) {
      continue;
    }
    const Mark mark = mark_of(*graph.nodes[n].node);
    Marks& marks = found[{mark.name, mark.id}];
    (mark.is_input ? marks.inputs : marks.outputs)[mark.position] = n;
    if (!mark.attributes.empty()) {
      marks.attributes = mark.attributes;
    }
  }
  return found;
}

// The nodes that are needed when composites stand for their bodies.
std::vector<bool> needed_nodes(const Graph& graph, const CompositePlan& plan) {
  std::vector<bool> needed(graph.nodes.size(), false);
  for (GraphValue output : graph.outputs) {
    if (output.producer >= 0) {
      needed[static_cast<size_t>(output.producer)] = true;
    }
  }
  auto need = [&](GraphValue value) {
    if (value.producer >= 0) {
      needed[static_cast<size_t>(value.producer)] = true;
    }
  };
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (!needed[n]) {
      continue;
    }
    if (plan.composite_of[n] >= 0) {
      for (GraphValue argument : plan.composites[plan.composite_of[n]].arguments) {
        need(argument);
      }
      continue;
    }
    const GraphNode& entry = graph.nodes[n];
    for (size_t i = 0; i < entry.node->operands.size(); ++i) {
      need(graph.operands[entry.first_operand + i]);
    }
  }
  return needed;
}

}  // namespace

CompositePlan find_composites(const Graph& graph) {
  CompositePlan plan;
  plan.composite_of.assign(graph.nodes.size(), -1);
  plan.inside.assign(graph.nodes.size(), false);
  for (const auto& [key, marks] : collect_marks(graph)) {
    if (marks.outputs.empty()) {
      continue;
    }
    Part part(graph, marks);
    if (!part.is_ordered()) {
      continue;
    }
    for (auto [position, node] : marks.outputs) {
      plan.composite_of[node] = static_cast<int>(plan.composites.size());
    }
    plan.composites.push_back(part.take());
    plan.composites.back().name = key.first;
  }
  if (!plan.composites.empty()) {
    const std::vector<bool> needed = needed_nodes(graph, plan);
    for (size_t n = 0; n < needed.size(); ++n) {
      plan.inside[n] = !needed[n];
    }
  }
  return plan;
}

}  // namespace torch_xla
