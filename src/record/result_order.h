// In which order the CPU's kernels lay what they return in memory, where PyTorch's meta kernels,
// which are Python's or composed of others, say something else.
#pragma once

#include "record/meta.h"

namespace torch_xla {

// Any thread may call it; nothing is kept. Results that lie in the CPU's order stay as they are.
void keep_order(const c10::OperatorHandle& op, const IValues& meta_arguments, IValues& results);

}  // namespace torch_xla
