#include "pure/pure_function.h"

#include "base/env.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/location.h"
#include "pure/compare.h"
#include "pure/key.h"
#include "pure/trace.h"

#include <algorithm>

namespace torch_xla {

PureFunction::PureFunction(std::string name, PureOptions options, DescribeStatic describe)
    : name_(std::move(name)),
      options_(options),
      describe_(std::move(describe)),
      hits_(metrics::counter("pure::" + name_ + "::hit")),
      misses_(metrics::counter("pure::" + name_ + "::miss")),
      traces_(metrics::counter("pure::" + name_ + "::trace")) {
  info_.max_size = std::max<size_t>(options_.max_entries, 1);
}

PureFunction::Query PureFunction::query(uint64_t static_key, const Tensors& arguments) {
  Query query;
  query.key.reserve(4 * arguments.size() + 2);
  query.key.push_back(static_key);
  append_switches(query.key);
  append_arguments(query.key, arguments);
  query.hash = hash_words(query.key);
  return query;
}

Tensors PureFunction::call(uint64_t static_key, const Tensors& arguments, MakeCallee make) {
  current_location();
  Traced traced = find_or_trace(query(static_key, arguments), arguments, make);
  return call_entry(traced.entry, arguments);
}

bool PureFunction::checks() const { return options_.check || env::flag("TORCH_XLA_CHECK_PURE"); }

std::optional<PureFunction::Traced> PureFunction::find(const Query& query, const Tensors& arguments,
                                                       Accepts accepts) {
  static metrics::Counter& hits = metrics::counter("PureHit");
  std::vector<Traced> alive;  // an entry dropped by another thread must not die under the lock
  {
    MutexLock lock(mutex_);
    auto [first, last] = table_.equal_range(query.hash);
    for (auto it = first; it != last; ++it) {
      if (it->second->entry->key == query.key) {
        alive.push_back(*it->second);
      }
    }
  }
  for (Traced& traced : alive) {
    if (!handles_match(*traced.entry, arguments) || !accepts(traced.annotation.get())) {
      continue;
    }
    hits.add();
    hits_.add();
    MutexLock lock(mutex_);
    ++info_.hits;
    auto [first, last] = table_.equal_range(query.hash);
    for (auto it = first; it != last; ++it) {
      if (it->second->entry == traced.entry) {
        recent_.splice(recent_.begin(), recent_, it->second);
        break;
      }
    }
    return std::move(traced);
  }
  return std::nullopt;
}

PureFunction::Traced PureFunction::find_or_trace(const Query& query, const Tensors& arguments,
                                                 MakeCallee make, Accepts accepts) {
  // Never waits inside a trace: whoever makes the other one may be waiting for this thread.
  const bool may_wait = current_scope() == nullptr;
  while (true) {
    if (std::optional<Traced> traced = find(query, arguments, accepts)) {
      if (checks()) {
        check_again(*traced->entry, arguments);
      }
      return *traced;
    }
    MutexLock lock(mutex_);
    if (!may_wait || !traced_elsewhere(query)) {
      tracing_.try_emplace(query.hash, std::this_thread::get_id());
      ++info_.misses;
      break;
    }
    while (traced_elsewhere(query)) {
      wait_or_interrupt(traced_, mutex_, lock);
    }
  }
  try {
    Traced traced = trace(query, arguments, make);
    finish(query);
    return traced;
  } catch (...) {
    finish(query);
    throw;
  }
}

bool PureFunction::traced_elsewhere(const Query& query) const {
  auto found = tracing_.find(query.hash);
  return found != tracing_.end() && found->second != std::this_thread::get_id();
}

void PureFunction::finish(const Query& query) {
  {
    MutexLock lock(mutex_);
    tracing_.erase(query.hash);
  }
  traced_.notify_all();
}

PureFunction::Traced PureFunction::trace(const Query& query, const Tensors& arguments,
                                         MakeCallee make) {
  static metrics::Counter& misses = metrics::counter("PureMiss");
  static metrics::Counter& traces = metrics::counter("PureTrace");
  misses.add();
  misses_.add();
  std::shared_ptr<PureCallee> callee = make();
  std::shared_ptr<PureEntry> entry = trace_function(name_, callee, arguments);
  traces.add();
  traces_.add();
  entry->key = query.key;
  entry->hash = query.hash;
  Traced traced{entry, callee->annotation()};
  if (!entry->transient) {
    insert(traced);
    warn_if_often(*entry);
  }
  return traced;
}

void PureFunction::insert(const Traced& traced) {
  Recent dropped;  // after the lock: what an entry holds may need it
  MutexLock lock(mutex_);
  ++info_.traces;
  recent_.push_front(traced);
  table_.emplace(traced.entry->hash, recent_.begin());
  while (recent_.size() > info_.max_size) {
    auto last = std::prev(recent_.end());
    auto [first, end] = table_.equal_range(last->entry->hash);
    for (auto it = first; it != end; ++it) {
      if (it->second == last) {
        table_.erase(it);
        break;
      }
    }
    dropped.splice(dropped.begin(), recent_, last);
  }
  info_.size = recent_.size();
}

void PureFunction::warn_if_often(const PureEntry& entry) {
  constexpr int64_t kOften = 16;
  EntryPtr before;
  {
    MutexLock lock(mutex_);
    if (info_.traces != kOften || recent_.size() < 2) {
      return;
    }
    before = std::next(recent_.begin())->entry;
  }
  std::string change = describe_key_change(before->key, entry.key);
  if (before->key[0] != entry.key[0] && describe_) {
    change = describe_(before->key[0], entry.key[0]);
  }
  warn("the pure function " + name_ + " has been traced " + std::to_string(kOften) +
       " times (now at " + location_of(last_location()).str() + "); since the last time, " +
       change +
       ". Each distinct combination of shapes, dtypes and values of arguments that are not tensors "
       "is traced and compiled anew: pass a changing number as a tensor, and pad changing shapes");
}

void PureFunction::check_again(const PureEntry& entry, const Tensors& arguments) {
  std::shared_ptr<PureEntry> fresh = trace_function(name_, entry.callee, arguments);
  std::string difference = describe_difference(entry, *fresh);
  if (!difference.empty()) {
    throw Error("the function " + name_ + " is not pure: traced again at " +
                location_of(last_location()).str() + ", " + difference);
  }
}

PureCacheInfo PureFunction::info() const {
  MutexLock lock(mutex_);
  return info_;
}

void PureFunction::clear(bool statistics) {
  Recent dropped;
  MutexLock lock(mutex_);
  dropped.swap(recent_);
  table_.clear();
  info_.size = 0;
  if (statistics) {
    info_ = {0, 0, 0, 0, info_.max_size};
  }
}

PureEntry::Derivative::Derivative() = default;
PureEntry::Derivative::~Derivative() = default;

PureFunction& derivative_of(const EntryPtr& entry) {
  std::call_once(entry->derivative.made, [&] {
    entry->derivative.function = std::make_unique<PureFunction>(entry->name + "/gradient");
  });
  return *entry->derivative.function;
}

}  // namespace torch_xla
