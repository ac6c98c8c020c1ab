#include "execution/pieces.h"

#include "base/mutex.h"
#include "base/recent_map.h"

#include <algorithm>
#include <memory>

namespace torch_xla {

namespace {

struct Core {
  size_t wholes = 0;  // graphs that have it
};

class Cores {
 public:
  static Cores& instance() {
    static auto* cores = new Cores;
    return *cores;
  }

  std::vector<Piece> pieces(const Graph& graph) {
    std::shared_ptr<Core> core;
    bool known = false;
    {
      MutexLock lock(mutex_);
      if (std::shared_ptr<Core>* found = core_of_.find(graph.hash)) {
        core = *found;
        known = true;
      }
      if (known && (core == nullptr || core->wholes < 2)) {
        return {};
      }
    }
    std::vector<Piece> cut = cut_edges(graph);
    MutexLock lock(mutex_);
    if (!known) {
      core = cut.empty() ? nullptr : named(core_hash(cut));
      core_of_.get_or_add(graph.hash, core);
      if (core != nullptr) {
        ++core->wholes;
      }
    }
    return core != nullptr && core->wholes >= 2 ? std::move(cut) : std::vector<Piece>();
  }

 private:
  static uint64_t core_hash(const std::vector<Piece>& pieces) {
    return std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) { return !p.edge; })
        ->graph.hash;
  }
  std::shared_ptr<Core> named(uint64_t hash) REQUIRES(mutex_) {
    return cores_.get_or_add(hash, std::make_shared<Core>());
  }

  static constexpr size_t kRemembered = 4096;
  Mutex mutex_;
  RecentMap<uint64_t, std::shared_ptr<Core>> core_of_ GUARDED_BY(mutex_){kRemembered};
  RecentMap<uint64_t, std::shared_ptr<Core>> cores_ GUARDED_BY(mutex_){kRemembered};
};

}  // namespace

std::vector<Piece> shared_pieces(const Graph& graph) {
  const bool donates = std::any_of(graph.donated.begin(), graph.donated.end(),
                                   [](int32_t input) { return input >= 0; });
  if (donates || graph.partitions > 1 || graph.numbers_are_inputs || graph.nodes.size() < 2) {
    return {};
  }
  return Cores::instance().pieces(graph);
}

}  // namespace torch_xla
