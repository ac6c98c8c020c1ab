// The lock of what recording and syncs share: values of storages, marks in nodes, holders of
// leaves. It is held for the recording of one operation or the collection of one graph, never while
// compiling, executing, waiting, or acquiring Python's GIL (which PyTorch may where a trace takes a
// reference of a tensor: base/mutex.h).
#pragma once

#include "base/mutex.h"

#include <pthread.h>

#include <atomic>
#include <optional>

namespace torch_xla {

extern Mutex trace_mutex;

class TORCH_XLA_ANALYSED(scoped_lockable) TraceLock {
 public:
  TraceLock() ACQUIRE(trace_mutex) : lock_(trace_mutex) {
    holder_.store(pthread_self(), std::memory_order_relaxed);
  }
  ~TraceLock() RELEASE() { holder_.store(0, std::memory_order_relaxed); }

  static bool held_here() { return holder_.load(std::memory_order_relaxed) == pthread_self(); }

 private:
  static std::atomic<pthread_t> holder_;  // 0: nobody
  MutexLock lock_;
};

// Of what ends wherever its last reference is dropped, which may be under the lock.
class TORCH_XLA_ANALYSED(scoped_lockable) TraceLockIfFree {
 public:
  TraceLockIfFree() ACQUIRE(trace_mutex) {
    if (!TraceLock::held_here()) {
      lock_.emplace();
    }
  }
  ~TraceLockIfFree() RELEASE() = default;

 private:
  std::optional<TraceLock> lock_;
};

}  // namespace torch_xla
