#include "pjrt/fork_guard.h"

#include "base/error.h"

#include <pthread.h>

namespace torch_xla::pjrt {

std::atomic<bool> in_forked_child{false};

void watch_forks() {
  [[maybe_unused]] static const int once = pthread_atfork(
      nullptr, nullptr, [] { in_forked_child.store(true, std::memory_order_relaxed); });
}

void throw_in_forked_child() {
  throw Error(
      "torch_xla was already started in the parent process, and its devices cannot be used in a "
      "forked child: use the spawn start method (torch.multiprocessing.set_start_method('spawn'), "
      "DataLoader(multiprocessing_context='spawn')), or use xla tensors only in the parent");
}

}  // namespace torch_xla::pjrt
