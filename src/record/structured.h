// What operators with structured kernels return. PyTorch divides such a kernel in two, a C++
// function that tells sizes, dtypes and order and raises errors, and the computation; the first
// takes microseconds, where the meta kernels that Python registers instead take a fraction of a
// millisecond.
#pragma once

#include "record/meta.h"

namespace torch_xla {

bool is_structured(const c10::OperatorHandle& op);

// nullopt where `op` has no such kernel. Errors about the arguments are PyTorch's.
std::optional<IValues> run_structured(const c10::OperatorHandle& op, const IValues& meta_arguments);

}  // namespace torch_xla
