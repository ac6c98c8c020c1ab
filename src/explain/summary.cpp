#include "explain/summary.h"

#include "base/hasher.h"

#include <algorithm>

namespace torch_xla::explain {

namespace {

// Computations are large.
SignaturePtr without_computation(const SignaturePtr& signature) {
  if (signature->computation == nullptr) {
    return signature;
  }
  auto copy = std::make_shared<Signature>(*signature);
  copy->computation.reset();
  return copy;
}

}  // namespace

GraphSummary summarize(const Graph& graph, const std::string& name, std::vector<bool> promoted) {
  GraphSummary summary;
  summary.name = name;
  summary.hash = graph.hash;
  summary.hash_high = graph.hash_high;
  summary.operands = graph.operands;
  summary.numbers = graph.numbers;
  summary.promoted = std::move(promoted);
  summary.outputs = graph.outputs;
  summary.donated = graph.donated;
  summary.input_shardings = graph.input_shardings;
  summary.output_shardings = graph.output_shardings;
  for (const NodePtr& input : graph.inputs) {
    summary.inputs.push_back(input->type(0));
  }
  summary.operations.reserve(graph.nodes.size());
  summary.sorted_keys.reserve(graph.nodes.size());
  for (const GraphNode& entry : graph.nodes) {
    const Node& node = *entry.node;
    Hasher key;
    key.add(std::string_view(node.signature->op));
    key.add(node.location);
    summary.operations.push_back({without_computation(node.signature), node.location,
                                  entry.first_operand, entry.first_number, key.low()});
    summary.sorted_keys.push_back(key.low());
    key.add(node.signature->hash);
    summary.sorted_calls.push_back(key.low());
  }
  std::sort(summary.sorted_keys.begin(), summary.sorted_keys.end());
  std::sort(summary.sorted_calls.begin(), summary.sorted_calls.end());
  return summary;
}

size_t count_common(const std::vector<uint64_t>& x, const std::vector<uint64_t>& y) {
  size_t common = 0;
  auto i = x.begin();
  auto j = y.begin();
  while (i != x.end() && j != y.end()) {
    if (*i == *j) {
      ++common;
      ++i;
      ++j;
    } else if (*i < *j) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

}  // namespace torch_xla::explain
