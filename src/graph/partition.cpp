#include "graph/partition.h"

#include "graph/max_flow.h"

#include <algorithm>
#include <map>

namespace torch_xla {

namespace {

size_t operand_count(const Graph& graph, size_t node) {
  return graph.nodes[node].node->operands.size();
}

GraphValue operand(const Graph& graph, size_t node, size_t i) { return graph.operands_of(node)[i]; }

// Per node: do `outputs` depend on it, other than through `given` values?
template <typename IsGiven>
std::vector<bool> ancestors(const Graph& graph, const std::vector<GraphValue>& outputs,
                            const IsGiven& is_given) {
  std::vector<bool> needed(graph.nodes.size(), false);
  auto need = [&](GraphValue value) {
    if (!is_given(value)) {
      needed[value.producer] = true;
    }
  };
  std::for_each(outputs.begin(), outputs.end(), need);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    for (size_t i = 0; needed[n] && i < operand_count(graph, n); ++i) {
      need(operand(graph, n, i));
    }
  }
  return needed;
}

bool is_input(GraphValue value) { return value.producer < 0; }

// Per node: does it depend on an incoming gradient?
std::vector<bool> descendants_of_tangents(const Graph& joint, const std::vector<InputRole>& roles) {
  std::vector<bool> result(joint.nodes.size(), false);
  for (size_t n = 0; n < joint.nodes.size(); ++n) {
    for (size_t i = 0; i < operand_count(joint, n); ++i) {
      GraphValue value = operand(joint, n, i);
      result[n] = result[n] || (value.producer < 0 ? roles[value.index] == InputRole::Tangent
                                                   : result[value.producer]);
    }
  }
  return result;
}

// The values to keep: a minimum cut, by bytes, between what the forward must compute and what the
// backward uses. Whole nodes are cut, so that a vertex pair stands for all outputs of a node.
class CutFinder {
 public:
  CutFinder(const Graph& joint, const std::vector<InputRole>& roles,
            const std::vector<bool>& tangent, const std::vector<GraphValue>& results,
            const std::vector<GraphValue>& gradients)
      : joint_(joint),
        roles_(roles),
        tangent_(tangent),
        gradients_(gradients),
        computed_(ancestors(joint, results, is_input)),
        needed_(ancestors(joint, gradients, is_input)) {}

  std::vector<GraphValue> run() {
    auto values = static_cast<int32_t>(joint_.inputs.size() + joint_.nodes.size());
    source_ = 2 * values;
    sink_ = source_ + 1;
    MaxFlow flow(sink_ + 1);
    find_used_bytes();
    for (size_t i = 0; i < joint_.inputs.size(); ++i) {
      if (roles_[i] == InputRole::Primal) {
        add_input(flow, static_cast<int32_t>(i));
      }
    }
    for (size_t n = 0; n < joint_.nodes.size(); ++n) {
      if (needed_[n]) {
        add_node(flow, n);
      }
    }
    for (GraphValue gradient : gradients_) {
      if (is_cuttable(gradient)) {
        flow.add_edge(out(vertex(gradient)), sink_, MaxFlow::kInfinite);
      }
    }
    flow.run(source_, sink_);
    return cut(flow);
  }

 private:
  int32_t vertex(GraphValue value) const {
    return value.producer < 0 ? static_cast<int32_t>(value.index)
                              : static_cast<int32_t>(joint_.inputs.size()) + value.producer;
  }
  static int32_t in(int32_t v) { return 2 * v; }
  static int32_t out(int32_t v) { return 2 * v + 1; }

  bool is_cuttable(GraphValue value) const {
    return value.producer < 0 ? roles_[value.index] == InputRole::Primal
                              : !tangent_[value.producer];
  }

  // Bytes of a node's outputs that anything in the backward's cone uses.
  void find_used_bytes() {
    used_.resize(joint_.nodes.size());
    auto use = [&](GraphValue value) {
      if (value.producer >= 0) {
        auto& outputs = used_[value.producer];
        if (std::find(outputs.begin(), outputs.end(), value.index) == outputs.end()) {
          outputs.push_back(value.index);
        }
      }
    };
    for (size_t n = 0; n < joint_.nodes.size(); ++n) {
      for (size_t i = 0; needed_[n] && i < operand_count(joint_, n); ++i) {
        use(operand(joint_, n, i));
      }
    }
    std::for_each(gradients_.begin(), gradients_.end(), use);
  }

  // An argument lives on anyway: keeping it is next to free.
  void add_input(MaxFlow& flow, int32_t v) const {
    flow.add_edge(source_, in(v), MaxFlow::kInfinite);
    flow.add_edge(in(v), out(v), 1);
  }

  void add_node(MaxFlow& flow, size_t n) const {
    auto v = static_cast<int32_t>(joint_.inputs.size() + n);
    const Node& node = *joint_.nodes[n].node;
    if (!tangent_[n]) {
      int64_t bytes = 16;  // each kept value costs a little, whatever its size
      for (uint32_t output : used_[n]) {
        bytes += node.type(output).nbytes();
      }
      flow.add_edge(in(v), out(v), bytes);
      // What only the gradient needs (a checkpoint's recomputation) is never worth keeping.
      if (!node.signature->cheap && computed_[n]) {
        flow.add_edge(source_, in(v), MaxFlow::kInfinite);
      }
    }
    for (size_t i = 0; i < node.operands.size(); ++i) {
      GraphValue value = operand(joint_, n, i);
      if (is_cuttable(value)) {
        flow.add_edge(out(vertex(value)), tangent_[n] ? sink_ : in(v), MaxFlow::kInfinite);
      }
    }
  }

  std::vector<GraphValue> cut(const MaxFlow& flow) const {
    std::vector<GraphValue> saved;
    auto is_cut = [&](int32_t v) {
      return flow.on_source_side(in(v)) && !flow.on_source_side(out(v));
    };
    for (size_t i = 0; i < joint_.inputs.size(); ++i) {
      if (roles_[i] == InputRole::Primal && is_cut(static_cast<int32_t>(i))) {
        saved.push_back({-1, static_cast<uint32_t>(i)});
      }
    }
    for (size_t n = 0; n < joint_.nodes.size(); ++n) {
      if (needed_[n] && !tangent_[n] && is_cut(static_cast<int32_t>(joint_.inputs.size() + n))) {
        for (uint32_t output : used_[n]) {
          saved.push_back({static_cast<int32_t>(n), output});
        }
      }
    }
    return saved;
  }

  const Graph& joint_;
  const std::vector<InputRole>& roles_;
  const std::vector<bool>& tangent_;
  const std::vector<GraphValue>& gradients_;
  const std::vector<bool> computed_;  // per node: part of the forward
  const std::vector<bool> needed_;    // per node: in the backward's cone
  std::vector<std::vector<uint32_t>> used_;
  int32_t source_ = 0, sink_ = 0;
};

}  // namespace

Graph extract(const Graph& graph, const std::vector<GraphValue>& inputs,
              const std::vector<GraphValue>& outputs) {
  Graph part;
  std::map<std::pair<int32_t, uint32_t>, uint32_t> input_of;
  for (size_t i = 0; i < inputs.size(); ++i) {
    part.inputs.push_back(make_parameter_node(graph.type(inputs[i])));
    input_of.try_emplace({inputs[i].producer, inputs[i].index}, static_cast<uint32_t>(i));
  }
  std::vector<int32_t> moved(graph.nodes.size(), -1);
  auto reference = [&](GraphValue value) -> GraphValue {
    auto found = input_of.find({value.producer, value.index});
    return found != input_of.end() ? GraphValue{-1, found->second}
                                   : GraphValue{moved[value.producer], value.index};
  };
  auto is_given = [&](GraphValue value) {
    return input_of.count({value.producer, value.index}) > 0;
  };
  std::vector<bool> needed = ancestors(graph, outputs, is_given);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!needed[n]) {
      continue;
    }
    const GraphNode& entry = graph.nodes[n];
    moved[n] = static_cast<int32_t>(part.nodes.size());
    part.nodes.push_back({entry.node, static_cast<uint32_t>(part.operands.size()),
                          static_cast<uint32_t>(part.numbers.size())});
    for (size_t i = 0; i < entry.node->operands.size(); ++i) {
      part.operands.push_back(reference(operand(graph, n, i)));
    }
    part.numbers.insert(part.numbers.end(), entry.node->numbers.begin(), entry.node->numbers.end());
  }
  for (GraphValue output : outputs) {
    part.outputs.push_back(reference(output));
  }
  part.donated.assign(part.outputs.size(), -1);
  part.xla_options = graph.xla_options;
  part.precision = graph.precision;
  return part;
}

namespace {

// Where the value is among others, to which it is added if it is not.
int32_t place_in(std::vector<GraphValue>& values, GraphValue value) {
  auto found = std::find_if(values.begin(), values.end(), [&](GraphValue other) {
    return other.producer == value.producer && other.index == value.index;
  });
  if (found == values.end()) {
    found = values.insert(found, value);
  }
  return static_cast<int32_t>(found - values.begin());
}

}  // namespace

Partition partition(const Graph& joint, const std::vector<InputRole>& roles,
                    size_t forward_outputs) {
  auto split = joint.outputs.begin() + static_cast<std::ptrdiff_t>(forward_outputs);
  std::vector<GraphValue> results(joint.outputs.begin(), split);
  std::vector<GraphValue> gradients(split, joint.outputs.end());
  std::vector<bool> tangent = descendants_of_tangents(joint, roles);
  Partition parts;
  parts.saved = CutFinder(joint, roles, tangent, results, gradients).run();
  std::vector<GraphValue> forward_inputs, backward_inputs = parts.saved;
  for (size_t i = 0; i < roles.size(); ++i) {
    GraphValue input{-1, static_cast<uint32_t>(i)};
    if (roles[i] == InputRole::Tangent) {
      parts.tangents.push_back(static_cast<int32_t>(i));
      continue;
    }
    forward_inputs.push_back(input);
    if (roles[i] == InputRole::Constant) {
      parts.constants.push_back(static_cast<int32_t>(i));
      backward_inputs.push_back(input);
    }
  }
  for (int32_t i : parts.tangents) {
    backward_inputs.push_back({-1, static_cast<uint32_t>(i)});
  }
  for (GraphValue value : parts.saved) {
    parts.saved_outputs.push_back(value.producer < 0 ? -1 : place_in(results, value));
  }
  parts.forward = extract(joint, forward_inputs, results);
  parts.backward = extract(joint, backward_inputs, gradients);
  return parts;
}

}  // namespace torch_xla
