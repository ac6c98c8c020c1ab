// The largest of each window of an image and its place, several windows of a row at a time.
// Stateless; from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace torch_xla {

// Writes the two results of a call of max_pool2d_with_indices that own_pool.h takes, or of a piece
// of it.
void write_max_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results);

}  // namespace torch_xla
