// How many programs one graph structure has.
#include "tiers/structure.h"

#include "graph/collect.h"
#include "lower/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace torch_xla {
namespace {

void lower_literal(LowerContext& c) { c.set(0, c.b.full(c.static_number(0), c.output(0).frame)); }

// One operation whose number must be a literal.
Graph graph_of(double number, const std::string& op = "test::literal", int64_t elements = 1) {
  Signature signature;
  signature.op = op;
  signature.tier = Tier::Direct;
  signature.lower = &lower_literal;
  signature.arguments = {NumberRef{0}};
  signature.number_kinds = {Number::Kind::Double};
  OutputSpec output;
  output.frame = {DType::Float, {elements}};
  output.sizes = {elements};
  output.strides = {1};
  output.frame_to_sizes = {0};
  signature.outputs = {output};
  NodePtr node = c10::make_intrusive<Node>();
  node->signature = intern(std::move(signature));
  node->numbers = {Number::of(number)};
  TraceLock lock;
  Graph graph = collect_graph({Value{node, 0}});
  finish_graph(graph);
  return graph;
}

TEST(StructureTest, KeepsTheProgramsOfTheLastNumbers) {
  constexpr std::ptrdiff_t kKept = 32;
  tiers::Options options;
  options.policy = tiers::Policy::Off;
  auto structure = std::make_shared<Structure>();
  std::vector<std::weak_ptr<const Variant>> all;
  for (int number = 0; number < 40; ++number) {
    all.push_back(structure->choose(graph_of(number), "test", options));
  }
  auto alive = [&] {
    return std::count_if(all.begin(), all.end(), [](const auto& v) { return !v.expired(); });
  };
  EXPECT_EQ(alive(), kKept);
  EXPECT_EQ(structure->choose(graph_of(39), "test", options), all.back().lock());
  EXPECT_NE(structure->choose(graph_of(0), "test", options), nullptr);
  EXPECT_EQ(alive(), kKept - 1);  // the one made anew is not among them
}

TEST(StructureTest, KnowsWhenItWillAlwaysBeInterpreted) {
  constexpr int64_t kMany = 1 << 20;
  const Graph slower_as_program = graph_of(1, "aten::sum", kMany), other = graph_of(1);
  tiers::Options options;
  options.runs = 2;
  auto structure = std::make_shared<Structure>(), compiled = std::make_shared<Structure>();
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(structure->choose(slower_as_program, "test", options), nullptr);
    EXPECT_EQ(compiled->choose(other, "test", options), nullptr);
    EXPECT_EQ(structure->stays_interpreted(options), run == 1);
    EXPECT_FALSE(compiled->stays_interpreted(options));
  }
  options.policy = tiers::Policy::Never;
  EXPECT_FALSE(structure->stays_interpreted(options));
}

}  // namespace
}  // namespace torch_xla
