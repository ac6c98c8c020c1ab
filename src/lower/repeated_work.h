// Elementwise values that would be computed again and again: XLA-CPU makes such a value a part of
// each loop that reads it, so that in a deep model, whose layers each add to what the layers before
// made, the loops of a layer repeat the sums of all layers before it. Stateless.
#pragma once

#include "ir/graph.h"

#include <vector>

namespace torch_xla {

// Per node: whether its first result is to be in memory, so that its readers need not repeat it.
// (A call that does nothing, since XLA-CPU drops barriers before it fuses.)
std::vector<bool> worth_keeping(const Graph& graph);

}  // namespace torch_xla
