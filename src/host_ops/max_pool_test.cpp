// The largest of windows and their places are PyTorch's, number for number.
#include "host_ops/max_pool.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

namespace torch_xla {
namespace {

using torch::Tensor;
using List = std::vector<int64_t>;

struct Windows {
  List kernel, stride, padding, dilation;
  bool ceil = false;
};

torch::jit::Stack call_of(const Tensor& x, const Windows& w) {
  return {x, w.kernel, w.stride, w.padding, w.dilation, w.ceil};
}

void expect_same(const Tensor& x, const Windows& w) {
  const auto [values, places] =
      at::max_pool2d_with_indices(x, w.kernel, w.stride, w.padding, w.dilation, w.ceil);
  const std::vector<Tensor> found = {torch::full_like(values, 77), torch::full_like(places, -77)};
  write_max_pool(call_of(x, w), found);
  EXPECT_TRUE(torch::equal(found[1], places)) << x.sizes() << x.dtype();
  EXPECT_TRUE(torch::allclose(found[0].to(torch::kFloat), values.to(torch::kFloat), 0, 0, true));
}

const std::vector<Windows> kWindows = {{{3}, {2}, {1}, {1}},
                                       {{2}, {}, {0}, {1}},
                                       {{3, 2}, {1, 3}, {1, 0}, {1}},
                                       {{5}, {1}, {2}, {1}},
                                       {{3}, {2}, {1}, {2}, true},
                                       {{1}, {4}, {0}, {1}},
                                       {{2, 5}, {3, 2}, {1, 2}, {2, 1}, true}};

TEST(MaxPoolTest, IsPyTorchs) {
  torch::manual_seed(0);
  for (const List& sizes : {List{2, 3, 40, 41}, {1, 5, 9, 70}, {4, 17, 16}, {3, 2, 200, 7}}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      const Tensor x = (torch::randn(sizes) * 2).round().to(dtype);  // there are equal numbers
      for (const Windows& windows : kWindows) {
        expect_same(x, windows);
      }
    }
  }
}

TEST(MaxPoolTest, OfNaNsAndInfinities) {
  torch::manual_seed(0);
  Tensor x = torch::randn({2, 4, 33, 34});
  x[0][1].masked_fill_(torch::rand({33, 34}) < 0.2, NAN);
  x[1].masked_fill_(torch::rand({4, 33, 34}) < 0.7, -INFINITY);
  x[0][3] = -INFINITY;
  for (const Windows& windows : kWindows) {
    expect_same(x, windows);
    expect_same(x.to(torch::kBFloat16), windows);
  }
}

TEST(MaxPoolTest, OfPartsThatLieApart) {
  const Tensor x = torch::randn({4, 6, 32, 32}), values = torch::zeros({4, 6, 16, 16});
  const Tensor places = torch::zeros({4, 6, 16, 16}, torch::kLong);
  const Windows windows = kWindows[0];
  for (int64_t start : {0, 2, 4}) {
    write_max_pool(call_of(x.narrow(1, start, 2), windows),
                   {values.narrow(1, start, 2), places.narrow(1, start, 2)});
  }
  const auto [wanted, wanted_places] = at::max_pool2d_with_indices(x, 3, 2, 1);
  EXPECT_TRUE(torch::equal(values, wanted));
  EXPECT_TRUE(torch::equal(places, wanted_places));
}

}  // namespace
}  // namespace torch_xla
