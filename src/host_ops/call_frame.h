// One host call: the program's memory wrapped as CPU tensors, the operator called on them, its
// results copied to where the program wants them.
#pragma once

#include "host_ops/kernel_call.h"
#include "host_ops/workers.h"

#include <vector>

namespace torch_xla {

// `inputs`: the operands' frames, one 0-d f64, i64 or complex128 per number, and the generator's
// state if the signature is random. `outputs`: the signature's frames. Throws the kernel's errors.
// Operators whose work divides run on the workers, too.
void run_host_op(const KernelCall& call, const std::vector<void*>& inputs,
                 const std::vector<void*>& outputs, Workers& workers);

}  // namespace torch_xla
