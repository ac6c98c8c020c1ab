// Arguments that unboxed calls lend to the recorder, in a process without Python. Needs a plugin:
// TORCH_XLA_PLUGIN_PATH names it.
#include "torch_xla/torch_xla.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace torch_xla {
namespace {

class UnboxedTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { eager_mode(GetParam()); }
  void TearDown() override {
    eager_mode(false);
    sync(true);
  }
  torch::Tensor tensor(torch::IntArrayRef sizes) { return torch::ones(sizes).to(device_); }

  const torch::Device device_{torch::kXLA, 0};
};

INSTANTIATE_TEST_SUITE_P(Modes, UnboxedTest, testing::Values(true, false));

std::vector<size_t> references(const std::vector<torch::Tensor>& tensors) {
  std::vector<size_t> counts;
  for (const torch::Tensor& tensor : tensors) {
    counts.push_back(tensor.use_count());
  }
  return counts;
}

TEST_P(UnboxedTest, CallsLeaveTheReferencesThatTheyFound) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> given = {tensor({2, 2}), tensor({2, 2}), tensor({2, 2})};
  const torch::Tensor on_the_host = torch::full({}, 2.0f);
  const torch::Tensor indices = torch::tensor({1, 0});
  given.push_back(on_the_host);
  given.push_back(indices);
  const std::vector<size_t> before = references(given);
  {
    torch::Tensor sum = torch::add(given[0], on_the_host);
    sum.add_(given[1]).mul_(sum);
    torch::Tensor both = torch::cat({given[0], given[1], given[0]});
    torch::Tensor chosen = torch::index_select(both, 0, indices);  // indices are sent to the device
    torch::_foreach_add_({given[0], given[1]}, {given[2], given[2]});
    std::tuple<torch::Tensor, torch::Tensor> largest = torch::max(given[2], 1);
    EXPECT_EQ(chosen.sum().item<float>(), 4.0f);
    EXPECT_EQ(sum.sum().item<float>(), 64.0f);
    EXPECT_EQ(std::get<0>(largest).sum().item<float>(), 2.0f);
  }
  sync(true);
  EXPECT_EQ(references(given), before);
}

TEST_P(UnboxedTest, RefusedCallsLeaveTheReferencesThatTheyFound) {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> given = {tensor({2, 2}), tensor({3, 3})};
  const std::vector<size_t> before = references(given);
  EXPECT_THROW(torch::add(given[0], given[1]), c10::Error);
  EXPECT_THROW(torch::cat({given[0], given[1]}), c10::Error);
  EXPECT_THROW(given[0].mul_(given[1]), c10::Error);
  EXPECT_EQ(references(given), before);
}

TEST_P(UnboxedTest, ListsOfTensorsThatMayBeMissing) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor rows = torch::arange(6).reshape({2, 3}).to(device_);
  const torch::Tensor last = torch::tensor({2, 2, 0}).to(device_);
  const size_t before = last.use_count();
  const torch::Tensor chosen = rows.index({torch::indexing::Slice(), last});
  EXPECT_TRUE(torch::equal(chosen.cpu(), torch::tensor({{2, 2, 0}, {5, 5, 3}})));
  EXPECT_EQ(last.use_count(), before);
}

TEST_P(UnboxedTest, ResultsThatShareMemory) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = tensor({4, 4});
  const torch::Tensor same = torch::add(x, 0).add_(1);
  EXPECT_EQ(x.sum().item<float>(), 16.0f);
  EXPECT_EQ(same.sum().item<float>(), 32.0f);
  torch::Tensor written = torch::ones({2, 2}).to(device_);
  torch::Tensor& returned = written.mul_(written);
  EXPECT_EQ(&returned, &written);
  EXPECT_EQ(written.sum().item<float>(), 4.0f);
}

TEST_P(UnboxedTest, ConjugatesAreNotLent) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor number = torch::complex(torch::ones({2}), torch::ones({2})).to(device_);
  const torch::Tensor conjugate = torch::conj(number);
  const size_t before = conjugate.use_count();
  EXPECT_TRUE(torch::equal(torch::mul(conjugate, number).cpu(),
                           torch::complex(torch::full({2}, 2.0f), torch::zeros({2}))));
  EXPECT_EQ(conjugate.use_count(), before);
}

// A layer whose statistics are written though its old schema says that they are read, weights that
// may be missing, sizes that may be symbols, indices that may be missing.
TEST_P(UnboxedTest, LayersAndWritesByIndex) {
  const torch::NoGradGuard no_grad;
  auto work = [](const torch::Device& device) {
    const torch::Tensor images = torch::linspace(-1, 1, 96).view({2, 3, 4, 4}).to(device);
    const torch::Tensor kernels = torch::linspace(-1, 1, 108).view({4, 3, 3, 3}).to(device);
    torch::Tensor mean = torch::zeros({4}).to(device), variance = torch::ones({4}).to(device);
    const torch::Tensor scale = torch::full({4}, 2.0f).to(device);
    torch::Tensor x = torch::conv2d(images, kernels, {}, 1, 1);
    x = torch::batch_norm(x, scale, {}, mean, variance, true, 0.1, 1e-5, true);
    x = torch::conv_transpose2d(x, kernels, torch::zeros({3}).to(device), 2);
    x = torch::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, true);
    torch::Tensor steady = torch::batch_norm(torch::conv2d(images, kernels), scale, scale, mean,
                                             variance, false, 0.1, 1e-5, true);
    steady.index_put_({torch::indexing::Slice(), torch::tensor({1, 3}).to(device)}, 5.0f);
    return std::vector<torch::Tensor>{x.cpu(), mean.cpu(), variance.cpu(), steady.cpu()};
  };
  const std::vector<torch::Tensor> found = work(device_), expected = work(torch::kCPU);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(GetParam() ? torch::equal(found[i], expected[i])
                           : torch::allclose(found[i], expected[i], 1e-4, 1e-5))
        << i;
  }
}

// In eager mode an operation takes over what the one before it made of the memory on the host.
TEST_P(UnboxedTest, OneTensorIsReadByThreadsAndInSeveralWindows) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor shared = torch::arange(12.0f).view({3, 4}).to(device_);
  const torch::Tensor expected = torch::arange(12.0f).view({3, 4});
  auto work = [&] {
    const torch::NoGradGuard no_grad_here;
    for (int i = 0; i < 50; ++i) {
      torch::Tensor found = torch::add(shared, shared);
      torch::Tensor turned = torch::mul(shared.t(), shared.t());
      torch::Tensor part = torch::add(shared.select(0, 1), shared.select(0, 2));
      EXPECT_TRUE(torch::equal(found.cpu(), expected + expected));
      EXPECT_TRUE(torch::equal(turned.cpu(), expected.t() * expected.t()));
      EXPECT_TRUE(torch::equal(part.cpu(), expected[1] + expected[2]));
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST_P(UnboxedTest, WhatIsWrittenIsSeenByTheNextOperation) {
  const torch::NoGradGuard no_grad;
  torch::Tensor written = tensor({4});
  const torch::Tensor copy = written.clone();
  const torch::Tensor half = written.narrow(0, 0, 2);
  for (int i = 0; i < 3; ++i) {
    written.add_(1);
    half.mul_(2);
  }
  EXPECT_TRUE(torch::equal(written.cpu(), torch::tensor({22.0f, 22.0f, 4.0f, 4.0f})));
  EXPECT_TRUE(torch::equal(copy.cpu(), torch::ones({4})));
  torch::Tensor out = tensor({1});
  torch::add_out(out, written, copy);  // grows
  EXPECT_EQ(out.sizes(), written.sizes());
  EXPECT_TRUE(torch::equal(torch::add(out, 1).cpu(), written.cpu() + 2));
}

}  // namespace
}  // namespace torch_xla
