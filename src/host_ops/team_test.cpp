// Parts are done once each, by as many threads as PyTorch's kernels have.
#include "host_ops/team.h"

#include "host_ops/one_thread.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace torch_xla {
namespace {

class TeamOf : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(3); }
  void TearDown() override { at::set_num_threads(before_); }

  // How many threads did parts of so many things.
  size_t threads_for(int64_t count, int64_t grain) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(count));
    std::set<std::thread::id> threads;
    std::mutex mutex;
    run_in_team(count, grain, [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      for (int64_t i = begin; i < end; ++i) {
        ++done[static_cast<size_t>(i)];
      }
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
    for (const std::atomic<int>& times : done) {
      EXPECT_EQ(times, 1);
    }
    return threads.size();
  }

 private:
  const int before_ = at::get_num_threads();
};

TEST_F(TeamOf, EachPartIsDoneOnce) {
  EXPECT_EQ(threads_for(1000, 1), 3);
  EXPECT_EQ(threads_for(3, 1), 3);
  EXPECT_EQ(threads_for(2, 1), 2);
  EXPECT_EQ(threads_for(1000, 600), 2);
  EXPECT_EQ(threads_for(1000, 1000), 1);
  EXPECT_EQ(threads_for(0, 1), 0);
}

TEST_F(TeamOf, OneThreadIsTheCaller) {
  const OneThread alone;
  EXPECT_EQ(threads_for(1000, 1), 1);
}

TEST_F(TeamOf, ErrorsComeWhenAllAreDone) {
  std::atomic<int64_t> done = 0;
  EXPECT_THROW(run_in_team(1000, 1,
                           [&](int64_t begin, int64_t end) {
                             done += end - begin;
                             throw std::runtime_error("no");
                           }),
               std::runtime_error);
  EXPECT_EQ(done, 1000);
}

}  // namespace
}  // namespace torch_xla
