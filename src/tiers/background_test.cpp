// What the queue compiles, and what it drops.
#include "tiers/background.h"

#include "graph/collect.h"
#include "pjrt/client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace torch_xla::tiers {
namespace {

Graph identity_of(int64_t size) {
  Graph graph = collect_graph({Value{make_parameter_node({DType::Float, {size}}), 0}});
  finish_graph(graph);
  return graph;
}

JobPtr job_for(const std::shared_ptr<int>& owner, int64_t size) {
  return std::make_shared<Job>(owner, without_values(identity_of(size)), "identity",
                               std::vector<bool>());
}

bool done_within(const Job& job, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!job.done() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return job.done();
}

TEST(BackgroundTest, CompilesWhatIsSubmitted) {
  auto owner = std::make_shared<int>();
  JobPtr job = job_for(owner, 3);
  submit(job);
  ASSERT_TRUE(done_within(*job, std::chrono::seconds(60)));
  EXPECT_NE(job->wait()->program, nullptr);
  EXPECT_GT(job->seconds(), 0);
}

TEST(BackgroundTest, DropsWhatNobodyHoldsAnyMore) {
  auto owner = std::make_shared<int>();
  JobPtr abandoned = job_for(owner, 4);
  owner.reset();
  submit(abandoned);
  auto other = std::make_shared<int>();
  JobPtr next = job_for(other, 5);
  submit(next);
  ASSERT_TRUE(done_within(*next, std::chrono::seconds(60)));
  EXPECT_FALSE(done_within(*abandoned, std::chrono::milliseconds(300)));
}

TEST(BackgroundTest, AWaitBeginsWhatNobodyHasBegun) {
  auto owner = std::make_shared<int>();
  JobPtr job = job_for(owner, 6);  // never submitted
  EXPECT_NE(job->wait()->program, nullptr);
  EXPECT_TRUE(job->done());
}

// A compiler at work when the process ends finds everything that it uses.
TEST(BackgroundTest, TheFirstCompilationMayOutliveTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int milliseconds : {0, 3, 20}) {
    EXPECT_EXIT(
        {
          auto owner = std::make_shared<int>();
          submit(job_for(owner, 7));
          std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
          std::exit(3);
        },
        testing::ExitedWithCode(3), "");
  }
}

}  // namespace
}  // namespace torch_xla::tiers
