// Averages of windows and their gradients are PyTorch's; in 32 bits bit for bit.
#include "host_ops/avg_pool.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace torch_xla {
namespace {

using torch::Tensor;

struct Averages {
  std::vector<int64_t> kernel, stride, padding;
  bool ceil = false, counted = true;
  std::optional<int64_t> divisor = std::nullopt;
};

torch::jit::Stack averages_call(torch::jit::Stack tensors, const Averages& a) {
  for (const c10::IValue& value :
       torch::jit::Stack{a.kernel, a.stride, a.padding, a.ceil, a.counted, a.divisor}) {
    tensors.push_back(value);
  }
  return tensors;
}

const std::vector<Averages> kAverages = {{{3}, {1}, {1}},
                                         {{2}, {}, {0}},
                                         {{3}, {2}, {1}, false, false},
                                         {{5, 2}, {3, 1}, {2, 1}, true},
                                         {{3}, {2}, {1}, true, false},
                                         {{4, 3}, {1, 3}, {0}, true, true, 7}};

void expect_equal(const Tensor& found, const Tensor& wanted) {
  const double tolerance = wanted.scalar_type() == torch::kFloat ? 0 : 2e-2;  // PyTorch adds in 16
  EXPECT_TRUE(torch::allclose(found, wanted, tolerance, tolerance)) << wanted.sizes();
}

void expect_pytorchs(const Tensor& x, const Averages& a) {
  const Tensor wanted =
      at::avg_pool2d(x, a.kernel, a.stride, a.padding, a.ceil, a.counted, a.divisor);
  const Tensor found = torch::full_like(wanted, 77);
  write_avg_pool(averages_call({x}, a), found);
  expect_equal(found, wanted);

  const Tensor gradient = torch::randn(wanted.sizes()).to(x.scalar_type());
  const Tensor of_input = torch::full_like(x, 77);
  write_avg_pool_gradient(averages_call({gradient, x}, a), of_input);
  expect_equal(of_input, at::avg_pool2d_backward(gradient, x, a.kernel, a.stride, a.padding, a.ceil,
                                                 a.counted, a.divisor));
}

TEST(AvgPoolTest, IsPyTorchs) {
  torch::manual_seed(0);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 40, 41}, {1, 5, 9, 70}, {4, 17, 16}, {3, 2, 200, 7}}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      for (const Averages& averages : kAverages) {
        expect_pytorchs(torch::randn(sizes).to(dtype), averages);
      }
    }
  }
}

}  // namespace
}  // namespace torch_xla
