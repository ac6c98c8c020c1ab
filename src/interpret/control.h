// Calls, branches and loops without a program: what decides is read from memory.
#pragma once

#include "interpret/interpreter.h"

namespace torch_xla {

// The outputs of a node of the tier Call. `how` and threads as in interpreter.h.
std::vector<c10::Storage> run_computation(const Computation& computation,
                                          std::vector<c10::Storage> operands,
                                          const Interpretation& how);

}  // namespace torch_xla
