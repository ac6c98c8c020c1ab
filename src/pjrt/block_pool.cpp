#include "pjrt/block_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace torch_xla::pjrt {

namespace {

// What was needed this many blocks ago, and not since, is given back.
constexpr uint64_t kPeriod = 4096;

bool fits(size_t block, size_t size) { return block >= size && block <= size + size / 8; }

size_t whole_pages(size_t size) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

void* map_aligned(size_t size) {
  const size_t room = size + BlockPool::kAlignment;
  if (room < size) {
    return nullptr;
  }
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  char* start = static_cast<char*>(mapped);
  const size_t past = reinterpret_cast<uintptr_t>(start) % BlockPool::kAlignment;
  const size_t before = past == 0 ? 0 : BlockPool::kAlignment - past;
  if (before > 0) {
    munmap(start, before);
  }
  munmap(start + before + size, room - before - size);
  return start + before;
}

}  // namespace

BlockPool::~BlockPool() { release(); }

void* BlockPool::take(size_t size) {
  size = whole_pages(size);
  MutexLock lock(mutex_);
  if (++taken_ % kPeriod == 0) {
    peak_before_ = peak_now_;
    peak_now_ = bytes_in_use_;
  }
  void* block = reuse(size);
  if (block == nullptr) {
    block = reuse_soon(size, lock);
  }
  if (block == nullptr) {
    const size_t peak = std::max({peak_now_, peak_before_, bytes_in_use_ + size});
    keep_at_most(peak - bytes_in_use_ - size);
    block = map_aligned(size);
    if (block == nullptr) {
      keep_at_most(0);
      block = map_aligned(size);
    }
    if (block == nullptr) {
      return nullptr;
    }
    in_use_[block] = size;
    bytes_in_use_ += size;
  }
  peak_now_ = std::max(peak_now_, bytes_in_use_);
  return block;
}

// The smallest kept block that is large enough, unless much of it would lie idle.
void* BlockPool::reuse(size_t size) {
  auto found = kept_.lower_bound({size, 0});
  if (found == kept_.end() || !fits(found->first.first, size)) {
    return nullptr;
  }
  const auto [kept_size, age] = found->first;
  void* block = found->second;
  by_age_.erase(age);
  kept_.erase(found);
  bytes_kept_ -= kept_size;
  in_use_[block] = kept_size;
  bytes_in_use_ += kept_size;
  return block;
}

// A program's results are there a moment before its temporary memory is freed, which the next run,
// launched at once, asks for: it would be there twice from then on. The pages of a new block would
// take longer than the wait.
void* BlockPool::reuse_soon(size_t size, MutexLock& lock) {
  constexpr size_t kWorthWaiting = size_t{32} << 20;
  constexpr size_t kBytesPerMicrosecond = 8 << 10;
  if (size < kWorthWaiting || std::none_of(in_use_.begin(), in_use_.end(), [&](const auto& block) {
        return fits(block.second, size);
      })) {
    return nullptr;
  }
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::microseconds(size / kBytesPerMicrosecond);
  void* block = nullptr;
  while (block == nullptr && freed_one_.wait_until(lock, end)) {
    block = reuse(size);
  }
  return block;
}

bool BlockPool::give_back(void* block) {
  if (!could_be_ours(block)) {
    return false;
  }
  MutexLock lock(mutex_);
  auto found = in_use_.find(block);
  if (found == in_use_.end()) {
    return false;
  }
  const size_t size = found->second;
  in_use_.erase(found);
  bytes_in_use_ -= size;
  const uint64_t age = freed_++;
  by_age_[age] = kept_.emplace(std::pair(size, age), block).first;
  bytes_kept_ += size;
  keep_at_most(std::max(peak_now_, peak_before_) - bytes_in_use_);
  freed_one_.notify_all();
  return true;
}

void BlockPool::release() {
  MutexLock lock(mutex_);
  keep_at_most(0);
}

// Unmaps what was freed longest ago.
void BlockPool::keep_at_most(size_t size) {
  while (bytes_kept_ > size) {
    auto oldest = by_age_.begin();
    munmap(oldest->second->second, oldest->second->first.first);
    bytes_kept_ -= oldest->second->first.first;
    kept_.erase(oldest->second);
    by_age_.erase(oldest);
  }
}

size_t BlockPool::size_of(const void* block) {
  if (!could_be_ours(block)) {
    return 0;
  }
  MutexLock lock(mutex_);
  auto found = in_use_.find(block);
  return found == in_use_.end() ? 0 : found->second;
}

BlockPool::Usage BlockPool::usage() {
  MutexLock lock(mutex_);
  return {bytes_in_use_, bytes_kept_};
}

}  // namespace torch_xla::pjrt
