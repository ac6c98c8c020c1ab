// Products of few rows are those of the numbers in 64 bits, rounded once.
#include "host_ops/few_rows.h"

#include "host_ops/divide.h"
#include "host_ops/faster_kernel.h"
#include "host_ops/product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace torch_xla {
namespace {

using torch::Tensor;

double rounding_of(torch::Dtype dtype) {
  return dtype == torch::kFloat ? 2e-5 : dtype == torch::kBFloat16 ? 1e-2 : 2e-3;
}

// Of rows that are dense, or of columns, or neither.
Tensor matrix(int64_t rows, int64_t columns, torch::Dtype dtype, int order) {
  const Tensor whole =
      torch::randn({order == 1 ? columns : rows, order == 1 ? rows : columns, order == 2 ? 3 : 1});
  const Tensor matrix = whole.to(dtype).select(2, 0);
  return order == 1 ? matrix.t() : matrix;
}

void expect_product(const char* name, const torch::jit::Stack& arguments, Tensor result,
                    const Tensor& exact) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  for (int64_t threads : {1, 3}) {
    result.fill_(NAN);
    const std::vector<CallPiece> pieces = divide(op, arguments, threads);
    if (threads == 1) {
      ASSERT_TRUE(multiply_faster(op, arguments, result));
    } else {
      ASSERT_GE(pieces.size(), 2);
    }
    for (const CallPiece& piece : pieces) {
      ASSERT_EQ(piece.kernel, &write_product_of_few_rows);
      const CallPiece::Part& part = piece.parts[0];
      piece.kernel(piece.arguments, result.narrow(part.dim, part.start, part.length));
    }
    const double error = (result.to(torch::kDouble) - exact).abs().max().item<double>();
    EXPECT_LE(error, rounding_of(result.scalar_type()) * exact.abs().max().item<double>())
        << name << " of " << result.sizes() << ", " << result.scalar_type();
  }
}

class FewRowsOf : public testing::TestWithParam<std::tuple<torch::Dtype, int, int, int>> {
 protected:
  torch::Dtype dtype_ = std::get<0>(GetParam());
  int64_t rows_ = std::get<1>(GetParam());
  Tensor x_ = matrix(rows_, kInner, dtype_, std::get<2>(GetParam()));
  Tensor y_ = matrix(kInner, kColumns, dtype_, std::get<3>(GetParam()));
  Tensor exact_ = x_.to(torch::kDouble).mm(y_.to(torch::kDouble));
  static constexpr int64_t kInner = 275, kColumns = 1163;  // no multiples of anything
};

TEST_P(FewRowsOf, AreMultiplied) {
  expect_product("aten::mm", {x_, y_}, matrix(rows_, kColumns, dtype_, 0), exact_);
  const Tensor transposed = matrix(kColumns, rows_, dtype_, 2);  // few columns
  expect_product("aten::mm", {y_.t(), x_.t()}, transposed, exact_.t());
}

TEST_P(FewRowsOf, AreAdded) {
  const Tensor bias = torch::randn({kColumns}).to(dtype_),
               result = matrix(rows_, kColumns, dtype_, 2);
  expect_product("aten::addmm", {bias, x_, y_, 1, 1}, result, bias.to(torch::kDouble) + exact_);
  const Tensor summand = torch::randn({rows_, kColumns}).to(dtype_);
  expect_product("aten::addmm", {summand, x_, y_, 0.5, -2.0}, result,
                 0.5 * summand.to(torch::kDouble) - 2 * exact_);
  const Tensor nan = torch::full({kColumns}, NAN, dtype_);
  expect_product("aten::addmm", {nan, x_, y_, 0, 3}, result, 3 * exact_);
}

TEST_P(FewRowsOf, AreVectors) {
  const Tensor x = x_.select(0, 0), bias = torch::randn({kColumns}).to(dtype_);
  const Tensor result = torch::empty({kColumns, 2}, dtype_).select(1, 0);
  expect_product("aten::mv", {y_.t(), x}, result, exact_.select(0, 0));
  expect_product("aten::addmv", {bias, y_.t(), x, 1, 2}, result,
                 bias.to(torch::kDouble) + 2 * exact_.select(0, 0));
}

TEST_P(FewRowsOf, AreMultipliedInBatches) {
  const Tensor x = torch::stack({x_, -x_, x_}), y = torch::stack({y_.t(), y_.t(), -y_.t()}).mT();
  expect_product("aten::bmm", {x, y}, torch::empty({3, rows_, kColumns}, dtype_),
                 torch::stack({exact_, -exact_, -exact_}));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, FewRowsOf,
    testing::Combine(testing::Values(torch::kFloat, torch::kBFloat16, torch::kHalf),
                     testing::Values(1, 2, 3, 4), testing::Range(0, 3), testing::Range(0, 2)));

TEST(SevenRows, AreMultipliedToo) {
  for (int order : {0, 1}) {
    const Tensor x = matrix(7, 300, torch::kFloat, 0), y = matrix(300, 1000, torch::kFloat, order);
    expect_product("aten::mm", {x, y}, torch::empty({7, 1000}),
                   x.to(torch::kDouble).mm(y.to(torch::kDouble)));
  }
}

TEST(FewRowsOfOperators, AreMultipliedByPyTorchsThreads) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "");
  const Tensor row = torch::randn({1, 512}), matrix = torch::randn({2048, 512}).t();
  const Tensor bias = torch::randn({2048});
  torch::jit::Stack stack = {bias, row, matrix, 1, 1};
  EXPECT_FALSE(call_faster(op, faster_kernel(op), stack));  // its bits are PyTorch's in training
  const torch::NoGradGuard no_gradients;
  ASSERT_TRUE(call_faster(op, faster_kernel(op), stack));
  EXPECT_TRUE(stack[0].toTensor().allclose(torch::addmm(bias, row, matrix), 1e-4, 1e-4));
  for (const Tensor& wrong : {bias.narrow(0, 0, 5), bias.to(torch::kHalf)}) {
    stack = {wrong, row, matrix, 1, 1};
    EXPECT_THROW(call_kernel(op, faster_kernel(op), stack), c10::Error);
  }
}

TEST(OtherProducts, AreNotOfFewRows) {
  const Tensor row = torch::randn({1, 512}), matrix = torch::randn({512, 512});
  EXPECT_TRUE(are_of_few_rows(row, matrix));
  EXPECT_FALSE(are_of_few_rows(row.to(torch::kDouble), matrix.to(torch::kDouble)));
  EXPECT_FALSE(are_of_few_rows(row, matrix.to(torch::kHalf)));
  EXPECT_FALSE(are_of_few_rows(row, matrix.narrow(1, 0, 100)));                  // small
  EXPECT_FALSE(are_of_few_rows(matrix, matrix));                                 // many rows
  EXPECT_FALSE(are_of_few_rows(row.t(), torch::randn({1, 4096})));               // nothing to sum
  EXPECT_FALSE(are_of_few_rows(row.narrow(0, 0, 0), matrix));                    // no rows
  EXPECT_FALSE(are_of_few_rows(row, torch::randn({512, 512, 2}).select(2, 0)));  // no order
}

}  // namespace
}  // namespace torch_xla
