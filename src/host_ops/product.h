// Matrix products of float32 that oneDNN computes faster than the kernels PyTorch's CPU takes.
// Thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_xla {

// Writes the result of a call of mm, addmm, bmm or baddbmm, or does nothing and returns false: where
// MKL is as fast, and for all other operators.
bool multiply_by_onednn(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                        const at::Tensor& result);

}  // namespace torch_xla
