// Averages of the windows of images, and their gradient, several windows of a row at a time, added
// in PyTorch's order. Stateless; from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace torch_xla {

// Write the result of a call of avg_pool2d and of avg_pool2d_backward that own_pool.h takes, or of
// a piece of it.
void write_avg_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results);
void write_avg_pool_gradient(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results);

}  // namespace torch_xla
