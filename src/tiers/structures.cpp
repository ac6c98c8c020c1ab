// The process's table of structures.

#include "base/env.h"
#include "base/mutex.h"
#include "metrics/metrics.h"
#include "pjrt/client.h"
#include "pjrt/machine.h"
#include "program/memory_cache.h"
#include "tiers/mapping_watch.h"
#include "tiers/structure.h"

#include <algorithm>

namespace torch_xla {

namespace {

struct Key {
  uint64_t low, high;
  bool operator==(const Key& other) const { return low == other.low && high == other.high; }
};

struct KeyHash {
  size_t operator()(const Key& key) const { return key.low; }
};

void count(const Graph& graph) {
  metrics::metric("TensorsGraphSize").add(static_cast<double>(graph.nodes.size()));
  const auto none = std::count(graph.donated.begin(), graph.donated.end(), -1);
  metrics::metric("InputOutputAliasCount")
      .add(static_cast<double>(static_cast<int64_t>(graph.donated.size()) - none));
}

class Structures {
 public:
  std::shared_ptr<Structure> find(const Graph& graph) {
    const Key key{graph.hash, graph.hash_high};
    std::shared_ptr<Structure> found = cache_.find(key);
    return found ? found : cache_.find_or_build(key, [&] {
      count(graph);
      return std::make_shared<Structure>();
    });
  }

 private:
  size_t limit() {
    auto limit = static_cast<size_t>(env::integer("TORCH_XLA_MEMORY_PROGRAMS"));
    MutexLock lock(mutex_);
    return mappings_.nearly_out() ? std::min(limit, cache_.size() / 2) : limit;
  }

  Mutex mutex_;
  // Elsewhere than on the CPU a program is no code of this process.
  MappingWatch mappings_ GUARDED_BY(mutex_){
      &pjrt::mapping_count, pjrt::client().host_memory() ? pjrt::mapping_limit() : 0};
  MemoryCache<Key, Structure, KeyHash> cache_{[this] { return limit(); }};
};

}  // namespace

std::shared_ptr<Structure> find_structure(const Graph& graph) {
  static auto* structures = new Structures;
  return structures->find(graph);
}

}  // namespace torch_xla
