// The gradient of batch normalisation in training, where the numbers of an image's channel lie one
// after another. XLA-CPU adds one number after another, PyTorch's kernel cannot be divided among a
// program's threads. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace torch_xla {

// Whether write_batch_norm_gradient takes such a call of aten::native_batch_norm_backward.
bool takes_batch_norm_gradient(const torch::jit::Stack& arguments);

// Some channels of the call: the gradients that its mask asks for, in order.
void write_batch_norm_gradient(const torch::jit::Stack& arguments,
                               c10::ArrayRef<at::Tensor> results);

}  // namespace torch_xla
