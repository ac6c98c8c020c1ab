// Averages of the windows of images, and their gradient, several windows of a row at a time, added
// in PyTorch's order. Stateless; from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace torch_xla {

// Of a call of avg_pool2d.
bool takes_avg_pool(const torch::jit::Stack& arguments);
// Writes the call's result, or a part of it.
void write_avg_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results);
// Calls it for a whole batch, with all threads; false, and nothing was done, if PyTorch's kernel is
// to be called.
bool call_avg_pool(torch::jit::Stack& stack);

// The same of avg_pool2d_backward.
bool takes_avg_pool_gradient(const torch::jit::Stack& arguments);
void write_avg_pool_gradient(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results);
bool call_avg_pool_gradient(torch::jit::Stack& stack);

}  // namespace torch_xla
