#include "graph/shared_work.h"

#include <algorithm>

namespace torch_xla {

// Operations are marked after their operands, as in collect_graph: what any walk has marked needs
// only what one has marked, too.
SharedWork::SharedWork(const std::vector<Value>& roots, uint64_t first)
    : epoch_(new_visit_epoch()), first_(first) {
  for (const Value& root : roots) {
    visit(*root.node);
  }
  at_roots_ = false;
}

bool SharedWork::is_needed_for(const Value& value) {
  visit(*value.node);
  return is_shared(*value.node);
}

bool SharedWork::needs(const Value& value) const {
  return seen(*value.node) && value.node->visit.id == kOfRoots;
}

bool SharedWork::is_shared(const Node& node) const { return seen(node) && node.visit.id != kApart; }

bool SharedWork::is_done(const Node& node) const {
  return node.kind != Node::Kind::Op || seen(node) || (!at_roots_ && is_new_ && is_old(node));
}

// Depth first without recursion: traces are deep.
void SharedWork::visit(const Node& root) {
  if (is_done(root)) {
    return;
  }
  stack_.push_back({&root, 0});
  while (!stack_.empty()) {
    Frame& frame = stack_.back();
    const Node& node = *frame.node;
    if (frame.next_operand < node.operands.size()) {
      const Node& operand = *node.operands[frame.next_operand++].node;
      if (!is_done(operand)) {
        stack_.push_back({&operand, 0});
      }
      continue;
    }
    stack_.pop_back();
    if (seen(node)) {
      continue;
    }
    is_new_ = is_new_ && !(at_roots_ && is_old(node));
    bool shared = at_roots_;
    for (const Value& operand : node.operands) {
      shared = shared || is_shared(*operand.node);
    }
    node.visit = {epoch_, at_roots_ ? kOfRoots : shared ? kSharing : kApart};
    ++(shared ? needed_ : others_);
  }
}

}  // namespace torch_xla
