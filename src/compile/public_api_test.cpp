// Eager mode and compile as a C++ program uses them. Needs a plugin: TORCH_XLA_PLUGIN_PATH names
// it.
#include "base/error.h"
#include "torch_xla/torch_xla.h"
#include "values/pending.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>

namespace torch_xla {
namespace {

size_t pending() {
  TraceLock lock;
  return pending_count(0);
}

class CompileTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { eager_mode(GetParam()); }
  void TearDown() override {
    eager_mode(false);
    sync(true);
  }
  const c10::Device xla_{c10::DeviceType::XLA, 0};
};

INSTANTIATE_TEST_SUITE_P(Modes, CompileTest, testing::Values(true, false));

TEST_P(CompileTest, IsOneProgramACall) {
  auto step = compile([](const at::Tensor& x, double by) {
    EXPECT_FALSE(is_eager_mode());
    return (x * 2 + by).relu();
  });
  at::Tensor x = at::arange(-2, 3, at::TensorOptions().dtype(at::kFloat).device(xla_));
  step(x, 1.0);
  int64_t before = sample_count("ExecuteTime");
  at::Tensor y = step(x, 1.0);
  EXPECT_EQ(sample_count("ExecuteTime"), before + 1);
  EXPECT_EQ(pending(), 0u);
  EXPECT_EQ(is_eager_mode(), GetParam());
  EXPECT_TRUE(at::equal(y.cpu(), (at::arange(-2, 3).to(at::kFloat) * 2 + 1).relu()));
}

TEST_P(CompileTest, RunsWhatWasRecordedWhenAnExceptionPasses) {
  at::Tensor x = at::ones({3}, at::TensorOptions().device(xla_));
  auto fails = compile([&x] {
    x.add_(1);
    throw std::domain_error("mine");
  });
  EXPECT_THROW(fails(), std::domain_error);
  EXPECT_EQ(pending(), 0u);
  EXPECT_EQ(is_eager_mode(), GetParam());
  EXPECT_TRUE(at::equal(x.cpu(), at::full({3}, 2.0f)));
}

TEST_P(CompileTest, RefusesToReadInAFullGraph) {
  CompileOptions options;
  options.name = "my step";
  options.full_graph = true;
  auto reads = compile([](const at::Tensor& x) { return (x + 1).sum().item<float>(); }, options);
  try {
    reads(at::ones({3}, at::TensorOptions().device(xla_)));
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    std::string message = error.what();
    EXPECT_EQ(message.rfind("Unexpected execution happens inside the compiled function, exiting"),
              0u);
    EXPECT_NE(message.find("my step"), std::string::npos);
  }
}

TEST_P(CompileTest, LimitsItsGraphs) {
  CompileOptions options;
  options.max_different_graphs = 1;
  auto step = compile([](const at::Tensor& x) { return x * 3; }, options);
  step(at::ones({3}, at::TensorOptions().device(xla_)));
  EXPECT_THROW(step(at::ones({4}, at::TensorOptions().device(xla_))), Error);
  options.max_different_graphs = 0;
  EXPECT_THROW(compile([] {}, options), Error);
}

TEST(EagerTest, RunsAtOnceOnTheMemoryOfTheHost) {
  eager_mode(true);
  int64_t programs = counter_value("UncachedCompile");
  at::Tensor x = at::ones({4, 4}, at::TensorOptions().device(c10::Device("xla:0")));
  x.t()[1].mul_(5);
  EXPECT_EQ(pending(), 0u);
  EXPECT_EQ(counter_value("UncachedCompile"), programs);
  EXPECT_FLOAT_EQ(x.sum().item<float>(), 32);
  eager_mode(false);
}

TEST(EagerTest, RegionsBelongToTheirThread) {
  eager_mode(true);
  bool inside = true;
  bool other_thread = false;
  compile([&] {
    inside = is_eager_mode();
    std::thread([&] { other_thread = is_eager_mode(); }).join();
  })();
  EXPECT_FALSE(inside);
  EXPECT_TRUE(other_thread);
  eager_mode(false);
}

}  // namespace
}  // namespace torch_xla
