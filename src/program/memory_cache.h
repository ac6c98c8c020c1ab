// A bounded map from keys to shared values that are expensive to build: programs, eager operators,
// pure functions. Threads that ask for the same key at the same time build once; the others wait,
// so they must hold no lock that building needs (nor Python's). Thread-safe.
#pragma once

#include "base/interrupt.h"
#include "base/mutex.h"

#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <unordered_map>

namespace torch_xla {

template <typename Key, typename Value, typename Hash = std::hash<Key>>
class MemoryCache {
 public:
  using ValuePtr = std::shared_ptr<Value>;

  // `limit` is asked at each insertion, so that it may follow an environment variable; at least one
  // entry is kept.
  explicit MemoryCache(std::function<size_t()> limit) : limit_(std::move(limit)) {}

  // The value of `key`, made by `build` (returns a ValuePtr) if there is none. What `build` throws
  // reaches all who waited for it, and leaves no entry. `build` must not ask for the same key.
  template <typename Build>
  ValuePtr find_or_build(const Key& key, Build&& build) {
    std::promise<ValuePtr> promise;
    std::shared_future<ValuePtr> value;
    uint64_t serial = 0;
    const size_t limit = limit_();
    {
      std::list<Entry> evicted;  // destroyed without the lock
      MutexLock lock(mutex_);
      auto found = entries_.find(key);
      if (found != entries_.end()) {
        recent_.splice(recent_.begin(), recent_, found->second);
        value = found->second->value;
      } else {
        serial = ++last_serial_;
        recent_.push_front({key, promise.get_future().share(), serial});
        entries_[key] = recent_.begin();
        evict(limit, evicted);
      }
    }
    if (serial == 0) {
      while (value.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
        check_interrupt();  // another thread builds it
      }
      return value.get();
    }
    try {
      ValuePtr built = build();
      promise.set_value(built);
      return built;
    } catch (...) {
      erase(key, serial);
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  // nullptr if there is none, or if it is not built yet.
  ValuePtr find(const Key& key) {
    MutexLock lock(mutex_);
    auto found = entries_.find(key);
    if (found == entries_.end() ||
        found->second->value.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      return nullptr;
    }
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->value.get();
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return recent_.size();
  }

  void clear() {
    std::list<Entry> freed;  // destroyed without the lock
    MutexLock lock(mutex_);
    entries_.clear();
    recent_.swap(freed);
  }

 private:
  struct Entry {
    Key key;
    std::shared_future<ValuePtr> value;
    uint64_t serial;
  };

  void evict(size_t limit, std::list<Entry>& evicted) REQUIRES(mutex_) {
    while (recent_.size() > 1 && recent_.size() > limit) {
      entries_.erase(recent_.back().key);
      evicted.splice(evicted.begin(), recent_, std::prev(recent_.end()));
    }
  }

  // Only the entry that this build made: it may have been evicted and another be in its place.
  void erase(const Key& key, uint64_t serial) {
    MutexLock lock(mutex_);
    auto found = entries_.find(key);
    if (found != entries_.end() && found->second->serial == serial) {
      recent_.erase(found->second);
      entries_.erase(found);
    }
  }

  std::function<size_t()> limit_;
  mutable Mutex mutex_;
  std::list<Entry> recent_ GUARDED_BY(mutex_);  // the last used first
  std::unordered_map<Key, typename std::list<Entry>::iterator, Hash> entries_ GUARDED_BY(mutex_);
  uint64_t last_serial_ GUARDED_BY(mutex_) = 0;
};

}  // namespace torch_xla
