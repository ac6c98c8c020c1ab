// Launching a compiled program on values, and what is in flight. Any thread; without the trace lock
// and the GIL unless said otherwise.
#pragma once

#include "graph/promote.h"
#include "values/state.h"

#include <string>
#include <vector>

namespace torch_xla {

// Which inputs some output takes over (Graph::donated, seen from the other side).
std::vector<bool> donated_inputs(const Graph& graph);

// Decides which output takes over the buffer of which input that nothing but this graph can reach:
// first each output its own former buffer, `former[o]`, if any; then any of its type. Right after
// the graph's collection, the trace lock still held. `read_by_others`: per input, or empty.
void assign_donations(Graph& graph, const std::vector<const Node*>& former,
                      const std::vector<bool>& read_by_others) REQUIRES(trace_mutex);

// Per input, whether something else than the graph and the storages that it computes refers to it:
// what other threads have recorded, say.
std::vector<bool> read_by_others(const Graph& graph, const std::vector<StatePtr>& states)
    REQUIRES(trace_mutex);

// Keeps other threads from donating what a program is about to read. The leaves must outlive it.
class InputHold {
 public:
  InputHold(const std::vector<NodePtr>& leaves, const std::vector<bool>& donated)
      REQUIRES(trace_mutex);
  ~InputHold();
  InputHold(const InputHold&) = delete;
  InputHold& operator=(const InputHold&) = delete;

 private:
  std::vector<DeviceData*> held_;
};

// Runs the program of `graph` on these leaves instead of the graph's own inputs. Returns when it is
// launched, with one buffer for each output.
struct Launched {
  std::vector<pjrt::BufferPtr> outputs;
  pjrt::CompletionPtr completion;
};
Launched launch_program(const Graph& graph, const Variant& variant, const std::string& name,
                        const std::vector<NodePtr>& leaves, const std::vector<bool>& donated,
                        int device) EXCLUDES(trace_mutex);

// To be called with each completion once the outputs are where others find them; keeps `program`
// until then. Waits for the
// program before the last, so that a host that only launches cannot run away from the device.
void note_in_flight(int device, pjrt::CompletionPtr completion, VariantPtr program)
    EXCLUDES(trace_mutex);

// Blocks until programs launched on the device are done; throws the first of their errors.
void wait_device(int device) EXCLUDES(trace_mutex);

}  // namespace torch_xla
