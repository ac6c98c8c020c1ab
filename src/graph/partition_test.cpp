#include "graph/partition.h"

#include "graph/collect.h"
#include "graph/max_flow.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

TEST(MaxFlow, FindsTheNarrowestCut) {
  MaxFlow flow(4);  // 0 -> 1 -> 3 and 0 -> 2 -> 3
  flow.add_edge(0, 1, 5);
  flow.add_edge(1, 3, 2);
  flow.add_edge(0, 2, 1);
  flow.add_edge(2, 3, 9);
  EXPECT_EQ(flow.run(0, 3), 3);
  EXPECT_TRUE(flow.on_source_side(1));
  EXPECT_FALSE(flow.on_source_side(2));
}

SignaturePtr signature(bool cheap, int64_t elements) {
  auto result = std::make_shared<Signature>();
  result->op = cheap ? "test::cheap" : "test::dear";
  result->cheap = cheap;
  OutputSpec output;
  output.frame = {DType::Float, {elements}};
  result->outputs.push_back(output);
  result->hash = static_cast<uint64_t>(elements) * 2 + cheap;
  return result;
}

Value op(bool cheap, int64_t elements, std::initializer_list<Value> operands) {
  NodePtr node = c10::make_intrusive<Node>();
  node->signature = signature(cheap, elements);
  node->operands.assign(operands.begin(), operands.end());
  return {node, 0};
}

Value parameter(int64_t elements) { return {make_parameter_node({DType::Float, {elements}}), 0}; }

// The graph of one result and one gradient.
Partition split(const Graph& joint, const Value& tangent) {
  std::vector<InputRole> roles;
  for (const NodePtr& input : joint.inputs) {
    roles.push_back(input == tangent.node ? InputRole::Tangent : InputRole::Primal);
  }
  return partition(joint, roles, 1);
}

TEST(Partition, CheapValuesAreComputedAgain) {
  Value x = parameter(8), tangent = parameter(8);
  Value dear = op(false, 8, {x});
  Value cheap = op(true, 8, {dear});
  Value result = op(false, 1, {cheap});
  Value gradient = op(true, 8, {tangent, cheap});
  Graph joint = collect_graph({result, gradient});
  Partition parts = split(joint, tangent);
  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(joint.nodes[parts.saved[0].producer].node, dear.node);
  EXPECT_EQ(parts.saved_outputs, std::vector<int32_t>{1});
  EXPECT_EQ(parts.forward.outputs.size(), 2u);
  EXPECT_EQ(parts.forward.nodes.size(), 3u);
  EXPECT_EQ(parts.backward.nodes.size(), 2u);  // the cheap one again, and the gradient
  EXPECT_EQ(parts.backward.inputs.size(), 2u);
}

TEST(Partition, ArgumentsAreKeptRatherThanWhatIsComputedFromThem) {
  Value x = parameter(8), tangent = parameter(8);
  Value cheap = op(true, 8, {x});
  Value result = op(false, 1, {cheap});
  Value gradient = op(true, 8, {tangent, cheap});
  Graph joint = collect_graph({result, gradient});
  Partition parts = split(joint, tangent);
  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_LT(parts.saved[0].producer, 0);
  EXPECT_EQ(parts.forward.outputs.size(), 1u);
}

TEST(Partition, WhatIsReturnedAndKeptIsOneOutput) {
  Value x = parameter(8), tangent = parameter(8);
  Value result = op(false, 8, {x});
  Value gradient = op(true, 8, {tangent, result});
  Partition parts = split(collect_graph({result, gradient}), tangent);
  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(parts.saved_outputs, std::vector<int32_t>{0});
  EXPECT_EQ(parts.forward.outputs.size(), 1u);
}

TEST(Partition, TheSmallerOfTwoCutsIsTaken) {
  Value x = parameter(8), tangent = parameter(1);
  Value big = op(false, 1000, {x});
  Value small = op(false, 2, {big});
  Value again = op(true, 1000, {small});
  Value result = op(false, 1, {again});
  Value gradient = op(true, 8, {tangent, again});
  Graph joint = collect_graph({result, gradient});
  Partition parts = split(joint, tangent);
  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(joint.nodes[parts.saved[0].producer].node, small.node);
}

TEST(Partition, WhatOnlyTheGradientNeedsIsLeftToIt) {
  Value x = parameter(8), tangent = parameter(8);
  Value result = op(false, 1, {x});
  Value recomputed = op(false, 8, {x});  // as torch.utils.checkpoint makes it
  Value gradient = op(true, 8, {tangent, recomputed});
  Graph joint = collect_graph({result, gradient});
  Partition parts = split(joint, tangent);
  EXPECT_EQ(parts.forward.nodes.size(), 1u);
  EXPECT_EQ(parts.backward.nodes.size(), 2u);
}

}  // namespace
}  // namespace torch_xla
