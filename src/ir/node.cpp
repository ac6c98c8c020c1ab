#include "ir/node.h"

#include <atomic>

namespace torch_xla {

namespace {

// A chain of nodes is as long as the program made it; freeing it by recursion would overflow the
// stack. The outermost release drains the operands of all nodes below it from this list.
thread_local std::vector<NodePtr>* release_list = nullptr;

void drop_operands(Node& node) {
  for (Value& operand : node.operands) {
    if (operand.node) {
      release_list->push_back(std::move(operand.node));
    }
  }
  node.operands.clear();
}

}  // namespace

Node::~Node() { Node::release_resources(); }

void Node::release_resources() {
  if (operands.empty()) {
    return;
  }
  if (release_list != nullptr) {
    drop_operands(*this);
    return;
  }
  std::vector<NodePtr> list;
  release_list = &list;
  drop_operands(*this);
  while (!list.empty()) {
    NodePtr next = std::move(list.back());
    list.pop_back();
    next.reset();
  }
  release_list = nullptr;
}

namespace {

struct Parameter : Node {
  explicit Parameter(TensorType t) : type(std::move(t)) {
    kind = Kind::Parameter;
    leaf_type = &type;
  }
  const TensorType type;
};

}  // namespace

NodePtr new_operation() {
  static std::atomic<uint64_t> last{0};
  NodePtr node = c10::make_intrusive<Node>();
  node->serial = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return node;
}

NodePtr make_parameter_node(TensorType type) {
  return c10::make_intrusive<Parameter>(std::move(type));
}

}  // namespace torch_xla
