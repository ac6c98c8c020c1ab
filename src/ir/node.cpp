#include "ir/node.h"

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

NodePtr make_data_node(std::shared_ptr<Data> data) {
  NodePtr node = c10::make_intrusive<Node>();
  node->kind = Node::Kind::Data;
  node->data = std::move(data);
  return node;
}

NodePtr make_parameter_node(TensorType type) {
  NodePtr node = c10::make_intrusive<Node>();
  node->kind = Node::Kind::Parameter;
  node->data = std::make_shared<Data>();
  node->data->type = std::move(type);
  return node;
}

}  // namespace torch_xla
