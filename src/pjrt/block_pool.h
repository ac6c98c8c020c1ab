// Large blocks of memory that stay mapped when they are freed, for the next that fit. What a
// training step frees, the next one asks for again; given back to the kernel in between, each of
// its pages would fault anew. In use and kept together never exceed what was in use at once lately,
// so a process needs no more memory than without. Thread-safe.
#pragma once

#include "base/mutex.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>

namespace torch_xla::pjrt {

class BlockPool {
 public:
  // Blocks begin at multiples of the size of a huge page, which malloc's next to never do: most
  // pointers are seen not to be ours by their address.
  static constexpr size_t kAlignment = size_t{2} << 20;

  BlockPool() = default;
  ~BlockPool();  // unmaps what is kept; nothing may be in use
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // At least `size` bytes, more than none; null if there is no memory. Waits for a moment where a
  // very large block like it may be about to be freed.
  void* take(size_t size);
  // False if the block is not from here.
  bool give_back(void* block);
  // Unmaps what is kept.
  void release();
  // 0 if the block is not from here.
  size_t size_of(const void* block);

  struct Usage {
    size_t in_use, kept;
  };
  Usage usage();

 private:
  // Kept blocks by size and then age. Ages are counts of calls of take().
  using BySize = std::map<std::pair<size_t, uint64_t>, void*>;

  static bool could_be_ours(const void* block) {
    return block != nullptr && reinterpret_cast<uintptr_t>(block) % kAlignment == 0;
  }
  void* reuse(size_t size) REQUIRES(mutex_);
  void* reuse_soon(size_t size, MutexLock& lock) REQUIRES(mutex_);
  void keep_at_most(size_t size) REQUIRES(mutex_);

  Mutex mutex_;
  Condition freed_one_;
  std::unordered_map<const void*, size_t> in_use_ GUARDED_BY(mutex_);
  BySize kept_ GUARDED_BY(mutex_);
  std::map<uint64_t, BySize::iterator> by_age_ GUARDED_BY(mutex_);
  size_t bytes_in_use_ GUARDED_BY(mutex_) = 0;
  size_t bytes_kept_ GUARDED_BY(mutex_) = 0;
  uint64_t taken_ GUARDED_BY(mutex_) = 0;
  uint64_t freed_ GUARDED_BY(mutex_) = 0;
  // Of the current and the previous period.
  size_t peak_now_ GUARDED_BY(mutex_) = 0;
  size_t peak_before_ GUARDED_BY(mutex_) = 0;
};

}  // namespace torch_xla::pjrt
