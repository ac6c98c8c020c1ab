// The largest of each window of an image and its place, several windows of a row at a time:
// PyTorch's kernel takes one number after the other. Stateless; from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace torch_xla {

// Of a call of max_pool2d_with_indices.
bool takes_max_pool(const torch::jit::Stack& arguments);

// Writes the call's two results.
void write_max_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results);

}  // namespace torch_xla
