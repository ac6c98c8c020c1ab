// Reads of a parameter that no data says come before its update: the gradient of a layer's input
// reads the weights that the gradient of these weights changes. XLA copies the parameter for such
// a read, unless the update waits for it: what the update is made of becomes a result that needs
// the read's, too. Stateless.
#pragma once

#include "ir/graph.h"

#include <map>
#include <vector>

namespace torch_xla {

struct Wait {
  uint32_t output = 0;            // of the node that waits
  std::vector<GraphValue> reads;  // what is read late
};

struct LateReads {
  std::map<size_t, Wait> waits;  // by node
  std::vector<size_t> order;     // all nodes, each behind what it needs or waits for
};

// Nothing waits where that would go in a circle.
LateReads find_late_reads(const Graph& graph);

}  // namespace torch_xla
