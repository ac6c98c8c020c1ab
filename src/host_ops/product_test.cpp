// oneDNN's products are those of PyTorch's kernels, wherever the factors lie.
#include "host_ops/product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

namespace torch_xla {
namespace {

using torch::Tensor;
using torch::jit::Stack;

constexpr int64_t kRows = 160, kInner = 128, kColumns = 192;  // enough multiplications

bool processor_is_concerned() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_is("intel") == 0;
#else
  return false;
#endif
}

c10::OperatorHandle op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// [batches, rows, columns], or without batches, dense, transposed, or a part of a larger one.
Tensor factor(std::optional<int64_t> batches, int64_t rows, int64_t columns, int layout) {
  std::vector<int64_t> sizes = {rows, columns};
  if (layout % 2 == 1) {
    std::swap(sizes[0], sizes[1]);
  }
  if (layout > 1) {
    sizes[0] += 3;
    sizes[1] += 5;
  }
  if (batches) {
    sizes.insert(sizes.begin(), *batches);
  }
  Tensor whole = torch::randn(sizes);
  whole = layout % 2 == 1 ? whole.mT() : whole;
  return whole.slice(-2, 0, rows).slice(-1, 0, columns);
}

void expect_product(const char* name, const Stack& arguments, const Tensor& result) {
  Stack whole = arguments;
  op(name).callBoxed(&whole);
  ASSERT_TRUE(multiply_faster(op(name), arguments, result)) << name;
  EXPECT_TRUE(result.allclose(whole[0].toTensor(), 1e-4, 1e-4)) << name;
}

class Products : public testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  void SetUp() override {
    if (!processor_is_concerned()) {
      GTEST_SKIP() << "MKL has the wider vectors of this processor, or there are none";
    }
  }
  std::optional<int64_t> batches_ =
      std::get<2>(GetParam()) ? std::optional<int64_t>(3) : std::nullopt;
  Tensor x_ = factor(batches_, kRows, kInner, std::get<0>(GetParam()));
  Tensor y_ = factor(batches_, kInner, kColumns, std::get<1>(GetParam()));
  // A part of a larger result, which a piece of a call writes.
  Tensor into_ = torch::full_like(x_.matmul(y_), NAN).slice(-2, 16);
};

TEST_P(Products, AreThoseOfTheKernels) {
  x_ = x_.slice(-2, 16);
  expect_product(batches_ ? "aten::bmm" : "aten::mm", {x_, y_}, into_);
}

TEST_P(Products, AreAddedToWhatIsScaled) {
  x_ = x_.slice(-2, 16);
  const char* name = batches_ ? "aten::baddbmm" : "aten::addmm";
  const Tensor bias = torch::randn({kColumns}), nan = torch::full({kColumns}, NAN);
  expect_product(name, {bias, x_, y_, 1, 1}, into_);
  expect_product(name, {torch::randn_like(into_), x_, y_, 0.5, -2.0}, into_);
  expect_product(name, {nan, x_, y_, 0, 3}, into_);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Products,
                         testing::Combine(testing::Range(0, 4), testing::Range(0, 4),
                                          testing::Bool()));

TEST(ProductsOfExpandedWeights, AreOne) {
  for (torch::Dtype dtype : {torch::kFloat, torch::kBFloat16, torch::kDouble}) {
    const Tensor x = torch::randn({8, 6, 16}).to(dtype).transpose(0, 1);
    const Tensor y = torch::randn({16, 32}).to(dtype).expand({6, 16, 32});
    Tensor result = torch::full({6, 8, 32}, NAN, dtype);
    ASSERT_TRUE(multiply_faster(op("aten::bmm"), {x, y}, result)) << dtype;
    EXPECT_TRUE(result.allclose(x.bmm(y), 1e-2, 1e-2)) << dtype;
  }
  const Tensor x = torch::randn({6, 8, 16}), y = torch::randn({6, 16, 32});
  EXPECT_FALSE(multiply_faster(op("aten::bmm"), {x, y}, torch::empty({6, 8, 32})));
}

TEST(ProductsOfOthers, AreLeftAlone) {
  const Tensor x = torch::randn({256, 256}), small = torch::randn({16, 16});
  EXPECT_FALSE(multiply_faster(op("aten::relu"), {x}, x.clone()));
  EXPECT_FALSE(multiply_faster(op("aten::mm"), {small, small}, small.clone()));
  const Tensor numbers = x.to(torch::kComplexFloat);  // and a factor that is no float
  EXPECT_FALSE(multiply_faster(op("aten::addmm"),
                               {numbers, numbers, numbers, 1, c10::complex<double>(1, 2)},
                               numbers.clone()));
  const Tensor wide = x.to(torch::kDouble);
  EXPECT_FALSE(multiply_faster(op("aten::mm"), {wide, wide}, wide.clone()));
  at::globalContext().setUserEnabledMkldnn(false);
  EXPECT_FALSE(multiply_faster(op("aten::mm"), {x, x}, x.clone()));
  at::globalContext().setUserEnabledMkldnn(true);
}

}  // namespace
}  // namespace torch_xla
