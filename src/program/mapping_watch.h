// Tells when programs have to go because this process is running out of memory mappings: one of
// the CPU plugin has three for each of its functions, hundreds in all, and the kernel allows a
// process 65,530; then nothing can be compiled any more. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace torch_xla {

class MappingWatch {
 public:
  // `count`: the mappings there are; counting many takes milliseconds. `limit` 0: there is none,
  // or it is not known.
  MappingWatch(std::function<size_t()> count, size_t limit)
      : count_(std::move(count)), enough_(limit / 4 * 3) {}

  // Asked before each new program; counts only as often as it may matter.
  bool nearly_out() {
    if (enough_ == 0) {
      return false;
    }
    if (until_next_count_ > 0) {
      --until_next_count_;
      return false;
    }
    const size_t used = count_();
    if (used < enough_) {
      until_next_count_ = (enough_ - used) / kOfALargeProgram;
      used_before_ = SIZE_MAX;
      return false;
    }
    // If dropping programs did not help, the mappings are somebody else's.
    return used < std::exchange(used_before_, used);
  }

 private:
  static constexpr size_t kOfALargeProgram = 1500;
  const std::function<size_t()> count_;
  const size_t enough_;
  size_t until_next_count_ = 0;
  size_t used_before_ = SIZE_MAX;
};

}  // namespace torch_xla
