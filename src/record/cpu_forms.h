// PyTorch composes a few operators differently for the CPU: LSTMs of oneDNN layers (rnn.cpp),
// attention of its flash kernel (attention.cpp). Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace torch_xla {

// Should such an operator be recorded in the CPU's form? Where the CPU's kernels can run, in eager
// mode and in programs of one device, and sizes are known.
bool takes_cpu_form(at::TensorList tensors);

}  // namespace torch_xla
