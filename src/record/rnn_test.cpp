// LSTMs in a process without Python, where PyTorch has no meta kernels for oneDNN's layers. Needs a
// plugin: TORCH_XLA_PLUGIN_PATH names it.
#include "torch_xla/torch_xla.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace torch_xla {
namespace {

// The output, and gradients.
std::vector<torch::Tensor> trained(const torch::Device& device, torch::Dtype dtype) {
  torch::manual_seed(0);
  auto random = [&](torch::IntArrayRef sizes) {
    return torch::randn(sizes).to(device, dtype).requires_grad_();
  };
  std::vector<torch::Tensor> weights;
  for (int64_t inputs : {4, 4, 6, 6}) {  // two layers of two directions
    weights.insert(weights.end(),
                   {random({12, inputs}), random({12, 3}), random({12}), random({12})});
  }
  torch::Tensor hx = random({4, 2, 3});
  torch::Tensor output =
      std::get<0>(torch::lstm(random({5, 2, 4}), {hx, hx}, weights, /*has_biases=*/true,
                              /*num_layers=*/2, /*dropout=*/0, /*train=*/true,
                              /*bidirectional=*/true, /*batch_first=*/false));
  output.square().sum().backward();
  return {output.detach(), weights[0].grad(), hx.grad()};
}

class RnnTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { eager_mode(GetParam()); }
  void TearDown() override {
    eager_mode(false);
    sync(true);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, RnnTest, testing::Values(true, false));

// Without instructions for bfloat16, PyTorch composes such an LSTM of smaller operators.
bool onednn_has_bfloat16() {
  torch::jit::Stack stack;
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "")
      .callBoxed(&stack);
  return stack[0].toBool();
}

TEST_P(RnnTest, LstmHasTheBitsOfTheCpu) {
  std::vector<torch::Dtype> dtypes = {torch::kFloat};
  if (onednn_has_bfloat16()) {
    dtypes.push_back(torch::kBFloat16);
  }
  for (torch::Dtype dtype : dtypes) {
    std::vector<torch::Tensor> expected = trained(torch::kCPU, dtype);
    std::vector<torch::Tensor> actual = trained(torch::Device(torch::kXLA, 0), dtype);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(actual[i].cpu(), expected[i])) << dtype << ", result " << i;
    }
  }
}

}  // namespace
}  // namespace torch_xla
