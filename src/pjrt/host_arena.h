// Large blocks of the host's memory, next to each other in one range of addresses. Freed ones join
// their free neighbours and stay mapped for the next that fit: what a training step frees, the next
// one asks for again; given back to the kernel in between, each page would fault anew. In use and
// kept together hardly exceed what was in use at once lately, so a process needs no more memory
// than without. Thread-safe.
#pragma once

#include "base/mutex.h"
#include "pjrt/ranges.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <unordered_map>

namespace torch_xla::pjrt {

class HostArena {
 public:
  static constexpr size_t kAlignment = 64;  // of blocks

  // Reserves addresses, not memory; fewer if the process may not have as many.
  explicit HostArena(size_t addresses);
  ~HostArena();  // nothing may be in use
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // At least `size` bytes; null if there is no memory. With `expect_freed` it waits for a moment
  // where a very large block like it may be about to be freed.
  void* take(size_t size, bool expect_freed = false);
  // Of blocks of the arena.
  void give_back(void* block);
  size_t size_of(const void* block);

  bool owns(const void* block) const {
    return reinterpret_cast<uintptr_t>(block) - reinterpret_cast<uintptr_t>(base_) < reserved_;
  }

  // Gives what is kept back to the kernel.
  void release();

  // Around a fork, so that the child finds nothing half changed. It has no thread but its own.
  void before_fork() ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork(bool in_child) RELEASE(mutex_) {
    huge_pages_ = huge_pages_ && !in_child;
    mutex_.unlock();
  }

  struct Usage {
    size_t in_use, kept;
  };
  Usage usage();

 private:
  void count_periods() REQUIRES(mutex_);
  size_t kept() const REQUIRES(mutex_) { return free_.count() - clean_.count(); }
  size_t peak() const REQUIRES(mutex_);
  bool is_new(size_t place, size_t size) const REQUIRES(mutex_);
  bool freed_soon(size_t size) const REQUIRES(mutex_);
  size_t find_place(size_t size, bool expect_freed, MutexLock& lock) REQUIRES(mutex_);
  bool make_usable(size_t end) REQUIRES(mutex_);
  void keep_what_may_be_needed() REQUIRES(mutex_);
  void use_huge_pages_if_due() REQUIRES(mutex_);
  void use_huge_pages() EXCLUDES(mutex_);
  std::optional<size_t> huge_page_from(size_t at) EXCLUDES(mutex_);
  void keep_at_most(size_t bytes, size_t unit) REQUIRES(mutex_);

  void* mapped_ = nullptr;
  char* base_ = nullptr;  // at a huge page
  size_t reserved_ = 0;

  InnermostMutex mutex_;
  Condition freed_one_;
  // All of them offsets in whole pages. `clean_` is the part of `free_` that has no memory.
  Ranges free_ GUARDED_BY(mutex_);
  Ranges clean_ GUARDED_BY(mutex_);
  std::unordered_map<size_t, size_t> in_use_ GUARDED_BY(mutex_);  // sizes by offset
  size_t usable_ GUARDED_BY(mutex_) = 0;                          // up to where it is accessible
  size_t bytes_in_use_ GUARDED_BY(mutex_) = 0;
  size_t least_kept_ GUARDED_BY(mutex_) = 0;  // since something was given back
  size_t given_back_ GUARDED_BY(mutex_) = 0;  // in this period
  bool comes_again_ GUARDED_BY(mutex_) = false;
  uint64_t taken_ GUARDED_BY(mutex_) = 0;
  size_t bytes_taken_ GUARDED_BY(mutex_) = 0;
  // What was needed at once when huge pages were last asked for, by a thread of its own.
  size_t huge_until_ GUARDED_BY(mutex_) = 0;
  std::thread collapser_ GUARDED_BY(mutex_);
  bool collapsing_ GUARDED_BY(mutex_) = false;
  bool ending_ GUARDED_BY(mutex_) = false;
  bool huge_pages_ GUARDED_BY(mutex_) = true;
  bool waited_in_vain_ GUARDED_BY(mutex_) = false;  // and nothing was freed since
  // Of the current and the previous period.
  std::chrono::steady_clock::time_point period_began_ GUARDED_BY(mutex_);
  size_t peak_now_ GUARDED_BY(mutex_) = 0;
  size_t peak_before_ GUARDED_BY(mutex_) = 0;
};

}  // namespace torch_xla::pjrt
