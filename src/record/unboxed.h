// Kernels of the operators that programs call most, without boxing: the dispatcher would copy each
// tensor into the boxed call, and a tensor's second reference is one that PyTorch takes and gives
// back under Python's interpreter lock. Here arguments are lent. Any thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace torch_xla {

// Registers the recorder for an operator without boxing; false: it is none of these.
bool register_unboxed(torch::Library& library, const c10::OperatorHandle& op);

}  // namespace torch_xla
