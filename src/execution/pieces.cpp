#include "execution/pieces.h"

#include "base/hasher.h"
#include "base/mutex.h"
#include "base/recent_map.h"

#include <algorithm>

namespace torch_xla {

namespace {

class Cores {
 public:
  static Cores& instance() {
    static auto* cores = new Cores;
    return *cores;
  }

  std::vector<Piece> pieces(const Graph& graph) {
    {
      MutexLock lock(mutex_);
      if (const uint64_t* core = core_of_.find(graph.hash); core != nullptr && !is_shared(*core)) {
        return {};
      }
    }
    std::vector<Piece> cut = cut_edges(graph);
    const uint64_t core = core_hash(cut);
    MutexLock lock(mutex_);
    if (core_of_.find(graph.hash) == nullptr) {
      core_of_.get_or_add(graph.hash, core);
      ++wholes_.get_or_add(core, 0);
    }
    return is_shared(core) ? std::move(cut) : std::vector<Piece>();
  }

 private:
  static constexpr uint64_t kNone = 0;
  // Of an edge alone, what its operations are, and where they were recorded: its shapes grow.
  static uint64_t core_hash(const std::vector<Piece>& pieces) {
    auto core = std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) { return !p.edge; });
    if (pieces.empty() || core != pieces.end()) {
      return pieces.empty() ? kNone : core->graph.hash;
    }
    Hasher operations;
    for (const GraphNode& entry : pieces[0].graph.nodes) {
      operations.add(entry.node->signature->op);
      operations.add(entry.node->location);
    }
    return operations.low();
  }
  bool is_shared(uint64_t core) REQUIRES(mutex_) {
    const size_t* wholes = core == kNone ? nullptr : wholes_.find(core);
    return wholes != nullptr && *wholes >= 2;
  }

  static constexpr size_t kRemembered = 4096;
  Mutex mutex_;
  RecentMap<uint64_t, uint64_t> core_of_ GUARDED_BY(mutex_){kRemembered};
  RecentMap<uint64_t, size_t> wholes_ GUARDED_BY(mutex_){kRemembered};  // graphs that have the core
};

}  // namespace

std::vector<Piece> shared_pieces(const Graph& graph) {
  if (graph.partitions > 1 || graph.numbers_are_inputs || graph.nodes.size() < 2) {
    return {};
  }
  return Cores::instance().pieces(graph);
}

}  // namespace torch_xla
