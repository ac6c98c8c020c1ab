// ATen CPU kernels called from inside a program, through XLA's FFI, on the program's own memory.
// Thread-safe; handlers run on the plugin's threads.
#pragma once

#include "host_ops/kernel_call.h"

namespace torch_xla {

// Whether programs of the running client can call back (starts the client).
bool host_calls_available();

// Makes calls of this signature possible: `op` is the operator named by it, or the one that
// mutates its arguments when no functional form exists. The signature is interned.
void register_host_op(const Signature& signature, const c10::OperatorHandle& op);

// The call of such a signature; null if it was never registered, or its operator is gone. The
// signature outlives it.
std::shared_ptr<const KernelCall> find_kernel_call(const Signature& signature);

// An operator is about to be removed: a notebook that defines it again, say. Calls recorded before
// are those of the next operator with the same schema.
void forget_removed_ops();

}  // namespace torch_xla
