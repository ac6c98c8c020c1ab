// The largest of each window of an image and its place, several windows of a row at a time:
// PyTorch's kernel takes one number after the other. Stateless; from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace torch_xla {

// Of a call of max_pool2d_with_indices.
bool takes_max_pool(const torch::jit::Stack& arguments);

// Calls it for a whole batch, with all threads; false, and nothing was done, if PyTorch's kernel is
// to be called (the image is small, or it has to refuse the arguments).
bool call_max_pool(torch::jit::Stack& stack);

// Writes the call's two results, or parts of them.
void write_max_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results);

}  // namespace torch_xla
