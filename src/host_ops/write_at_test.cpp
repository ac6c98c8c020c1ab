// Writes at indices are PyTorch's scatters, but for those out of range.
#include "host_ops/write_at.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace torch_xla {
namespace {

using torch::Tensor;

// All on the calling thread.
class OneByOne final : public Workers {
 public:
  int64_t count() const override { return 3; }
  void schedule(std::function<void()> task) override { task(); }
};

struct Sizes {
  int64_t outer, size, count, inner;
};

class Writes : public testing::TestWithParam<std::tuple<Sizes, torch::Dtype, Combine>> {
 protected:
  static Tensor numbers(std::vector<int64_t> sizes) {
    return torch::randint(-5, 6, sizes).to(std::get<1>(GetParam()));
  }
  static void write(const Tensor& x, const Tensor& index, const Tensor& updates) {
    OneByOne workers;
    write_at(workers,
             {x.size(0), x.size(1), x.size(2), updates.size(1), index.const_data_ptr<int64_t>(),
              index.dim() > 1},
             std::get<2>(GetParam()), x.scalar_type(), updates.const_data_ptr(),
             x.mutable_data_ptr());
  }
  static Tensor wanted(const Tensor& x, const Tensor& index, const Tensor& updates) {
    constexpr const char* kReduce[] = {"", "sum", "prod", "amax", "amin"};
    const Combine combine = std::get<2>(GetParam());
    return combine == Combine::Replace
               ? x.scatter(1, index, updates)
               : x.scatter_reduce(1, index, updates, kReduce[static_cast<int>(combine)]);
  }
};

TEST_P(Writes, AtTheIndexOfEachSlice) {
  const Sizes s = std::get<0>(GetParam());
  const Tensor x = numbers({s.outer, s.size, s.inner});
  const Tensor updates = numbers({s.outer, s.count, s.inner});
  const Tensor index = std::get<2>(GetParam()) == Combine::Replace
                           ? torch::randperm(s.size).slice(0, 0, s.count)
                           : torch::randint(s.size, {s.count});
  const Tensor of_each = index.view({1, -1, 1}).expand_as(updates);
  const Tensor expected = wanted(x, of_each, updates);
  write(x, index, updates);
  EXPECT_TRUE(torch::equal(x, expected));
}

TEST_P(Writes, AtTheIndexOfEachNumberAndNowhereOutside) {
  const Sizes s = std::get<0>(GetParam());
  const Tensor x = numbers({s.outer, s.size, s.inner});
  const Tensor updates = numbers({s.outer, s.count, s.inner});
  const Tensor places = torch::rand({s.outer, s.size, s.inner}).argsort(int64_t{1});
  Tensor index = std::get<2>(GetParam()) == Combine::Replace
                     ? places.slice(1, 0, s.count).contiguous()
                     : torch::randint(s.size, updates.sizes());
  const Tensor outside = torch::rand(index.sizes()) < 0.2;
  // Written to a place more that is not looked at.
  const Tensor more = torch::cat({x, x.slice(1, 0, 1)}, 1);
  const Tensor expected = wanted(more, index.masked_fill(outside, s.size), updates);
  const Tensor far = torch::where(torch::rand(index.sizes()) < 0.5, -1, s.size);
  write(x, torch::where(outside, far, index), updates);
  EXPECT_TRUE(torch::equal(x, expected.slice(1, 0, s.size)));
}

INSTANTIATE_TEST_SUITE_P(
    All, Writes,
    testing::Combine(testing::Values(Sizes{1, 40, 9, 700}, Sizes{1, 300, 200, 1},
                                     Sizes{7, 300, 290, 1}, Sizes{5, 60, 33, 37},
                                     Sizes{64, 16, 16, 24}),
                     testing::Values(torch::kFloat, torch::kDouble, torch::kInt, torch::kLong),
                     testing::Values(Combine::Replace, Combine::Add, Combine::Multiply,
                                     Combine::Maximum, Combine::Minimum)));
INSTANTIATE_TEST_SUITE_P(OfBits, Writes,
                         testing::Combine(testing::Values(Sizes{7, 300, 290, 1},
                                                          Sizes{5, 60, 33, 37}),
                                          testing::Values(torch::kByte, torch::kHalf),
                                          testing::Values(Combine::Replace)));

TEST(WritesAt, ExtremesAreNaNWhereOneIs) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const Tensor updates = torch::tensor({1.0f, kNaN, 0.0f, -1.0f}).repeat({2, 1, 3});
  const Tensor index = torch::zeros({1}, torch::kLong);
  for (const auto combine : {Combine::Maximum, Combine::Minimum}) {
    const Tensor x = torch::tensor({0.0f, 0.0f, kNaN, 0.0f}).repeat({2, 1, 3});
    OneByOne workers;
    write_at(workers, {2, 1, 12, 1, index.const_data_ptr<int64_t>(), false}, combine, torch::kFloat,
             updates.const_data_ptr(), x.mutable_data_ptr());
    const Tensor wanted = torch::tensor({false, true, true, false}).repeat({2, 1, 3});
    EXPECT_TRUE(torch::equal(x.isnan(), wanted));
  }
}

}  // namespace
}  // namespace torch_xla
