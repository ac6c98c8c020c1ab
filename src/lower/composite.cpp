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

  Composite take() { return std::move(composite_); }

 private:
  void walk_operands(size_t node) {
    for (const GraphValue operand : graph_.operands_of(node)) {
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

// Calls `use` with what a node reads; the result of a composite reads all of its arguments.
template <typename Use>
void for_each_read(const Graph& graph, const CompositePlan& plan, size_t n, const Use& use) {
  auto read = [&](GraphValue value) {
    if (value.producer >= 0) {
      use(static_cast<size_t>(value.producer));
    }
  };
  if (plan.composite_of[n] >= 0) {
    const Composite& composite = plan.composites[plan.composite_of[n]];
    std::for_each(composite.arguments.begin(), composite.arguments.end(), read);
    return;
  }
  for (const GraphValue operand : graph.operands_of(n)) {
    read(operand);
  }
}

// Every node after those it reads.
class Order {
 public:
  Order(const Graph& graph, const CompositePlan& plan)
      : graph_(graph), plan_(plan), visited_(graph.nodes.size(), false) {}

  void visit(size_t n) {
    if (visited_[n]) {
      return;
    }
    visited_[n] = true;
    for_each_read(graph_, plan_, n, [this](size_t read) { visit(read); });
    nodes.push_back(n);
  }
  bool visited(size_t n) const { return visited_[n]; }

  std::vector<size_t> nodes;

 private:
  const Graph& graph_;
  const CompositePlan& plan_;
  std::vector<bool> visited_;
};

// Whether what it reads depends on its results: it could not be one operation then.
bool reads_itself(const Graph& graph, const CompositePlan& plan, const Composite& composite) {
  Order before(graph, plan);
  for (GraphValue argument : composite.arguments) {
    if (argument.producer >= 0) {
      before.visit(static_cast<size_t>(argument.producer));
    }
  }
  return std::any_of(composite.outputs.begin(), composite.outputs.end(),
                     [&](size_t output) { return before.visited(output); });
}

// The nodes that are needed when composites stand for their bodies.
std::vector<bool> needed_nodes(const Graph& graph, const CompositePlan& plan) {
  std::vector<bool> needed(graph.nodes.size(), false);
  for (GraphValue output : graph.outputs) {
    if (output.producer >= 0) {
      needed[static_cast<size_t>(output.producer)] = true;
    }
  }
  std::for_each(plan.order.rbegin(), plan.order.rend(), [&](size_t n) {
    if (needed[n]) {
      for_each_read(graph, plan, n, [&](size_t read) { needed[read] = true; });
    }
  });
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
    Composite composite = Part(graph, marks).take();
    if (reads_itself(graph, plan, composite)) {
      continue;
    }
    for (size_t output : composite.outputs) {
      plan.composite_of[output] = static_cast<int>(plan.composites.size());
    }
    plan.composites.push_back(std::move(composite));
    plan.composites.back().name = key.first;
  }
  Order order(graph, plan);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    order.visit(n);
  }
  plan.order = std::move(order.nodes);
  if (!plan.composites.empty()) {
    const std::vector<bool> needed = needed_nodes(graph, plan);
    for (size_t n = 0; n < needed.size(); ++n) {
      plan.inside[n] = !needed[n];
    }
  }
  return plan;
}

}  // namespace torch_xla
