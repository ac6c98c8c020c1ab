// Pending values -> a graph.
#pragma once

#include "ir/graph.h"

namespace torch_xla {

// Everything `outputs` depend on, in an order that repeats when the program repeats. Leaves become
// inputs. `donated` is left at -1.
Graph collect_graph(const std::vector<Value>& outputs) REQUIRES(trace_mutex);  // it marks nodes

uint64_t new_visit_epoch();  // for another walk that marks nodes

// Sets the hash from structure, donations and shardings; to be called once these are known.
void finish_graph(Graph& graph);

// The same graph over Parameters, with nodes of its own: it keeps no value alive.
Graph without_values(const Graph& graph);

// As PyTorch/XLA writes its graphs, one line per input and node:
// "%3 = f32[2,2]{1,0} aten::mm(%0, %2), xla_shape=f32[2,2]{1,0}, location=f@model.py:7, ROOT=0".
std::string graph_text(const Graph& graph);

}  // namespace torch_xla
