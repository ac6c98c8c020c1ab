#include "program/memory_limit.h"

#include "base/env.h"
#include "pjrt/client.h"
#include "pjrt/machine.h"

#include <algorithm>

namespace torch_xla {

// Elsewhere than on the CPU a program is no code of this process.
MemoryLimit::MemoryLimit()
    : mappings_(&pjrt::mapping_count, pjrt::client().host_memory() ? pjrt::mapping_limit() : 0) {}

size_t MemoryLimit::most(size_t kept) {
  const auto limit = static_cast<size_t>(env::integer("TORCH_XLA_MEMORY_PROGRAMS"));
  const MutexLock lock(mutex_);
  return mappings_.nearly_out() ? std::min(limit, kept / 2) : limit;
}

}  // namespace torch_xla
