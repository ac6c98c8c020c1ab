// Runs a graph without a program: node by node, each on PyTorch's CPU kernels, at the speed of
// eager PyTorch, with its numbers and, in the order in which it would, with as much memory. Only
// where the values' memory is the host's.
// Any thread; without the trace lock and the GIL (a kernel may be the user's and take it).
#pragma once

#include "base/error.h"
#include "ir/graph.h"
#include "pjrt/live_buffers.h"

#include <c10/core/Storage.h>

#include <functional>
#include <vector>

namespace torch_xla {

// An operation that only a program can run; nothing was changed.
class NotInterpretable : public Error {
 public:
  using Error::Error;
};

struct Interpretation {
  pjrt::DeviceMemory* memory = nullptr;      // where the values on the way are counted
  c10::ArrayRef<Number> numbers = {};        // of the call, if the graph is a computation's
  std::function<void(size_t)> failed = {};   // with the node that a kernel's error comes from
  std::function<void()> nothing_fails = {};  // from here on: no value, no type, no interrupt
  // Whether an input is about to be nobody else's: its memory may be written to before, if what was
  // there is put back where something fails. Waits for those who read it.
  std::function<bool(size_t)> may_be_written = {};
  bool own_kernels = false;  // the faster ones that programs call, with other last bits
};

// `inputs`: the memory of the graph's inputs. They are released at their last use; only what
// nobody else holds then is written to. Gives each output in memory of its own. Errors of kernels
// come with the user's line.
std::vector<c10::Storage> interpret(const Graph& graph, std::vector<c10::Storage> inputs,
                                    const Interpretation& how = {});

}  // namespace torch_xla
