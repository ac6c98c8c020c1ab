#include "pjrt/host_arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace torch_xla::pjrt {

namespace {

// What was needed so many blocks or so long ago, and not since, is given back.
constexpr uint64_t kPeriod = 4096;
constexpr std::chrono::seconds kLongPeriod{10};
constexpr size_t kOften = 4;  // times the peak, given back in a period
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kCollapse = 25;               // MADV_COLLAPSE, since Linux 6.1
constexpr size_t kStep = size_t{64} << 20;  // in which addresses become accessible
// Blocks begin at different distances from a page's begin: reading one while another is written at
// the same distance stalls processors.
constexpr size_t kPlaces = 16;

size_t page() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }
size_t down(size_t size, size_t unit) { return size / unit * unit; }

// Most of what a process may have is for others.
size_t allowed_addresses(size_t wanted) {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? std::min<size_t>(wanted, limit.rlim_cur / 4) : wanted;
}

bool may_use_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string setting;
  return std::getline(file, setting) && setting.find("[never]") == std::string::npos;
}

}  // namespace

// Not MAP_NORESERVE: more than there is must be refused when it is asked for.
HostArena::HostArena(size_t addresses) {
  for (size_t size = up(allowed_addresses(addresses), kHugePage); size >= kStep;
       size = down(size / 2, kHugePage)) {
    void* mapped = mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) {
      mapped_ = mapped;
      base_ = reinterpret_cast<char*>(up(reinterpret_cast<uintptr_t>(mapped), kHugePage));
      reserved_ = size;
      break;
    }
  }
  free_.add(0, reserved_);
  clean_.add(0, reserved_);
  huge_pages_ = may_use_huge_pages();
}

HostArena::~HostArena() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  if (collapser_.joinable()) {
    collapser_.join();
  }
  if (mapped_ != nullptr) {
    munmap(mapped_, reserved_ + kHugePage);
  }
}

size_t HostArena::peak() const { return std::max({peak_now_, peak_before_, bytes_in_use_}); }

void* HostArena::take(size_t size, bool expect_freed) {
  const size_t wanted = size + kAlignment * kPlaces;
  if (wanted < size || wanted > reserved_) {
    return nullptr;
  }
  size = up(wanted, page());
  MutexLock lock(mutex_);
  count_periods();
  const size_t place = find_place(size, expect_freed, lock);
  if (place == reserved_ || !make_usable(place + size)) {
    return nullptr;
  }
  free_.remove(place, place + size);
  clean_.remove(place, place + size);
  in_use_[place] = size;
  bytes_in_use_ += size;
  bytes_taken_ += size;
  peak_now_ = std::max(peak_now_, bytes_in_use_);
  keep_what_may_be_needed();
  use_huge_pages_if_due();
  return base_ + place + taken_ % kPlaces * kAlignment;
}

void HostArena::count_periods() {
  const auto now = std::chrono::steady_clock::now();
  if (++taken_ % kPeriod == 0 || now - period_began_ > kLongPeriod) {
    period_began_ = now;
    peak_before_ = peak_now_;
    peak_now_ = bytes_in_use_;
    given_back_ = 0;
  }
}

// The smallest free range that is large enough; `reserved_` if there is none.
size_t HostArena::find_place(size_t size, bool expect_freed, MutexLock& lock) {
  size_t place = free_.best_fit(size).value_or(reserved_);
  constexpr size_t kWorthWaiting = size_t{4} << 20;
  if (!expect_freed || size < kWorthWaiting || !is_new(place, size) || !freed_soon(size)) {
    return place;
  }
  // A program's results are there a moment before its temporary memory is freed, which the next
  // run, launched at once, asks for: it would be there twice from then on. The pages of a new block
  // would take longer than the wait.
  constexpr size_t kBytesPerMicrosecond = 8 << 10;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::microseconds(size / kBytesPerMicrosecond);
  bool in_time = true;
  while (in_time && is_new(place, size)) {
    in_time = freed_one_.wait_until(lock, end);
    place = free_.best_fit(size).value_or(reserved_);  // others took some, too
  }
  waited_in_vain_ = is_new(place, size);
  return place;
}

// Whether most of it has no memory yet.
bool HostArena::is_new(size_t place, size_t size) const {
  size_t kept = 0;
  for (const auto& [begin, end] : clean_.gaps_in(place, place + size)) {
    kept += end - begin;
  }
  return kept < size / 2;
}

bool HostArena::freed_soon(size_t size) const {
  return !waited_in_vain_ && std::any_of(in_use_.begin(), in_use_.end(), [&](const auto& block) {
    return block.second >= size && block.second <= size + size / 8;
  });
}

bool HostArena::make_usable(size_t end) {
  if (end <= usable_) {
    return true;
  }
  for (const size_t until : {std::min(up(end, kStep), reserved_), end}) {
    if (mprotect(base_ + usable_, until - usable_, PROT_READ | PROT_WRITE) == 0) {
      usable_ = until;
      return true;
    }
  }
  return false;
}

void HostArena::give_back(void* block) {
  MutexLock lock(mutex_);
  const size_t place = down(static_cast<size_t>(static_cast<char*>(block) - base_), page());
  const auto found = in_use_.find(place);
  const size_t size = found->second;
  in_use_.erase(found);
  bytes_in_use_ -= size;
  free_.add(place, place + size);
  waited_in_vain_ = false;
  keep_what_may_be_needed();
  freed_one_.notify_all();
}

size_t HostArena::size_of(const void* block) {
  MutexLock lock(mutex_);
  const size_t offset = static_cast<size_t>(static_cast<const char*>(block) - base_);
  const size_t place = down(offset, page());
  return in_use_.at(place) - (offset - place);
}

void HostArena::release() {
  MutexLock lock(mutex_);
  keep_at_most(0, page());
  comes_again_ = false;
}

// What lies in pieces of less than a huge page cannot be given back, and is not looked for again
// until there is more. Where blocks fit so badly that each step gives back what the next one takes
// anew, half as much more is kept: its pages are there at each step's peak either way.
void HostArena::keep_what_may_be_needed() {
  const size_t wanted = peak() - bytes_in_use_;
  const size_t slack = peak() / (comes_again_ ? 2 : 32) + kHugePage;
  least_kept_ = std::min(least_kept_, kept());
  if (kept() > std::max(wanted, least_kept_) + slack) {
    given_back_ += kept() - wanted;
    comes_again_ = comes_again_ || given_back_ > kOften * peak();
    keep_at_most(wanted, kHugePage);
    least_kept_ = kept() > wanted ? kept() : 0;
  }
}

// Gives back whole units, from the end: blocks settle at the begin.
void HostArena::keep_at_most(size_t bytes, size_t unit) {
  if (kept() <= bytes) {
    return;
  }
  size_t excess = kept() - bytes;
  std::vector<std::pair<size_t, size_t>> given_back;
  const auto& ranges = free_.by_begin();
  for (auto range = ranges.rbegin(); range != ranges.rend() && excess > 0; ++range) {
    auto dirty = clean_.gaps_in(range->first, range->second);
    for (auto piece = dirty.rbegin(); piece != dirty.rend() && excess > 0; ++piece) {
      const size_t end = down(piece->second, unit);
      const size_t begin = std::max(up(piece->first, unit), end - std::min(end, up(excess, unit)));
      if (begin < end && madvise(base_ + begin, end - begin, MADV_DONTNEED) == 0) {
        given_back.emplace_back(begin, end);
        excess -= std::min(excess, end - begin);
      }
    }
  }
  for (const auto& [begin, end] : given_back) {
    clean_.add(begin, end);
  }
}

// Huge pages at the first touch would make the kernel look for room there and then: the first step
// of ResNet-50 took 1.0 s instead of 0.4. What is used over and over gets them later, from a thread
// that nobody waits for.
void HostArena::use_huge_pages_if_due() {
  constexpr size_t kWorthIt = size_t{64} << 20;
  constexpr size_t kUses = 4;
  if (collapsing_ || !huge_pages_ || bytes_taken_ < kUses * peak() ||
      peak() < std::max(kWorthIt, huge_until_ + huge_until_ / 4)) {
    return;
  }
  huge_until_ = peak();
  bytes_taken_ = 0;
  if (collapser_.joinable()) {
    collapser_.join();  // it is past its last use of the lock
  }
  collapsing_ = true;
  try {
    collapser_ = std::thread([this] { use_huge_pages(); });
  } catch (const std::system_error&) {
    // No more threads: then without, from now on.
  }
}

// Page by page, and seldom: each takes the process' memory map and its page from those who compute.
// At once, a step of AdamW over 20 M elements took 700 ms instead of 40.
void HostArena::use_huge_pages() {
  constexpr int kRest = 30;  // times what the page took
  for (auto page = huge_page_from(0); page; page = huge_page_from(*page + kHugePage)) {
    const auto began = std::chrono::steady_clock::now();
    madvise(base_ + *page, kHugePage, kCollapse);  // of no effect in kernels that do not know it
    std::this_thread::sleep_for((std::chrono::steady_clock::now() - began) * kRest);
  }
  MutexLock lock(mutex_);
  collapsing_ = false;
}

// The first at or after `at` that has memory throughout.
std::optional<size_t> HostArena::huge_page_from(size_t at) {
  MutexLock lock(mutex_);
  if (ending_ || at >= usable_) {
    return std::nullopt;
  }
  for (const auto& [begin, end] : clean_.gaps_in(at, usable_)) {
    if (up(begin, kHugePage) + kHugePage <= end) {
      return up(begin, kHugePage);
    }
  }
  return std::nullopt;
}

HostArena::Usage HostArena::usage() {
  MutexLock lock(mutex_);
  return {bytes_in_use_, kept()};
}

}  // namespace torch_xla::pjrt
