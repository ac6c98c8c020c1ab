#include "eager/mode.h"

#include "base/env.h"
#include "base/error.h"
#include "pjrt/client.h"
#include "sharding/spmd.h"
#include "trace/region.h"
#include "trace/scope.h"

#include <atomic>

namespace torch_xla::eager {

namespace {

std::atomic<bool> on{false};

// Decided by the first operation, because setting the flag must not start the client.
Mode choose_mode() {
  std::string wanted = env::choice("TORCH_XLA_EAGER");
  bool host_memory = pjrt::client().host_memory();
  if (wanted == "pjrt") {
    return Mode::Programs;
  }
  if (wanted == "host" && !host_memory) {
    throw Error("TORCH_XLA_EAGER=host: the memory of " + pjrt::client().platform_name() +
                " is not the host's; use TORCH_XLA_EAGER=pjrt");
  }
  return host_memory ? Mode::Host : Mode::Programs;
}

}  // namespace

void set_enabled(bool enabled) { on.store(enabled, std::memory_order_relaxed); }

bool flag() { return on.load(std::memory_order_relaxed); }

bool enabled() { return flag() && current_region() == nullptr && current_scope() == nullptr; }

Mode mode() {
  if (!enabled()) {
    return Mode::Off;
  }
  static const Mode chosen = choose_mode();
  return spmd_enabled() ? Mode::Programs : chosen;  // a sharded value is nobody's host memory
}

}  // namespace torch_xla::eager
