#include "pjrt/fork_guard.h"

#include "base/error.h"
#include "base/trace_lock.h"
#include "pjrt/host_malloc.h"

#include <pthread.h>

namespace torch_xla::pjrt {

std::atomic<bool> in_forked_child{false};

namespace {

// The child, which frees the tensors that it does not need, finds the trace as nobody left it half
// changed, and its lock free.
void before_fork() NOT_ANALYSED {
  trace_mutex.lock();
  hold_arena();
}
void let_go(bool in_child) NOT_ANALYSED {
  let_arena_go(in_child);
  trace_mutex.unlock();
}
void in_parent() { let_go(/*in_child=*/false); }
void in_child() {
  in_forked_child.store(true, std::memory_order_relaxed);
  let_go(/*in_child=*/true);
}

}  // namespace

void watch_forks() {
  [[maybe_unused]] static const int once = pthread_atfork(&before_fork, &in_parent, &in_child);
}

void throw_in_forked_child() {
  throw Error(
      "torch_xla was already started in the parent process, and its devices cannot be used in a "
      "forked child: use the spawn start method (torch.multiprocessing.set_start_method('spawn'), "
      "DataLoader(multiprocessing_context='spawn')), or use xla tensors only in the parent");
}

}  // namespace torch_xla::pjrt
