// Parts of a graph that the user marked as one operation (torch_xla::mark_tensor): which nodes they
// are. In the text they become `stablehlo.composite`s with the part as a function. Stateless.
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace torch_xla {

// torch_xla::mark_tensor(Tensor x, str name, int pos, str id, bool is_input, str attributes)
inline constexpr const char* kMarkTensor = "torch_xla::mark_tensor";

struct Composite {
  std::string name;
  std::string attributes;             // a dictionary in MLIR's words
  std::vector<GraphValue> arguments;  // what the inputs' marks give, then what is read besides
  std::vector<size_t> body;           // nodes, in order
  std::vector<size_t> outputs;        // the marks of the results
};

struct CompositePlan {
  std::vector<Composite> composites;
  std::vector<int> composite_of;  // per node: of whose results it is the mark, or -1
  std::vector<bool> inside;       // per node: needed by composites only
  std::vector<size_t> order;      // all nodes; what a composite reads comes before its results
};

CompositePlan find_composites(const Graph& graph);

}  // namespace torch_xla
