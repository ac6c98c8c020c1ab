#include "pjrt/host_malloc.h"

#include "base/env.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace torch_xla::pjrt {

namespace {

bool set_by_the_user() {
  for (const char* name : {"GLIBC_TUNABLES", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_",
                           "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace

void keep_freed_memory() {
  if (!env::flag("TORCH_XLA_KEEP_FREED_MEMORY") || set_by_the_user()) {
    return;
  }
#ifdef __GLIBC__
  constexpr int kMegabyte = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMegabyte);  // as far as glibc raises it by itself
  mallopt(M_TRIM_THRESHOLD, 512 * kMegabyte);
  mallopt(M_TOP_PAD, 64 * kMegabyte);  // the size of a thread's heap: none is unmapped
#endif
}

}  // namespace torch_xla::pjrt
