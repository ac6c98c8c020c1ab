// A plugin's threads do not exist in a forked child, so nothing of it may be used there: a lock
// that one of them held would never be released. Any thread.
#pragma once

#include <atomic>

namespace torch_xla::pjrt {

// Called when a plugin is loaded; from then on, children of this process are refused.
void watch_forks();

extern std::atomic<bool> in_forked_child;

// Throws in a child of a process that had called watch_forks().
void throw_in_forked_child();
inline void refuse_forked_child() {
  if (in_forked_child.load(std::memory_order_relaxed)) [[unlikely]] {
    throw_in_forked_child();
  }
}

}  // namespace torch_xla::pjrt
