// Which pending values a run of some of them should compute as well.
#pragma once

#include "graph/collect.h"

#include <vector>

namespace torch_xla {

// Marks nodes: one at a time, and no graph is collected meanwhile.
class SharedWork {
 public:
  // `first`: an epoch from which on walks count as this one, where several find more roots.
  explicit SharedWork(const std::vector<Value>& roots, uint64_t first = new_visit_epoch())
      REQUIRES(trace_mutex);

  // No walk before `first` had come to the operations that the roots need. Values that one has
  // come to need none of them, then: whoever has asked about these need not ask again.
  bool is_new() const { return is_new_; }

  // Of the operations that the walks came to, those that the roots need or that need one of them,
  // and the others.
  size_t needed() const { return needed_; }
  size_t others() const { return others_; }

  // Whether the value needs an operation that the roots need.
  bool is_needed_for(const Value& value) REQUIRES(trace_mutex);

  // Whether the roots need the value.
  bool needs(const Value& value) const REQUIRES(trace_mutex);

 private:
  struct Frame {
    const Node* node;
    size_t next_operand;
  };

  bool is_old(const Node& node) const REQUIRES(trace_mutex) {
    return node.visit.epoch != 0 && node.visit.epoch < first_;
  }
  bool seen(const Node& node) const REQUIRES(trace_mutex) { return node.visit.epoch == epoch_; }
  bool is_done(const Node& node) const REQUIRES(trace_mutex);
  bool is_shared(const Node& node) const REQUIRES(trace_mutex);
  void visit(const Node& root) REQUIRES(trace_mutex);

  enum Mark : uint32_t { kApart, kSharing, kOfRoots };
  const uint64_t epoch_, first_;
  bool is_new_ = true, at_roots_ = true;
  size_t needed_ = 0, others_ = 0;
  std::vector<Frame> stack_;
};

}  // namespace torch_xla
