// The process's table of structures.

#include "metrics/metrics.h"
#include "program/memory_cache.h"
#include "program/memory_limit.h"
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
  MemoryLimit limit_;
  MemoryCache<Key, Structure, KeyHash> cache_{[this] { return limit_.most(cache_.size()); }};
};

}  // namespace

std::shared_ptr<Structure> find_structure(const Graph& graph) {
  static auto* structures = new Structures;
  return structures->find(graph);
}

}  // namespace torch_xla
