// What a program of few operations gains over interpreting them. Stateless; any thread.
#pragma once

#include "ir/graph.h"

namespace torch_xla::tiers {

// Seconds that the operation's operands and results take through an ordinary processor's memory.
double moving(const Signature& signature);

// Seconds a run, negative if the program is slower.
double gain_of_program(const Graph& graph);

}  // namespace torch_xla::tiers
