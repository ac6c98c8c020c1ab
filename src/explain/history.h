// Every graph that had no program, with the reason. Graphs met lately are remembered to compare
// with; their number and the number of events are bounded. Nothing here runs when a program is
// found in memory.
// Thread-safe; call without the trace lock and without the front end's locks, since it may warn.
#pragma once

#include "ir/graph.h"

#include <string>
#include <vector>

namespace torch_xla::explain {

struct CompileEvent {
  uint64_t serial = 0;  // 1 for the first of the process
  double time = 0;      // when it was met, in Unix seconds
  std::string name;     // of the graph or function: "step_fn", "sync at train.py:42"
  std::string file;     // the line that triggered it; empty when unknown
  int line = 0;
  bool compiled = false;    // false: its operations run one by one, so far
  int64_t interpreted = 0;  // runs before its program was used
  double seconds = 0;       // lowering and compiling, or loading
  size_t operations = 0;    // in the graph
  bool eager = false;       // one operation of eager mode
  bool from_disk = false;   // loaded from the disk cache instead of compiled
  size_t compilation = 1;   // the how-manieth under this name
  std::string cause;        // explain/compare.h
  std::string reason;
  std::string advice;
};

// One line for logs and errors.
std::string describe(const CompileEvent& event);

// A graph has no program that fits. To be called on the thread that asked for it, before it is
// compiled or interpreted. Gives the event's serial number.
uint64_t note_graph(const Graph& graph, const std::string& name, std::vector<bool> promoted);
// The program of this event is there and used from now on, after so many interpreted runs.
void note_compiled(uint64_t serial, double seconds, bool from_disk, int64_t interpreted);

// Oldest first; those after the compilation of this serial number.
std::vector<CompileEvent> events(uint64_t after = 0);
uint64_t last_serial();

}  // namespace torch_xla::explain
