// What the user sets for all programs from now on; regions of torch_xla.compile may say otherwise.
// Thread-safe.
#pragma once

#include "ir/graph.h"

#include <map>
#include <string>

namespace torch_xla {

// Options of XLA by name; of those of a region, too, which win.
void set_default_options(std::map<std::string, std::string> options);
// "DEFAULT", "HIGH" or "HIGHEST"; throws Error for another.
void set_precision(const std::string& precision);
std::string precision();

// The options of a program that is made by the calling thread now.
std::map<std::string, std::string> current_options();
// Whether the CPU's kernels run graphs before their programs do, here and unless a region says
// otherwise.
bool interprets_first();
// Gives them to a graph that has not been finished.
void apply_settings(Graph& graph);

}  // namespace torch_xla
