// Which storages have values that are recorded and not yet computed, and whose they are: a
// thread's, if it assigned them last. Numbers of threads that have ended are used again.
#pragma once

#include "values/state.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <vector>

namespace torch_xla {

// Pending values are also those of nobody: of threads that have ended, and of backward passes that
// nobody has told of. Whoever syncs takes them.
constexpr uint32_t kNobody = 0;

// The calling thread, or the one that began the backward pass it is in.
uint32_t recording_thread() REQUIRES(trace_mutex);

// From here to the end of the scope, backward passes that the calling thread begins record for it,
// on whatever thread their parts run.
class PassOfThread {
 public:
  PassOfThread();
  ~PassOfThread();
  PassOfThread(const PassOfThread&) = delete;
  PassOfThread& operator=(const PassOfThread&) = delete;

 private:
  std::shared_ptr<c10::ThreadLocalDebugInfo> outside_;
};

// Storages with pending values that the calling thread's sync takes: its own and nobody's. Oldest
// assignment first.
std::vector<StatePtr> pending_states(int device) REQUIRES(trace_mutex);
// Everyone's.
std::vector<StatePtr> all_pending_states(int device) REQUIRES(trace_mutex);
// Of everyone's those whose values were assigned since the last call for this device: reads that
// look at what else is pending look at everything once.
std::vector<StatePtr> newly_pending_states(int device) REQUIRES(trace_mutex);

bool is_taken_here(const StorageState& state) REQUIRES(trace_mutex);  // by pending_states()
bool is_anything_taken_here(int device) REQUIRES(trace_mutex);
size_t pending_count(int device) REQUIRES(trace_mutex);  // everyone's

// For StorageState, whose value has changed.
void link_pending(StorageState& state) REQUIRES(trace_mutex);
void unlink_pending(StorageState& state) REQUIRES(trace_mutex);

}  // namespace torch_xla
