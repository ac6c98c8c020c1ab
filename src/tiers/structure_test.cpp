// How many programs one graph structure has.
#include "tiers/structure.h"

#include "graph/collect.h"
#include "lower/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace torch_xla {
namespace {

void lower_literal(LowerContext& c) { c.set(0, c.b.constant(c.static_number(0), DType::Float)); }

// One operation whose number must be a literal.
Graph graph_of(double number) {
  Signature signature;
  signature.op = "test::literal";
  signature.tier = Tier::Direct;
  signature.lower = &lower_literal;
  signature.arguments = {NumberRef{0}};
  signature.number_kinds = {Number::Kind::Double};
  OutputSpec output;
  output.frame = {DType::Float, {}};
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

}  // namespace
}  // namespace torch_xla
