// Sums of columns, extremes of rows and what softmax knows of them are PyTorch's.
#include "host_ops/rows.h"

#include "host_ops/softmax.h"
#include "host_ops/test_workers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace torch_xla {
namespace {

using torch::Tensor;

Matrix matrix_of(const Tensor& x) {
  return {x.const_data_ptr(), x.scalar_type(), x.size(0), x.size(1)};
}

class Rows : public testing::TestWithParam<std::tuple<int64_t, int64_t, torch::Dtype>> {
 protected:
  Tensor numbers() const {
    const auto& [rows, columns, dtype] = GetParam();
    return (torch::randn({rows, columns}) * 5).to(dtype);
  }
};

TEST_P(Rows, ExponentialsBelowTheLargest) {
  const Tensor x = numbers(), wide = x.to(torch::kDouble);
  Tensor largest = torch::empty({x.size(0)}), sums = torch::empty({x.size(0)});
  OneByOne workers;
  exponentials_of_rows(workers, matrix_of(x), largest.mutable_data_ptr<float>(),
                       sums.mutable_data_ptr<float>());
  const Tensor wanted = wide.amax(1);
  EXPECT_TRUE(torch::equal(largest.to(torch::kDouble), wanted));
  EXPECT_TRUE(
      torch::allclose(sums.to(torch::kDouble), (wide - wanted.unsqueeze(1)).exp().sum(1), 1e-6, 0));
}

TEST_P(Rows, SumsOfColumns) {
  const Tensor x = numbers();
  Tensor sums = torch::empty({x.size(1)});
  OneByOne workers;
  sums_of_columns(workers, matrix_of(x), sums.mutable_data_ptr<float>());
  const Tensor error = (sums - x.to(torch::kDouble).sum(0)).abs().max();
  EXPECT_LE(error.item<double>(), 1e-6 * x.to(torch::kDouble).abs().sum(0).max().item<double>());
}

TEST_P(Rows, MomentsOfColumns) {
  const Tensor x = numbers() + 20, wide = x.to(torch::kDouble);
  Tensor means = torch::empty({x.size(1)}), squares = torch::empty({x.size(1)});
  OneByOne workers;
  moments_of_columns(workers, matrix_of(x), means.mutable_data_ptr<float>(),
                     squares.mutable_data_ptr<float>());
  EXPECT_TRUE(torch::allclose(means.to(torch::kDouble), wide.mean(0), 4e-6, 1e-6));
  const Tensor wanted = wide.var(0, /*unbiased=*/false) * x.size(0);
  EXPECT_TRUE(torch::allclose(squares.to(torch::kDouble), wanted, 2e-5, 1e-9));
}

TEST_P(Rows, SumsOfGradientsOfColumns) {
  const Tensor x = numbers(), gradient = numbers(), means = torch::randn({x.size(1)});
  Tensor sums = torch::empty({x.size(1)}), products = torch::empty({x.size(1)});
  OneByOne workers;
  gradient_sums_of_columns(workers, matrix_of(gradient), matrix_of(x),
                           means.const_data_ptr<float>(), sums.mutable_data_ptr<float>(),
                           products.mutable_data_ptr<float>());
  const Tensor g = gradient.to(torch::kDouble), terms = g * (x.to(torch::kDouble) - means);
  for (const auto& [found, of] : {std::pair(sums, g), {products, terms}}) {
    const Tensor error = (found - of.sum(0)).abs() - 1e-6 * of.abs().sum(0);
    EXPECT_LE(error.max().item<double>(), 0);
  }
}

TEST(Rows, ColumnsOfManyBlocksAndParts) {
  const Tensor x = torch::randn({3, 5000, 37}) + 2, wide = x.to(torch::kDouble);
  Tensor sums = torch::empty({3, 37}), squares = torch::empty({37});
  OneByOne workers;
  sums_of_columns(workers, matrix_of(x.view({15'000, 37})), sums.mutable_data_ptr<float>(), 3);
  EXPECT_TRUE(torch::allclose(sums.to(torch::kDouble), wide.sum(1), 1e-6, 1e-2));
  const Tensor rows = wide.view({15'000, 37});
  moments_of_columns(workers, matrix_of(x.view({15'000, 37})), sums.mutable_data_ptr<float>(),
                     squares.mutable_data_ptr<float>());
  EXPECT_TRUE(torch::allclose(sums[0].to(torch::kDouble), rows.mean(0), 4e-6, 1e-6));
  const Tensor wanted = rows.var(0, /*unbiased=*/false) * 15'000;
  EXPECT_TRUE(torch::allclose(squares.to(torch::kDouble), wanted, 1e-5, 0));
}

TEST_P(Rows, SumsOfNumbersAndOfSquares) {
  const Tensor x = numbers(), wide = x.to(torch::kDouble);
  Tensor sums = torch::empty({x.size(0)}), squares = torch::empty({x.size(0)});
  OneByOne workers;
  sums_of_rows(workers, matrix_of(x), sums.mutable_data_ptr<float>());
  squares_of_rows(workers, matrix_of(x), squares.mutable_data_ptr<float>());
  const Tensor error = (sums - wide.sum(1)).abs() - 1e-6 * wide.abs().sum(1);
  EXPECT_LE(error.max().item<double>(), 0);
  EXPECT_TRUE(torch::allclose(squares.to(torch::kDouble), wide.square().sum(1), 1e-6, 0));
}

TEST_P(Rows, Moments) {
  const Tensor x = numbers() + 20, wide = x.to(torch::kDouble);
  Tensor means = torch::empty({x.size(0)}), squares = torch::empty({x.size(0)});
  OneByOne workers;
  moments_of_rows(workers, matrix_of(x), means.mutable_data_ptr<float>(),
                  squares.mutable_data_ptr<float>());
  EXPECT_TRUE(torch::allclose(means.to(torch::kDouble), wide.mean(1), 1e-6, 1e-6));
  const Tensor wanted = wide.var(1, /*unbiased=*/false) * x.size(1);
  EXPECT_TRUE(torch::allclose(squares.to(torch::kDouble), wanted, 2e-5, 1e-9));
}

TEST_P(Rows, SumsOfGradients) {
  const Tensor x = numbers(), gradient = numbers(), means = torch::randn({x.size(0)});
  Tensor sums = torch::empty({x.size(0)}), products = torch::empty({x.size(0)});
  OneByOne workers;
  gradient_sums_of_rows(workers, matrix_of(gradient), matrix_of(x), means.const_data_ptr<float>(),
                        sums.mutable_data_ptr<float>(), products.mutable_data_ptr<float>());
  const Tensor g = gradient.to(torch::kDouble);
  const Tensor terms = g * (x.to(torch::kDouble) - means.unsqueeze(1));
  for (const auto& [found, of] : {std::pair(sums, g), {products, terms}}) {
    const Tensor error = (found - of.sum(1)).abs() - 1e-6 * of.abs().sum(1);
    EXPECT_LE(error.max().item<double>(), 0);
  }
}

TEST_P(Rows, SoftmaxAndItsGradient) {
  const Tensor x = numbers(), gradient = numbers();
  Tensor softmax = torch::empty_like(x), of_x = torch::empty_like(x);
  OneByOne workers;
  softmax_of_rows(workers, matrix_of(x), false, softmax.mutable_data_ptr());
  softmax_gradient_of_rows(workers, matrix_of(gradient), matrix_of(softmax),
                           of_x.mutable_data_ptr());
  const Tensor wanted = x.to(torch::kDouble).softmax(1), y = softmax.to(torch::kDouble);
  const Tensor g = gradient.to(torch::kDouble);
  const double tolerance = x.scalar_type() == torch::kFloat ? 1e-5 : 4e-3;
  const double least = x.scalar_type() == torch::kHalf ? 1e-7 : 1e-30;  // half of its subnormals
  EXPECT_TRUE(torch::allclose(y, wanted, tolerance, least));
  EXPECT_TRUE(torch::allclose(of_x.to(torch::kDouble), y * (g - (g * y).sum(1, true)), tolerance,
                              5 * tolerance));
}

TEST_P(Rows, ExtremesAndTheirFirstPlaces) {
  const Tensor x = numbers().round();  // some are equal
  for (bool largest : {true, false}) {
    Tensor values = torch::empty({x.size(0)}), places = torch::empty({x.size(0)}, torch::kInt);
    OneByOne workers;
    (largest ? largest_of_rows : smallest_of_rows)(workers, matrix_of(x),
                                                   values.mutable_data_ptr<float>(),
                                                   places.mutable_data_ptr<int32_t>());
    const Tensor wanted = largest ? x.amax(1) : x.amin(1);
    EXPECT_TRUE(torch::equal(values, wanted.to(torch::kFloat)));
    const Tensor first = (x == wanted.unsqueeze(1)).to(torch::kInt).argmax(1);
    EXPECT_TRUE(torch::equal(places.to(torch::kLong), first));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Rows,
    testing::Combine(testing::Values(1, 7, 1000), testing::Values(1, 15, 16, 67, 4096),
                     testing::Values(torch::kFloat, torch::kBFloat16, torch::kHalf)));

TEST(Rows, NumbersThatAreNone) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Tensor x = torch::zeros({5, 40});
  x[0].fill_(-kInfinity);
  x[1][3] = std::nan("");
  x[2][39] = kInfinity;
  x[3].fill_(-1e30f);
  x[4].slice(0, 0, 20).fill_(-kInfinity);
  Tensor largest = torch::empty({5}), sums = torch::empty({5});
  OneByOne workers;
  exponentials_of_rows(workers, matrix_of(x), largest.mutable_data_ptr<float>(),
                       sums.mutable_data_ptr<float>());
  for (int64_t row : {0, 1, 2}) {
    EXPECT_TRUE(std::isnan(sums[row].item<float>())) << row;
  }
  EXPECT_EQ(sums[3].item<float>(), 40);
  EXPECT_EQ(sums[4].item<float>(), 20);
  EXPECT_EQ(largest[4].item<float>(), 0);
}

TEST(Rows, SumsOfRowsInPieces) {
  const Tensor x = torch::randn({3, 100'000}), wide = x.to(torch::kDouble);
  Tensor sums = torch::empty({3}), squares = torch::empty({3});
  OneByOne workers;
  sums_of_rows(workers, matrix_of(x), sums.mutable_data_ptr<float>());
  squares_of_rows(workers, matrix_of(x), squares.mutable_data_ptr<float>());
  EXPECT_TRUE(torch::allclose(sums.to(torch::kDouble), wide.sum(1), 1e-4, 1e-2));
  EXPECT_TRUE(torch::allclose(squares.to(torch::kDouble), wide.square().sum(1), 1e-6, 0));
  moments_of_rows(workers, matrix_of(x), sums.mutable_data_ptr<float>(),
                  squares.mutable_data_ptr<float>());
  EXPECT_TRUE(torch::allclose(sums.to(torch::kDouble), wide.mean(1), 1e-4, 1e-7));
  const Tensor wanted = wide.var(1, /*unbiased=*/false) * x.size(1);
  EXPECT_TRUE(torch::allclose(squares.to(torch::kDouble), wanted, 1e-6, 0));
}

TEST(Rows, SoftmaxOfWhatIsMasked) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Tensor x = torch::randn({4, 37});
  x[0].fill_(-kInfinity);
  x[1].slice(0, 3).fill_(-kInfinity);
  x[2].fill_(-kInfinity)[36] = std::nan("");
  OneByOne workers;
  for (bool zero_if_masked : {false, true}) {
    Tensor softmax = torch::empty_like(x), wanted = x.softmax(1);
    softmax_of_rows(workers, matrix_of(x), zero_if_masked, softmax.mutable_data_ptr());
    if (zero_if_masked) {
      wanted[0].zero_();
    }
    EXPECT_TRUE(torch::allclose(softmax, wanted, 1e-6, 0, /*equal_nan=*/true));
  }
}

// The longest rows are looked at in pieces.
TEST(Rows, ExtremesWhereThereIsNaN) {
  for (int64_t columns : {1, 40, 100'000}) {
    Tensor x = torch::randn({3, columns});
    x[0].fill_(-std::numeric_limits<float>::infinity());
    x[1].slice(0, columns / 2).fill_(std::nan(""));
    x[2][columns - 1] = std::nan("");
    Tensor values = torch::empty({3}), places = torch::empty({3}, torch::kInt);
    OneByOne workers;
    largest_of_rows(workers, matrix_of(x), values.mutable_data_ptr<float>(),
                    places.mutable_data_ptr<int32_t>());
    const auto [wanted, first] = x.max(1);
    EXPECT_TRUE(torch::equal(values.isnan(), wanted.isnan()));
    EXPECT_EQ(values[0].item<float>(), wanted[0].item<float>());
    EXPECT_TRUE(torch::equal(places.to(torch::kLong), first)) << columns;
  }
}

}  // namespace
}  // namespace torch_xla
