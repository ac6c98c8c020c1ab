// Which of an operation's operands lies at an address. Used by one thread.
#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <unordered_map>

namespace torch_xla {

// An optimizer's one step over many parameters has tens of thousands.
class Addresses {
 public:
  void add(const void* address) {
    addresses_.push_back(address);
    if (addresses_.size() > kFew) {
      for (; known_ < addresses_.size(); ++known_) {
        first_.emplace(addresses_[known_], known_);
      }
    }
  }
  // The first operand there.
  std::optional<size_t> find(const void* address) const {
    if (known_ > 0) {
      const auto found = first_.find(address);
      return found == first_.end() ? std::nullopt : std::optional(found->second);
    }
    const auto found = std::find(addresses_.begin(), addresses_.end(), address);
    return found == addresses_.end() ? std::nullopt
                                     : std::optional<size_t>(found - addresses_.begin());
  }

 private:
  static constexpr size_t kFew = 16;
  c10::SmallVector<const void*, 8> addresses_;
  std::unordered_map<const void*, size_t> first_;
  size_t known_ = 0;
};

}  // namespace torch_xla
