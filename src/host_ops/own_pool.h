// Pools of images that kernels of ours compute: PyTorch's take one number after the other.
// Thread-safe.
#pragma once

#include "host_ops/divide.h"

namespace torch_xla {

// Calls of fewer numbers are left to PyTorch's kernels.
inline constexpr int64_t kFewForOwnPool = 1 << 12;

// The call as pieces for at most so many threads; none if it is not one of ours.
std::vector<CallPiece> divide_own_pool(const c10::OperatorHandle& op,
                                       const torch::jit::Stack& arguments, int64_t threads);

// Calls it as callBoxed() would, with PyTorch's threads; false, and nothing was done, if it is not
// one of ours.
bool call_own_pool(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace torch_xla
