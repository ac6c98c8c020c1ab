// Operators whose result sizes depend on values, or that return numbers: they read their operands
// on the host, run PyTorch's CPU kernel and hand the results back to the device. Counted as
// aten::<op>.
#pragma once

#include "record/op_info.h"

namespace torch_xla {

void run_on_host(const OpInfo& info, torch::jit::Stack* stack);

}  // namespace torch_xla
