#include "program/memory_limit.h"

#include "base/env.h"
#include "pjrt/machine.h"

#include <algorithm>

namespace torch_xla {

// Also elsewhere than on the CPU: some plugins have code in this process there, too, and what is
// somebody else's is left alone.
MemoryLimit::MemoryLimit() : mappings_(&pjrt::mapping_count, pjrt::mapping_limit()) {}

size_t MemoryLimit::most(size_t kept) {
  const auto limit = static_cast<size_t>(env::integer("TORCH_XLA_MEMORY_PROGRAMS"));
  const MutexLock lock(mutex_);
  return mappings_.nearly_out() ? std::min(limit, kept / 2) : limit;
}

}  // namespace torch_xla
