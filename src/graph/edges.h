// Bookkeeping at the edges of a graph: small whole numbers (the tokens so far, positions, masks,
// what has ended) from which the rest begins, or that are made of its results. Where their shapes
// grow with each run, the rest stays one program if they are run apart.
#pragma once

#include "ir/graph.h"

namespace torch_xla {

struct Piece {
  Graph graph;
  std::vector<GraphValue> inputs, outputs;  // parallel to the graph's, as values of the whole
  bool edge = false;
};

// The graph as pieces to run one after the other: an edge, the core, an edge; one edge if it is
// nothing else. Empty if there is nothing to cut off. Hashed, with the whole graph's options.
std::vector<Piece> cut_edges(const Graph& graph);

}  // namespace torch_xla
