// Runs a graph without a program: node by node, each on PyTorch's CPU kernels, at the speed of
// eager PyTorch and with its numbers. Only where the values' memory is the host's.
// Any thread; without the trace lock and the GIL (a kernel may be the user's and take it).
#pragma once

#include "base/error.h"
#include "ir/graph.h"

#include <c10/core/Storage.h>

#include <vector>

namespace torch_xla {

// An operation that only a program can run; nothing was changed.
class NotInterpretable : public Error {
 public:
  using Error::Error;
};

// `inputs`: the memory of the graph's inputs, which is only read; they are released at their last
// use. Gives each output in memory of its own. Errors of kernels come with the user's line; then
// `culprit`, if given, is the node's number. `given`: the numbers of the call, if the graph is a
// computation's.
std::vector<c10::Storage> interpret(const Graph& graph, std::vector<c10::Storage> inputs,
                                    size_t* culprit = nullptr, c10::ArrayRef<Number> given = {});

}  // namespace torch_xla
