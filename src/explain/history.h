// Every compilation, with its reason. Graphs compiled lately are remembered to compare with; their
// number and the number of events are bounded. Nothing here runs when a program is found in memory.
// Thread-safe; call without the trace lock and without the front end's locks, since it may warn.
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace torch_xla::explain {

struct CompileEvent {
  uint64_t serial = 0;  // 1 for the first compilation of the process
  double time = 0;      // when it ended, in Unix seconds
  std::string name;     // of the graph or function: "step_fn", "sync at train.py:42"
  std::string file;     // the line that triggered it; empty when unknown
  int line = 0;
  double seconds = 0;      // lowering and compiling, or loading
  size_t operations = 0;   // in the graph
  bool from_disk = false;  // loaded from the disk cache instead of compiled
  size_t compilation = 1;  // the how-manieth under this name
  std::string cause;       // explain/compare.h
  std::string reason;
  std::string advice;
};

// One line for logs and errors.
std::string describe(const CompileEvent& event);

// To be called after each compilation, on the thread that asked for it.
void note_compiled(const Graph& graph, const std::string& name, std::vector<bool> promoted,
                   double seconds, bool from_disk);

// Oldest first; those after the compilation of this serial number.
std::vector<CompileEvent> events(uint64_t after = 0);
uint64_t last_serial();

}  // namespace torch_xla::explain
