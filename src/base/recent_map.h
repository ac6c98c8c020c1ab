// A map that remembers what was used lately and forgets the rest, so that it never outgrows a
// bound. Two generations: when the younger one is full it becomes the older one, whose entries go
// unless they are asked for again. Not thread-safe.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <utility>

namespace torch_xla {

template <typename Key, typename Value>
class RecentMap {
 public:
  // Holds at most this many entries, and at least half as many of those used last.
  explicit RecentMap(size_t most) : half_(most / 2) {}

  // The entry, or null. Valid until the next call.
  Value* find(const Key& key) {
    if (auto found = young_.find(key); found != young_.end()) {
      return &found->second;
    }
    auto known = old_.extract(key);
    return known ? &add(key, std::move(known.mapped())) : nullptr;
  }

  // The entry, made from `initial` if there is none. Valid until the next call.
  Value& get_or_add(const Key& key, Value initial) {
    Value* known = find(key);
    return known != nullptr ? *known : add(key, std::move(initial));
  }

  size_t size() const { return young_.size() + old_.size(); }

 private:
  Value& add(const Key& key, Value value) {
    if (young_.size() >= half_) {
      old_ = std::exchange(young_, {});
    }
    return young_.emplace(key, std::move(value)).first->second;
  }

  size_t half_;
  std::unordered_map<Key, Value> young_;
  std::unordered_map<Key, Value> old_;
};

}  // namespace torch_xla
