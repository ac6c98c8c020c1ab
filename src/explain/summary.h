// What is kept of a compiled graph, so that a later one can be compared with it: operators, lines,
// links and types, without nodes or values. Immutable once made; any thread.
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace torch_xla::explain {

struct Operation {
  SignaturePtr signature;      // without a computation
  uint32_t location = 0;       // base/location.h
  uint32_t first_operand = 0;  // into GraphSummary::operands
  uint32_t first_number = 0;   // into GraphSummary::numbers
  uint64_t key = 0;            // of operator and location: the same line of the program
};

struct GraphSummary {
  std::string name;
  uint64_t hash = 0;
  uint64_t hash_high = 0;
  std::vector<Operation> operations;  // producers first
  std::vector<GraphValue> operands;
  std::vector<Number> numbers;
  std::vector<bool> promoted;  // per number: an input of the program, its value compiles nothing
  std::vector<TensorType> inputs;
  std::vector<ShardingPtr> input_shardings, output_shardings;  // as in Graph
  std::vector<GraphValue> outputs;
  std::vector<int32_t> donated;        // per output, as in Graph
  std::vector<uint64_t> sorted_keys;   // of the operations
  std::vector<uint64_t> sorted_calls;  // keys with signatures: the same call, shapes included

  bool same_graph(const GraphSummary& other) const {
    return hash == other.hash && hash_high == other.hash_high;
  }
};

GraphSummary summarize(const Graph& graph, const std::string& name, std::vector<bool> promoted);

// How many elements two sorted lists have in common.
size_t count_common(const std::vector<uint64_t>& x, const std::vector<uint64_t>& y);

}  // namespace torch_xla::explain
