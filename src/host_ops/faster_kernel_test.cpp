// What is computed in 32 bits because the processor has no instructions for 16.
#include "host_ops/faster_kernel.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

namespace torch_xla {
namespace {

using torch::Tensor;
using torch::jit::Stack;

c10::OperatorHandle op(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

bool is_widened(const std::string& name, Stack stack) {
  return call_faster(op(name), faster_kernel(op(name)), stack);
}

Stack call(const std::string& name, Stack stack) {
  call_kernel(op(name), faster_kernel(op(name)), stack);
  return stack;
}

Stack converted(Stack stack, at::ScalarType to) {
  for (c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = value.toTensor().to(to);
    }
  }
  return stack;
}

Stack convolution_arguments(const Tensor& image, const Tensor& kernel, const Tensor& bias) {
  const c10::List<int64_t> ones({1, 1}), zeros({0, 0});
  return {image, kernel, bias, ones, ones, ones, false, zeros, int64_t{1}};
}

class Widened : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!is_better_widened(GetParam())) {
      GTEST_SKIP() << "this processor has kernels for the type";
    }
  }
  Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes).to(GetParam()); }

  void expect_rounded(const std::string& name, const Stack& arguments) {
    EXPECT_TRUE(is_widened(name, arguments)) << name;
    Stack wide = converted(arguments, at::kFloat);
    op(name).callBoxed(&wide);
    const Stack found = call(name, arguments);
    ASSERT_EQ(found.size(), wide.size());
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(found[i].toTensor().scalar_type(), GetParam());
      EXPECT_TRUE(found[i].toTensor().equal(wide[i].toTensor().to(GetParam()))) << name;
    }
  }
};

TEST_P(Widened, ProductsAreRoundedOnce) {
  const Tensor x = random({64, 128}), y = random({96, 128}).t(), bias = random({96});
  expect_rounded("aten::mm", {x, y});
  expect_rounded("aten::addmm", {bias, x, y, c10::Scalar(1), c10::Scalar(2)});
  const Tensor batches = random({3, 64, 128});
  expect_rounded("aten::bmm", {batches, batches.mT()});
  expect_rounded("aten::baddbmm",
                 {random({3, 64, 64}), batches, batches.mT(), c10::Scalar(0), c10::Scalar(1)});
}

// Integers that are exact in any order of addition.
TEST_P(Widened, LargeProductsInParts) {
  auto integers = [&](at::IntArrayRef sizes) {
    return torch::randint(-2, 3, sizes).to(GetParam());
  };
  const Tensor x = integers({65, 64}), columns = integers({300001, 64}).t();
  expect_rounded("aten::mm", {x, columns});
  expect_rounded("aten::mm", {columns.t(), x.t()});
  const c10::Scalar one(1), two(2);
  expect_rounded("aten::addmm", {integers({300001}), x, columns, one, two});
  expect_rounded("aten::addmm", {integers({65, 1}), x, columns, two, one});
  expect_rounded("aten::addmm", {integers({300001, 1}), columns.t(), x.t(), one, one});
  expect_rounded("aten::bmm", {integers({300001, 4, 8}), integers({300001, 8, 4})});
  expect_rounded("aten::baddbmm", {integers({300001, 1, 4}), integers({300001, 4, 8}),
                                   integers({300001, 8, 4}), one, one});
  EXPECT_THROW(call("aten::mm", {x, columns.t()}), c10::Error);
  EXPECT_THROW(call("aten::addmm", {integers({7}), x, columns, one, one}), c10::Error);
}

TEST_P(Widened, ConvolutionsAreRoundedOnce) {
  const Tensor image = random({2, 8, 12, 12}), kernel = random({16, 8, 3, 3});
  Stack arguments = convolution_arguments(image, kernel, random({16}));
  expect_rounded("aten::convolution", arguments);
  arguments[2] = Tensor();
  expect_rounded("aten::convolution", arguments);
}

TEST_P(Widened, SmallProductsStayWithPyTorchsKernel) {
  const Tensor weights = random({512, 100});
  EXPECT_FALSE(is_widened("aten::mm", {random({1, 512}), weights}));
  EXPECT_TRUE(is_widened("aten::mm", {random({8, 512}), weights}));
  EXPECT_FALSE(is_widened("aten::mm", {random({8, 8}), random({8, 8})}));
}

TEST_P(Widened, WhatPyTorchRefusesIsRefused) {
  const Tensor x = random({64, 128}), y = torch::randn({128, 96});
  EXPECT_THROW(call("aten::mm", {x, y}), c10::Error);
  EXPECT_THROW(call("aten::mm", {x, random({64, 128})}), c10::Error);
  EXPECT_THROW(call("aten::convolution",
                    convolution_arguments(random({2, 8, 12, 12}), torch::randn({16, 8, 3, 3}), {})),
               c10::Error);
}

TEST_P(Widened, EmptyFactors) {
  EXPECT_EQ(call("aten::mm", {random({0, 128}), random({128, 96})})[0].toTensor().sizes(),
            at::IntArrayRef({0, 96}));
}

INSTANTIATE_TEST_SUITE_P(Types, Widened, testing::Values(at::kBFloat16, at::kHalf));

TEST(Widened, OthersAreCalledAsTheyAre) {
  EXPECT_EQ(faster_kernel(op("aten::relu")), nullptr);
  const Tensor x = torch::randn({64, 64});
  EXPECT_FALSE(is_widened("aten::mm", {x, x}));
  EXPECT_TRUE(call("aten::mm", {x, x})[0].toTensor().equal(x.mm(x)));
}

}  // namespace
}  // namespace torch_xla
