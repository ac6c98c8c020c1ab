// Operations of eager mode on host memory: what record/ knows of an operator, for eager/.
#pragma once

#include "record/recorder.h"

namespace torch_xla {

// What a call is measured by.
inline int64_t elements_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.has_symbolic_sizes_strides() ? 0 : impl.numel();
}

// Whether the call that begins runs at once, on host memory: in eager mode, or because of the
// thread's habit (tiers/reading_habit.h). To be asked once for each call.
bool runs_on_host(const OpInfo& info, int64_t elements);
// Whether that is the CPU's kernel of the same signature and nothing else.
bool has_plain_kernel(const OpInfo& info);

void run_on_host_memory(const OpInfo& info, Arguments arguments, Returns& fresh);

// The values of a CPU tensor into an xla tensor.
void copy_on_host_memory(const at::Tensor& destination, const at::Tensor& source);

}  // namespace torch_xla
