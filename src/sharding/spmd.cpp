#include "sharding/spmd.h"

#include "base/env.h"

#include <atomic>

namespace torch_xla {

namespace {

std::atomic<bool>& spmd_flag() {
  static auto* instance = new std::atomic<bool>(env::flag("XLA_USE_SPMD"));
  return *instance;
}

}  // namespace

bool spmd_enabled() { return spmd_flag().load(std::memory_order_relaxed); }

void enable_spmd() { spmd_flag().store(true, std::memory_order_relaxed); }

}  // namespace torch_xla
