// Indices that are on the host when an operator is called: wrong ones raise there, at the user's
// line.
#pragma once

#include "record/op_info.h"

#include <ATen/core/ivalue.h>

namespace torch_xla {

// Throws PyTorch's IndexError for CPU tensors among the indices of `info.op` that do not fit.
void check_host_indices(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_xla
