// The process's table of compiled graph structures, bounded by TORCH_XLA_MEMORY_PROGRAMS.
#pragma once

#include "graph/promote.h"

#include <memory>
#include <string>

namespace torch_xla {

// Thread-safe; the reference stays valid while the returned pointer is held.
std::shared_ptr<Structure> find_structure(const Graph& graph);

// One line per node: "%3 = aten::mm(%0, %2)  # model.py:7".
std::string graph_text(const Graph& graph);

}  // namespace torch_xla
