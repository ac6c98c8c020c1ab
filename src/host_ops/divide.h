// Operators whose work divides into calls that run side by side. Thread-safe.
#pragma once

#include "host_ops/workers.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace torch_xla {

// One call that computes a part of each of some results: `length` of them from `start` on, along
// `dim`.
struct CallPiece {
  struct Part {
    size_t result = 0;
    int64_t dim = 0, start = 0, length = 0;
  };
  // Of ours: writes the parts where they are wanted.
  using Kernel = void (*)(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> parts);

  torch::jit::Stack arguments;
  std::vector<Part> parts;
  Kernel kernel = nullptr;  // null: the operator's, whose results are copied
};

// A piece's part of a tensor that is divided.
at::Tensor narrowed(const c10::IValue& value, int64_t dim, Range range);
// What is added or broadcast to the result (a bias, a mask), if anything: divided where that is,
// `from_last` dimensions before its end, unless it is broadcast there.
c10::IValue narrowed_summand(const c10::IValue& summand, int64_t from_last, Range range);

// Pieces along a dimension that the arguments `divided` and the first results have in common; none
// if there is no such dimension (-1).
std::vector<CallPiece> pieces_along(int64_t dim, const torch::jit::Stack& arguments,
                                    c10::ArrayRef<size_t> divided, int64_t threads,
                                    CallPiece::Kernel kernel = nullptr, size_t results = 1);

// Pieces that kernels of ours compute, on the threads that PyTorch's kernels have here.
void run_in_team(c10::ArrayRef<CallPiece> pieces, c10::ArrayRef<at::Tensor> results);

// The call as pieces for so many threads; empty if it is better not divided.
std::vector<CallPiece> divide(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                              int64_t threads);

}  // namespace torch_xla
