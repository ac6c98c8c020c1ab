// Matrix products of float32 that oneDNN computes faster than the kernels PyTorch's CPU takes.
// Thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_xla {

// Whether these may be the case, and of which result.
bool is_product_of_onednn(const c10::OperatorHandle& op, at::ScalarType result);

// Writes the result of a call of mm, addmm, bmm or baddbmm. False: nothing was done, because MKL is
// as fast, or it is another operator.
bool multiply_by_onednn(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                        const at::Tensor& result);

}  // namespace torch_xla
