// Indices that are on the host when an operator is called: wrong ones raise there, at the user's
// line.
#pragma once

#include "record/op_info.h"

#include <ATen/core/ivalue.h>

namespace torch_xla {

// Throws PyTorch's error for indices and masks of `info.op`, as far as they are on the host, that
// do not fit.
void check_host_indices(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_xla
