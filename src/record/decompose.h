// Operators without a lowering, where no host kernel can be called from a program: PyTorch's
// decompositions, which only the front end can run. Set once, by the front end.
#pragma once

#include "record/op_info.h"

#include <exception>

namespace torch_xla {

// A decomposition exists, but not of this call.
struct CallNotDecomposed : std::exception {};

// Replaces the functional operator's arguments on the stack by its results, computed by other
// operators; false when there is no decomposition.
using Decomposer = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void set_decomposer(Decomposer decomposer);

// Runs `info.op` by decomposition: arguments on the stack become returns. False: stack untouched.
bool run_decomposition(const OpInfo& info, torch::jit::Stack* stack);

}  // namespace torch_xla
