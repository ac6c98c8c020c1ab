// A function traced once for each kind of call, then called for almost nothing. Thread-safe:
// threads that need the same trace at the same time make it once.
#pragma once

#include "base/mutex.h"
#include "metrics/metrics.h"
#include "pure/entry.h"

#include <c10/util/FunctionRef.h>

#include <list>
#include <optional>
#include <thread>
#include <unordered_map>

namespace torch_xla {

struct PureOptions {
  size_t max_entries = 128;  // traces kept; the one used longest ago goes first
  bool check = false;        // trace every call again and compare
};

struct PureCacheInfo {
  int64_t hits = 0, misses = 0, traces = 0;
  size_t size = 0, max_size = 0;
};

class PureFunction {
 public:
  using MakeCallee = c10::function_ref<std::shared_ptr<PureCallee>()>;
  // Says how two sets of static arguments differ, given their keys.
  using DescribeStatic = std::function<std::string(uint64_t, uint64_t)>;

  explicit PureFunction(std::string name, PureOptions options = {},
                        DescribeStatic describe = nullptr);

  // A kind of call: its arguments' key. `static_key` stands for everything that is not a tensor.
  struct Query {
    Words key;
    uint64_t hash = 0;
  };
  struct Traced {
    EntryPtr entry;
    std::shared_ptr<void> annotation;  // what the callee kept
  };
  // Whether the trace holds for the call, as far as its annotation knows. Called without locks.
  using Accepts = c10::function_ref<bool(void* annotation)>;
  static bool always(void*) { return true; }
  static Query query(uint64_t static_key, const Tensors& arguments);
  // The trace for this kind of call, if there is one. Quick: takes locks for moments only.
  std::optional<Traced> find(const Query& query, const Tensors& arguments, Accepts accepts);
  // The same, made now if need be: `make` is asked for the function only then. To be called without
  // locks (Python's included), because other threads may be waited for.
  Traced find_or_trace(const Query& query, const Tensors& arguments, MakeCallee make,
                       Accepts accepts = always);
  // All of it, and the call.
  Tensors call(uint64_t static_key, const Tensors& arguments, MakeCallee make);

  // Traces again and throws when the result differs from the entry, if that was asked for.
  bool checks() const;
  void check_again(const PureEntry& entry, const Tensors& arguments);

  PureCacheInfo info() const;
  // Forgets all traces; with `statistics`, what was counted too.
  void clear(bool statistics = true);
  const std::string& name() const { return name_; }

 private:
  using Recent = std::list<Traced>;  // newest first

  Traced trace(const Query& query, const Tensors& arguments, MakeCallee make);
  bool traced_elsewhere(const Query& query) const REQUIRES(mutex_);
  void finish(const Query& query);
  void insert(const Traced& traced);
  void warn_if_often(const PureEntry& entry);

  const std::string name_;
  const PureOptions options_;
  const DescribeStatic describe_;
  // Per function; PureHit and the like count all of them.
  metrics::Counter &hits_, &misses_, &traces_;

  mutable Mutex mutex_;
  Condition traced_;
  std::unordered_multimap<uint64_t, Recent::iterator> table_ GUARDED_BY(mutex_);
  Recent recent_ GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::thread::id> tracing_ GUARDED_BY(mutex_);  // their hashes
  PureCacheInfo info_ GUARDED_BY(mutex_);
};

// The gradient of an entry as a function of its own, for gradients of gradients. Made on first use,
// dropped with the entry.
PureFunction& derivative_of(const EntryPtr& entry);

}  // namespace torch_xla
