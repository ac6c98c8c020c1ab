// A libtorch training step as one pure function.
#include "torch_xla/torch_xla.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace torch_xla {
namespace {

class PureTrainingTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { eager_mode(GetParam()); }
  void TearDown() override { eager_mode(false); }
};
INSTANTIATE_TEST_SUITE_P(Modes, PureTrainingTest, testing::Values(false, true));

torch::nn::Sequential make_small_model() {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
  model->to(torch_xla::device());
  return model;
}

TEST_P(PureTrainingTest, RepeatsGradientsAndUpdates) {
  const torch::Tensor x = torch::randn({5, 6}).to(device());
  const torch::Tensor y = torch::randint(3, {5}).to(device());
  std::vector<torch::Tensor> weights;
  std::vector<double> losses[2];
  for (const bool traced : {false, true}) {
    torch::nn::Sequential model = make_small_model();
    torch::optim::SGD optimizer(model->parameters(),
                                torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
    auto step = [&](const torch::Tensor& input, const torch::Tensor& target) {
      watch_gradients(model->parameters());
      optimizer.zero_grad();
      torch::Tensor loss = torch::cross_entropy_loss(model->forward(input), target);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    auto pure = assume_pure(step, "step");
    for (int i = 0; i < 8; ++i) {
      // The first step makes the optimizer's state.
      const torch::Tensor loss = traced && i > 0 ? pure(x, y) : step(x, y);
      losses[static_cast<int>(traced)].push_back(loss.item<double>());
    }
    if (traced) {
      EXPECT_EQ(pure.info().traces, 1);
      EXPECT_EQ(pure.info().hits, 6);
    }
    weights.push_back(model->parameters()[0].detach().cpu());
  }
  for (size_t i = 0; i < losses[0].size(); ++i) {
    EXPECT_NEAR(losses[0][i], losses[1][i], 1e-6);
  }
  EXPECT_TRUE(torch::allclose(weights[0], weights[1], 1e-5, 1e-6));
}

}  // namespace
}  // namespace torch_xla
