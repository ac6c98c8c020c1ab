// The lock of what recording and syncs share: values of storages, marks in nodes, holders of
// leaves. It is held for the recording of one operation or the collection of one graph, never while
// compiling, executing, waiting, or acquiring Python's GIL.
#pragma once

#include "base/mutex.h"

namespace torch_xla {

extern Mutex trace_mutex;

class TORCH_XLA_ANALYSED(scoped_lockable) TraceLock {
 public:
  TraceLock() ACQUIRE(trace_mutex) : lock_(trace_mutex) {}
  ~TraceLock() RELEASE() = default;

 private:
  MutexLock lock_;
};

}  // namespace torch_xla
