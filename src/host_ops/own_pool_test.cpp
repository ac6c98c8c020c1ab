// Which pools kernels of ours compute, whole or in pieces.
#include "host_ops/own_pool.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace torch_xla {
namespace {

using torch::Tensor;
using torch::jit::Stack;

c10::OperatorHandle pool(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

const char* const kMaxPool = "aten::max_pool2d_with_indices";
const char* const kAvgPool = "aten::avg_pool2d";
const char* const kAvgPoolGradient = "aten::avg_pool2d_backward";

Stack largest(const Tensor& x, int64_t kernel = 3, int64_t stride = 2, int64_t padding = 1) {
  const auto list = [](int64_t number) { return std::vector<int64_t>{number, number}; };
  return {x, list(kernel), list(stride), list(padding), list(1), false};
}

Stack averages(Stack tensors, int64_t kernel = 3, int64_t stride = 1, int64_t padding = 1) {
  const std::vector<int64_t> lists[] = {{kernel}, {stride}, {padding}};
  for (const auto& list : lists) {
    tensors.emplace_back(list);
  }
  tensors.insert(tensors.end(), {false, true, c10::IValue()});
  return tensors;
}

bool is_taken(const char* name, Stack stack) {
  const bool divided = !divide_own_pool(pool(name), stack, 2).empty();
  EXPECT_EQ(call_own_pool(pool(name), stack), divided);
  return divided;
}

TEST(OwnPoolTest, WholeCallsArePyTorchs) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{4, 6, 32, 33}, {3, 5, 40, 40}, {1, 9, 64, 32}, {7, 64, 64}}) {
    const Tensor x = torch::randn(sizes);
    Stack stack = largest(x);
    ASSERT_TRUE(call_own_pool(pool(kMaxPool), stack));
    const auto [values, places] = at::max_pool2d_with_indices(x, 3, 2, 1);
    ASSERT_EQ(stack.size(), 2);
    EXPECT_TRUE(torch::equal(stack[0].toTensor(), values));
    EXPECT_TRUE(torch::equal(stack[1].toTensor(), places));

    stack = averages({x});
    ASSERT_TRUE(call_own_pool(pool(kAvgPool), stack));
    const Tensor wanted = at::avg_pool2d(x, 3, 1, 1);
    ASSERT_EQ(stack.size(), 1);
    EXPECT_TRUE(torch::equal(stack[0].toTensor(), wanted));

    stack = averages({wanted, x});
    ASSERT_TRUE(call_own_pool(pool(kAvgPoolGradient), stack));
    ASSERT_EQ(stack.size(), 1);
    EXPECT_TRUE(torch::equal(stack[0].toTensor(), at::avg_pool2d_backward(wanted, x, 3, 1, 1, false,
                                                                          true, std::nullopt)));
  }
}

TEST(OwnPoolTest, PyTorchSaysWhatIsWrong) {
  const Tensor x = torch::randn({4, 6, 32, 33});
  Stack padded = largest(x, 3, 2, 5);
  EXPECT_THROW(call_own_pool(pool(kMaxPool), padded), c10::Error);
  Stack of_other_sizes = averages({x, x}, 2, 2, 0);
  EXPECT_THROW(call_own_pool(pool(kAvgPoolGradient), of_other_sizes), c10::Error);
}

TEST(OwnPoolTest, LeavesOthersToPyTorch) {
  const Tensor x = torch::randn({2, 3, 40, 40});
  EXPECT_TRUE(is_taken(kMaxPool, largest(x)));
  EXPECT_TRUE(is_taken(kMaxPool, largest(x.to(torch::kBFloat16))));
  EXPECT_TRUE(is_taken(kMaxPool, largest(x.to(torch::kHalf))));
  EXPECT_FALSE(is_taken(kMaxPool, largest(x.to(torch::kDouble))));
  EXPECT_FALSE(is_taken(kMaxPool, largest(x.to(torch::kLong))));
  EXPECT_FALSE(is_taken(kMaxPool, largest(x.to(at::MemoryFormat::ChannelsLast))));
  EXPECT_FALSE(is_taken(kMaxPool, largest(x[0][0].unsqueeze(0))));  // few numbers
  EXPECT_FALSE(is_taken(kAvgPool, averages({x.to(torch::kDouble)})));
  EXPECT_TRUE(is_taken(kAvgPoolGradient, averages({x, x})));
  Stack mixed = averages({x.to(torch::kBFloat16), x});
  EXPECT_TRUE(divide_own_pool(pool(kAvgPoolGradient), mixed, 2).empty());
}

TEST(OwnPoolTest, LeavesFewWindowsOfARowToPyTorch) {
  const Tensor x = torch::randn({8, 64, 8, 8});
  EXPECT_TRUE(is_taken(kAvgPool, averages({x})));
  EXPECT_FALSE(is_taken(kAvgPool, averages({x}, 8, 8, 0)));
  EXPECT_FALSE(is_taken(kMaxPool, largest(x)));
  EXPECT_FALSE(is_taken(kMaxPool, largest(x, 2, 1000000, 0)));
}

}  // namespace
}  // namespace torch_xla
