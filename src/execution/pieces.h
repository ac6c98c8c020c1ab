// Graphs that differ only at their edges (graph/edges.h) are run in pieces, so that they share the
// program of what they have in common. Any thread.
#pragma once

#include "graph/edges.h"

namespace torch_xla {

// The pieces to run instead of the graph; empty if it is to be run whole, as a graph is until
// another one with the same core comes.
std::vector<Piece> shared_pieces(const Graph& graph);

}  // namespace torch_xla
