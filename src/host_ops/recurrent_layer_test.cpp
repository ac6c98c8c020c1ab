// A layer, forward and backward, against what PyTorch composes and autograd makes of it.
#include "host_ops/recurrent_layer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace torch_xla {
namespace {

using torch::Tensor;

struct Composed {
  Tensor output, hy, cy;
};

// PyTorch knows the reverse direction beside the other one only.
Composed compose(RecurrentCell cell, const Tensor& data, const Tensor& batch_sizes,
                 const std::vector<Tensor>& states, std::vector<Tensor> weights, bool reverse) {
  std::vector<Tensor> both;
  for (const Tensor& state : states) {
    both.push_back(torch::stack(std::vector<Tensor>(reverse ? 2 : 1, state)));
  }
  const std::vector<Tensor> once = weights;
  weights.insert(weights.end(), once.begin(), reverse ? once.end() : once.begin());
  const int64_t index = reverse ? 1 : 0;
  auto of = [&](const Tensor& output, const Tensor& hy, const Tensor& cy) {
    const int64_t hidden = hy.size(2);
    return Composed{output.narrow(1, index * hidden, hidden), hy[index],
                    cy.defined() ? cy[index] : cy};
  };
  if (cell == RecurrentCell::Lstm) {
    auto [output, hy, cy] =
        torch::lstm(data, batch_sizes, both, weights, true, 1, 0.0, true, reverse);
    return of(output, hy, cy);
  }
  auto function = cell == RecurrentCell::Gru    ? &at::_ops::gru_data::call
                  : cell == RecurrentCell::Tanh ? &at::_ops::rnn_tanh_data::call
                                                : &at::_ops::rnn_relu_data::call;
  auto [output, hy] = function(data, batch_sizes, both[0], weights, true, 1, 0.0, true, reverse);
  return of(output, hy, {});
}

class RecurrentLayerTest : public testing::TestWithParam<std::tuple<int64_t, bool, bool>> {};

TEST_P(RecurrentLayerTest, IsThatOfPyTorch) {
  const auto cell = static_cast<RecurrentCell>(std::get<0>(GetParam()));
  const bool packed = std::get<1>(GetParam()), reverse = std::get<2>(GetParam());
  const std::vector<int64_t> rows =
      packed ? std::vector<int64_t>{5, 5, 3, 1} : std::vector<int64_t>{5, 5, 5};
  const int64_t count = packed ? 14 : 15, hidden = 19, gates = gates_of(cell) * hidden;
  auto leaf = [](torch::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); };
  const Tensor data = leaf({count, 7});
  std::vector<Tensor> states = {leaf({5, hidden})};
  if (cell == RecurrentCell::Lstm) {
    states.push_back(leaf({5, hidden}));
  }
  const std::vector<Tensor> weights = {leaf({gates, 7}), leaf({gates, hidden}), leaf({gates}),
                                       leaf({gates})};
  const Composed wanted =
      compose(cell, data, torch::tensor(rows, torch::kLong), states, weights, reverse);

  const Tensor cx = cell == RecurrentCell::Lstm ? states[1] : Tensor();
  const std::vector<int64_t> batch_sizes = packed ? rows : std::vector<int64_t>{5};
  torch::NoGradGuard no_gradients;
  const RecurrentLayer layer{data,       states[0],  cx,          weights[0], weights[1],
                             weights[2], weights[3], batch_sizes, cell,       reverse};
  const RecurrentResult forward = recurrent_forward(layer, /*keeps=*/true);
  EXPECT_TRUE(forward.output.allclose(wanted.output, 1e-5, 1e-5));
  EXPECT_TRUE(forward.hy.allclose(wanted.hy, 1e-5, 1e-5));
  EXPECT_TRUE(recurrent_forward(layer, /*keeps=*/false).output.allclose(wanted.output, 1e-5, 1e-5));

  std::vector<Tensor> results = {wanted.output, wanted.hy}, leaves = {data};
  if (cx.defined()) {
    EXPECT_TRUE(forward.cy.allclose(wanted.cy, 1e-5, 1e-5));
    results.push_back(wanted.cy);
  }
  leaves.insert(leaves.end(), states.begin(), states.end());
  leaves.insert(leaves.end(), weights.begin(), weights.end());
  std::vector<Tensor> seeds;
  for (const Tensor& result : results) {
    seeds.push_back(torch::randn_like(result));
  }
  const std::vector<Tensor> expected = torch::autograd::grad(results, leaves, seeds);
  const RecurrentGradients actual = recurrent_backward(
      layer, forward, {seeds[0], seeds[1], cx.defined() ? seeds[2] : Tensor()}, true, true);
  std::vector<Tensor> found = {actual.data, actual.hx};
  if (cx.defined()) {
    found.push_back(actual.cx);
  }
  found.insert(found.end(), {actual.w_ih, actual.w_hh, actual.b_ih, actual.b_hh});
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].allclose(expected[i], 1e-4, 1e-4)) << "gradient " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentLayerTest,
                         testing::Combine(testing::Range<int64_t>(0, 4), testing::Bool(),
                                          testing::Bool()));

}  // namespace
}  // namespace torch_xla
