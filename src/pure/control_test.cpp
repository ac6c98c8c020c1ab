// Control flow as a C++ program uses it, as programs and interpreted. Needs a plugin:
// TORCH_XLA_PLUGIN_PATH names it.
#include "base/error.h"
#include "execution/sync.h"
#include "torch_xla/control_flow.h"
#include "torch_xla/torch_xla.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>

namespace torch_xla {
namespace {

using Tensors = std::vector<at::Tensor>;
using Floats = std::vector<float>;

Floats floats(const at::Tensor& tensor) {
  at::Tensor cpu = tensor.detach().cpu().contiguous();
  return {cpu.const_data_ptr<float>(), cpu.const_data_ptr<float>() + cpu.numel()};
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

class ControlTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("TORCH_XLA_TIERS", GetParam(), 1); }
  void TearDown() override {
    sync(true);
    setenv("TORCH_XLA_TIERS", "off", 1);
  }
  const at::TensorOptions options_ = at::TensorOptions().device(c10::DeviceType::XLA, 0);
};

INSTANTIATE_TEST_SUITE_P(Tiers, ControlTest, testing::Values("off", "never"));

TEST_P(ControlTest, ScansInBothDirections) {
  auto total = [](const Tensors& carried, const Tensors& x) -> ScanResults {
    at::Tensor sum = carried[0] + x[0];
    return {{sum}, {sum}};
  };
  at::Tensor xs = at::arange(1, 4, options_.dtype(at::kFloat));
  auto [last, sums] = scan(total, {at::zeros({}, options_)}, {xs});
  EXPECT_EQ(floats(last[0]), Floats{6});
  EXPECT_EQ(floats(sums[0]), (Floats{1, 3, 6}));
  auto [end, reversed] = scan(total, {at::zeros({}, options_)}, {xs}, true);
  EXPECT_EQ(floats(end[0]), Floats{6});
  EXPECT_EQ(floats(reversed[0]), (Floats{6, 5, 3}));
}

TEST_P(ControlTest, DifferentiatesWithRespectToWhatIsClosedOver) {
  at::Tensor w = at::ones({2}, options_).set_requires_grad(true);
  auto step = [&](const Tensors& carried, const Tensors& x) -> ScanResults {
    return {{carried[0] * w}, {carried[0] + x[0]}};
  };
  at::Tensor init = at::arange(1, 3, options_.dtype(at::kFloat)).set_requires_grad(true);
  auto [last, ys] = scan(step, {init}, {at::zeros({3, 2}, options_)});
  auto gradients = torch::autograd::grad({last[0].sum() + ys[0].sum()}, {init, w});
  EXPECT_EQ(floats(gradients[0]), (Floats{4, 4}));   // w^3 + 1 + w + w^2
  EXPECT_EQ(floats(gradients[1]), (Floats{6, 12}));  // init (3 w^2 + 1 + 2 w)
}

TEST_P(ControlTest, LoopsAsLongAsTheConditionIsTrue) {
  auto doubled =
      while_loop([](const Tensors& v) { return v[0].sum().lt(100); },
                 [](const Tensors& v) { return Tensors{v[0] * 2}; }, {at::ones({3}, options_)});
  EXPECT_EQ(floats(doubled[0]), (Floats{64, 64, 64}));
}

TEST_P(ControlTest, TakesOneBranchAndItsEffects) {
  for (bool taken : {true, false}) {
    at::Tensor seen = at::zeros({}, options_);
    auto result = cond(
        at::ones({}, options_).gt(taken ? 0 : 1),
        [&](const Tensors& v) {
          seen.add_(1);
          return Tensors{v[0] * 2};
        },
        [](const Tensors& v) { return Tensors{v[0] - 1}; }, {at::ones({2}, options_)});
    EXPECT_EQ(floats(result[0]), taken ? (Floats{2, 2}) : (Floats{0, 0}));
    EXPECT_EQ(floats(seen), Floats{taken ? 1.0f : 0.0f});
  }
}

TEST_P(ControlTest, PutsABodyIntoTheProgramOnce) {
  auto text_of = [&](int64_t length) {
    auto step = [](const Tensors& carried, const Tensors& x) -> ScanResults {
      return {{at::tanh(carried[0]) + x[0]}, {carried[0]}};
    };
    auto [last, ys] = scan(step, {at::ones({2}, options_)}, {at::ones({length, 2}, options_)});
    auto chosen = cond(
        last[0].sum().gt(0), [](const Tensors& v) { return Tensors{v[0]}; },
        [](const Tensors& v) { return Tensors{at::tanh(v[0])}; }, last);
    return pending_text({chosen[0], ys[0]}, GraphText::StableHlo);
  };
  const std::string text = text_of(1000);
  EXPECT_EQ(count(text, "stablehlo.while"), 1u);
  EXPECT_EQ(count(text, "stablehlo.if"), 1u);
  EXPECT_EQ(count(text, "stablehlo.tanh"), 2u);
  EXPECT_EQ(count(text, "\n"), count(text_of(3), "\n"));
}

TEST_P(ControlTest, RefusesShapesThatChange) {
  at::Tensor x = at::ones({2}, options_);
  EXPECT_THROW(while_loop([](const Tensors& v) { return v[0].sum().lt(9); },
                          [](const Tensors& v) { return Tensors{v[0].sum()}; }, {x}),
               Error);
  EXPECT_THROW(cond(
                   x.sum().gt(0), [](const Tensors& v) { return v; },
                   [](const Tensors& v) { return Tensors{v[0].sum()}; }, {x}),
               Error);
}

}  // namespace
}  // namespace torch_xla
