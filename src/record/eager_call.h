// Operations of eager mode on host memory: what record/ knows of an operator, for eager/.
#pragma once

#include "record/recorder.h"

namespace torch_xla {

// Whether a call of now is the CPU's kernel of the same signature and nothing else.
bool runs_unboxed(const OpInfo& info);

void run_on_host_memory(const OpInfo& info, Arguments arguments, Returns& fresh);

// The values of a CPU tensor into an xla tensor.
void copy_on_host_memory(const at::Tensor& destination, const at::Tensor& source);

}  // namespace torch_xla
