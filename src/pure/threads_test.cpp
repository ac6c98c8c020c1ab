// Several threads work on one device at once: their values are right and their locks suffice. This
// is what the thread sanitizer's build is for.
#include "execution/sync.h"
#include "ir/signature.h"
#include "record/backward_pass.h"
#include "torch_xla/torch_xla.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace torch_xla {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 8;

void in_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// As the Python package runs it: on this thread until a second one has a pass, too.
void run_backward(const torch::Tensor& loss) {
  begin_backward();
  loss.backward();
  end_backward();
}

// A few steps of a small regression.
torch::Tensor trained(const torch::Device& device, int seed) {
  torch::Tensor weight =
      torch::linspace(-1, 1, 12 + seed).reshape({1, -1}).to(device).requires_grad_();
  torch::Tensor input = torch::linspace(0, 2, 12 + seed).reshape({-1, 1}).to(device);
  for (int step = 0; step < kSteps; ++step) {
    torch::Tensor loss = (weight.mm(input) - 1).square().sum();
    run_backward(loss);
    {
      torch::NoGradGuard guard;
      weight.sub_(0.01 * weight.grad());
      weight.slice(1, 0, 2).mul_(0.5);
    }
    weight.mutable_grad().reset();
    if (device.is_xla() && step % 3 == seed % 3) {
      sync();
    }
  }
  return weight.detach().cpu();
}

class ThreadsTest : public testing::Test {
 protected:
  void TearDown() override {
    eager_mode(false);
    sync(true);
  }
  const torch::Device xla_{torch::kXLA, 0};
};

TEST_F(ThreadsTest, TrainAtTheSameTime) {
  std::vector<torch::Tensor> results(kThreads);
  in_threads([&](int i) { results[i] = trained(xla_, i); });
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(torch::allclose(results[i], trained(torch::kCPU, i), 1e-4, 1e-5)) << i;
  }
}

TEST_F(ThreadsTest, OneHasItsPassesToItselfUntilAnotherComes) {
  const torch::Tensor alone = trained(xla_, 1);
  torch::Tensor beside;
  std::thread second([&] { beside = trained(xla_, 1); });
  const torch::Tensor after = trained(xla_, 1);
  second.join();
  // Not to the last bit: one thread's sync may cut the other's step into two programs.
  EXPECT_TRUE(torch::allclose(alone, beside, 1e-5, 1e-6)) << alone << beside;
  EXPECT_TRUE(torch::allclose(alone, after, 1e-5, 1e-6)) << alone << after;
}

TEST_F(ThreadsTest, HaveOneSignatureWhileAnyHasIt) {
  std::atomic<int> wrong = 0;
  in_threads([&](int) {
    for (int64_t i = 0; i < 2000; ++i) {
      Signature signature;
      signature.op = "test::op";
      signature.arguments = {i % 3};
      const SignaturePtr mine = intern(signature);
      wrong += mine != intern(signature);
      wrong += mine != find_signature(mine->hash);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(ThreadsTest, ReadWhileTheModeFlips) {
  std::atomic<bool> done = false;
  std::thread flipper([&] {
    for (bool eager = true; !done; eager = !eager) {
      eager_mode(eager);
      std::this_thread::yield();
    }
  });
  std::vector<torch::Tensor> results(kThreads);
  in_threads([&](int i) { results[i] = trained(xla_, i); });
  done = true;
  flipper.join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(torch::allclose(results[i], trained(torch::kCPU, i), 1e-4, 1e-5)) << i;
  }
}

TEST_F(ThreadsTest, ReadOneTensor) {
  torch::Tensor shared = torch::arange(100, torch::device(xla_)).mul(2);
  std::atomic<int> wrong = 0;
  in_threads([&](int i) {
    for (int step = 0; step < kSteps; ++step) {
      wrong += shared[i].item<int64_t>() != 2 * i;
      wrong += (shared + step).sum().item<int64_t>() != 9900 + 100 * step;
    }
  });
  EXPECT_EQ(wrong, 0);
}

// Each value is one number in all places. What a reader copies from is no program's to write in.
TEST_F(ThreadsTest, ReadWhatAnotherOverwrites) {
  for (const char* tiers : {"never", "off"}) {
    setenv("TORCH_XLA_TIERS", tiers, 1);
    torch::Tensor shared = torch::zeros({1 << 18}, torch::device(xla_));
    std::atomic<bool> done = false;
    std::atomic<int> torn = 0;
    std::thread reader([&] {
      while (!done) {
        const torch::Tensor seen = shared.cpu();
        torn += !seen.eq(seen[0]).all().item<bool>();
      }
    });
    for (int step = 0; step < 400; ++step) {
      shared.add_(1);
      sync();
    }
    done = true;
    reader.join();
    EXPECT_EQ(torn, 0) << tiers;
    EXPECT_EQ(shared[7].item<float>(), 400);
  }
}

// Each takes what another made, uses it beside what all use, and frees it; whether operations are
// recorded or run changes meanwhile.
TEST_F(ThreadsTest, HandOverWhatTheyMadeWhileTheModeFlips) {
  std::atomic<bool> done = false;
  std::thread flipper([&] {
    for (bool eager = true; !done; eager = !eager) {
      eager_mode(eager);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  const torch::Tensor shared = torch::ones({16}, torch::device(xla_));
  std::mutex handing_over;
  torch::Tensor handed = torch::zeros({16}, torch::device(xla_));
  std::atomic<int> wrong = 0;
  in_threads([&](int i) {
    torch::NoGradGuard guard;
    for (int step = 0; step < 60; ++step) {
      torch::Tensor mine = (shared + shared) * (i + 1) + shared[i];
      torch::Tensor other;
      {
        std::lock_guard lock(handing_over);
        other = std::exchange(handed, mine);
      }
      mine = other.slice(0, 0, 8) - other.slice(0, 8, 16);
      wrong += mine.abs().sum().item<float>() != 0;
      other.reset();
      wrong += (mine.add_(shared.slice(0, 0, 8))).sum().item<float>() != 8;
    }
  });
  done = true;
  flipper.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ThreadsTest, SyncWhatTheyRecordedAndWhatOthersLeft) {
  torch::Tensor left;
  std::thread([&] { left = torch::ones({5}, torch::device(xla_)) * 2; }).join();
  torch::Tensor mine = torch::ones({6}, torch::device(xla_)) * 3;
  std::thread([] { sync(); }).join();
  auto pending = [](const torch::Tensor& tensor) {
    return value_state(tensor) == ValueState::Pending;
  };
  EXPECT_TRUE(pending(mine));
  EXPECT_FALSE(pending(left));
  sync();
  EXPECT_FALSE(pending(mine));
  EXPECT_EQ(mine.sum().item<float>() + left.sum().item<float>(), 28);
}

TEST_F(ThreadsTest, WriteDifferentPartsOfOneTensor) {
  torch::Tensor shared = torch::zeros({kThreads, 3}, torch::device(xla_));
  in_threads([&](int i) {
    for (int step = 0; step < kSteps; ++step) {
      shared[i].add_(i + 1);
      if (step % 3 == 0) {
        sync();
      }
    }
  });
  torch::Tensor expected = torch::arange(1, kThreads + 1).mul(kSteps).unsqueeze(1).expand({-1, 3});
  EXPECT_TRUE(torch::equal(shared.cpu(), expected.to(torch::kFloat)));
}

// Each call is launched on its own, reads what all read, writes what only its thread writes.
TEST_F(ThreadsTest, LaunchOnePureFunction) {
  eager_mode(true);
  auto step = assume_pure([](const torch::Tensor& total, const torch::Tensor& shared) {
    total.add_(shared);
    return std::make_tuple(total.sum(), shared * 2);
  });
  torch::Tensor shared = torch::ones({8, 8}, xla_);
  std::atomic<int> wrong = 0;
  in_threads([&](int) {
    torch::NoGradGuard guard;
    torch::Tensor total = torch::zeros({8, 8}, xla_);
    for (int i = 1; i <= kSteps; ++i) {
      auto [sum, doubled] = step(total, shared);
      wrong += sum.item<float>() != 64.0f * static_cast<float>(i);
      wrong += doubled[0][0].item<float>() != 2.0f;
    }
    wrong += total[7][7].item<float>() != kSteps;
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(ThreadsTest, EachHearsOfItsOwnError) {
  std::atomic<int> heard = 0;
  in_threads([&](int i) {
    for (int step = 0; step < kSteps; ++step) {
      try {
        torch::ones({2, 3}, xla_).mm(torch::ones({4 + i, 5}, xla_));
      } catch (const c10::Error& error) {
        heard += std::string(error.what()).find(std::to_string(4 + i) + "x5") != std::string::npos;
      }
    }
  });
  EXPECT_EQ(heard, kThreads * kSteps);
}

}  // namespace
}  // namespace torch_xla
