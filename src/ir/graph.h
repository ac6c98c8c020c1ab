// A closed piece of trace in topological order: what is lowered, compiled and run as one program.
// Immutable after it is built; keeps its nodes alive.
#pragma once

#include "ir/node.h"
#include "sharding/sharding.h"

#include <map>

namespace torch_xla {

// A value inside a graph: input `index` when producer < 0, else output `index` of
// nodes[producer].
struct GraphValue {
  int32_t producer = -1;
  uint32_t index = 0;
};

struct GraphNode {
  NodePtr node;
  uint32_t first_operand = 0;  // into Graph::operands (operands_of)
  uint32_t first_number = 0;   // into Graph::numbers; node->numbers.size() entries
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<GraphValue> operands;
  std::vector<Number> numbers;

  std::vector<NodePtr> inputs;  // Data or Parameter nodes
  std::vector<GraphValue> outputs;
  // donated[i]: the input whose buffer output i may reuse, or -1.
  std::vector<int32_t> donated;

  // Every number is an input of the program (eager operations), not only those seen to change.
  bool numbers_are_inputs = false;
  // Options of XLA for this graph by name, part of the hash.
  std::map<std::string, std::string> xla_options;
  // Of products and convolutions: "DEFAULT", "HIGH" or "HIGHEST"; part of the hash.
  std::string precision = "DEFAULT";

  // A program over several devices (sharding/): how each input lies on them, and how each output
  // must; null: as the compiler chooses. Empty for a program of one device.
  std::vector<ShardingPtr> input_shardings;
  std::vector<ShardingPtr> output_shardings;
  int64_t partitions = 1;

  // Structure only (signatures, links, input types, donations), without the numbers' values.
  uint64_t hash = 0;
  uint64_t hash_high = 0;

  c10::ArrayRef<GraphValue> operands_of(const GraphNode& entry) const {
    return {operands.data() + entry.first_operand, entry.node->operands.size()};
  }
  c10::ArrayRef<GraphValue> operands_of(size_t node) const { return operands_of(nodes[node]); }

  const TensorType& type(GraphValue value) const {
    return value.producer < 0 ? inputs[value.index]->type(0)
                              : nodes[value.producer].node->type(value.index);
  }
};

struct Computation;

// How a node of the tier Call runs its computation.
struct Control {
  enum class Kind : uint8_t {
    Call,   // once
    If,     // this or `otherwise`, as operand 0 (a bool) says; the others are inputs
    While,  // as long as the first carried value (a bool) is true
    Scan,   // `length` times
  };
  Kind kind = Kind::Call;
  std::shared_ptr<const Computation> otherwise;
  // A loop's operands are carried values, which the computation's first outputs replace; stacks,
  // of which it sees a slice each time; and values that stay. Its further outputs are stacked.
  size_t carried = 0, sliced = 0;
  int64_t length = 0;
  bool reverse = false;
};

// A graph over Parameter inputs, kept by a signature and inlined or called by its nodes. `hash`
// covers the numbers' values too: computations with equal hashes are one function of a module.
struct Computation {
  std::string name;
  Graph graph;
  uint64_t hash = 0;
  Control control;
};

}  // namespace torch_xla
