// Writes at indices are PyTorch's scatters, but for those out of range.
#include "host_ops/write_at.h"

#include "host_ops/test_workers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace torch_xla {
namespace {

using torch::Tensor;

struct WrittenSizes {
  int64_t outer, size, count, inner;
};

struct How {
  torch::Dtype dtype;
  Combine combine;
};

std::vector<How> all_ways() {
  std::vector<How> ways{{torch::kByte, Combine::Replace}, {torch::kHalf, Combine::Replace}};
  for (auto dtype : {torch::kFloat, torch::kDouble, torch::kInt, torch::kLong}) {
    for (auto combine :
         {Combine::Replace, Combine::Add, Combine::Multiply, Combine::Maximum, Combine::Minimum}) {
      ways.push_back({dtype, combine});
    }
  }
  return ways;
}

Tensor numbers(std::vector<int64_t> sizes, How how) {
  return torch::randint(how.combine == Combine::Multiply || how.dtype == torch::kByte ? 0 : -5, 6,
                        sizes)
      .to(how.dtype);
}

void write(const Tensor& x, const Tensor& index, const Tensor& updates, How how) {
  OneByOne workers;
  write_at(workers,
           {x.size(0), x.size(1), x.size(2), updates.size(1), index.const_data_ptr<int64_t>(),
            index.dim() > 1},
           how.combine, x.scalar_type(), updates.const_data_ptr(), x.mutable_data_ptr());
}

Tensor scattered(const Tensor& x, const Tensor& index, const Tensor& updates, How how) {
  constexpr const char* kReduce[] = {"", "sum", "prod", "amax", "amin"};
  return how.combine == Combine::Replace
             ? x.scatter(1, index, updates)
             : x.scatter_reduce(1, index, updates, kReduce[static_cast<int>(how.combine)]);
}

class Writes : public testing::TestWithParam<WrittenSizes> {};

TEST_P(Writes, AtTheIndexOfEachSlice) {
  const auto [outer, size, count, inner] = GetParam();
  for (const How how : all_ways()) {
    const Tensor x = numbers({outer, size, inner}, how);
    const Tensor updates = numbers({outer, count, inner}, how);
    const Tensor index = how.combine == Combine::Replace ? torch::randperm(size).slice(0, 0, count)
                                                         : torch::randint(size, {count});
    const Tensor wanted = scattered(x, index.view({1, -1, 1}).expand_as(updates), updates, how);
    write(x, index, updates, how);
    EXPECT_TRUE(torch::equal(x, wanted)) << how.dtype << static_cast<int>(how.combine);
  }
}

TEST_P(Writes, AtTheIndexOfEachNumberAndNowhereOutside) {
  const auto [outer, size, count, inner] = GetParam();
  for (const How how : all_ways()) {
    const Tensor x = numbers({outer, size, inner}, how);
    const Tensor updates = numbers({outer, count, inner}, how);
    const Tensor places = torch::rand({outer, size, inner}).argsort(int64_t{1});
    const Tensor index = how.combine == Combine::Replace ? places.slice(1, 0, count).contiguous()
                                                         : torch::randint(size, updates.sizes());
    const Tensor outside = torch::rand(index.sizes()) < 0.2;
    // Written to a place more that is not looked at.
    const Tensor more = torch::cat({x, x.slice(1, 0, 1)}, 1);
    const Tensor wanted = scattered(more, index.masked_fill(outside, size), updates, how);
    const Tensor far = torch::where(torch::rand(index.sizes()) < 0.5, -1, size);
    write(x, torch::where(outside, far, index), updates, how);
    EXPECT_TRUE(torch::equal(x, wanted.slice(1, 0, size)))
        << how.dtype << static_cast<int>(how.combine);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Writes,
                         testing::Values(WrittenSizes{1, 40, 9, 700}, WrittenSizes{1, 300, 200, 1},
                                         WrittenSizes{7, 300, 290, 1}, WrittenSizes{5, 60, 33, 37},
                                         WrittenSizes{64, 16, 16, 24}));

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
