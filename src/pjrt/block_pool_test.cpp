#include "pjrt/block_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace torch_xla::pjrt {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

TEST(BlockPoolTest, GivesAgainWhatWasFreed) {
  BlockPool pool;
  void* block = pool.take(10 * kMegabyte + 1);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % BlockPool::kAlignment, 0u);
  std::memset(block, 1, 10 * kMegabyte + 1);
  EXPECT_GT(pool.size_of(block), 10 * kMegabyte);
  EXPECT_TRUE(pool.give_back(block));
  EXPECT_EQ(pool.size_of(block), 0u);
  EXPECT_EQ(pool.take(10 * kMegabyte), block);  // nearly as large
  EXPECT_TRUE(pool.give_back(block));
  void* small = pool.take(3 * kMegabyte);  // not a third of it
  EXPECT_NE(small, block);
  EXPECT_TRUE(pool.give_back(small));
}

TEST(BlockPoolTest, KnowsItsBlocks) {
  BlockPool pool;
  char other = 0;
  EXPECT_FALSE(pool.give_back(nullptr));
  EXPECT_FALSE(pool.give_back(&other));
  void* aligned = std::aligned_alloc(BlockPool::kAlignment, BlockPool::kAlignment);
  EXPECT_FALSE(pool.give_back(aligned));
  EXPECT_EQ(pool.size_of(aligned), 0u);
  std::free(aligned);
}

TEST(BlockPoolTest, NeedsNoMoreMemoryThanWasInUseAtOnce) {
  BlockPool pool;
  pool.give_back(pool.take(64 * kMegabyte));
  EXPECT_EQ(pool.usage().kept, 64 * kMegabyte);
  for (size_t size = 4; size <= 60; size += 4) {  // none fits the one before
    void* block = pool.take(size * kMegabyte);
    EXPECT_LE(pool.usage().in_use + pool.usage().kept, 64 * kMegabyte);
    pool.give_back(block);
  }
}

TEST(BlockPoolTest, ForgetsWhatIsNoLongerNeeded) {
  BlockPool pool;
  pool.give_back(pool.take(64 * kMegabyte));
  for (int i = 0; i < 10000; ++i) {
    pool.give_back(pool.take(2 * kMegabyte));
  }
  EXPECT_EQ(pool.usage().in_use, 0u);
  EXPECT_EQ(pool.usage().kept, 2 * kMegabyte);
}

TEST(BlockPoolTest, RefusesWhatTheMachineDoesNotHave) {
  BlockPool pool;
  EXPECT_EQ(pool.take(size_t{1} << 50), nullptr);
  EXPECT_EQ(pool.take(~size_t{0} / 2), nullptr);
  EXPECT_EQ(pool.usage().in_use, 0u);
}

TEST(BlockPoolTest, WaitsForWhatIsAboutToBeFreed) {
  BlockPool pool;
  void* first = pool.take(256 * kMegabyte);
  std::thread freeing([&] {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    pool.give_back(first);
  });
  void* second = pool.take(250 * kMegabyte);
  freeing.join();
  EXPECT_EQ(second, first);
  void* third = pool.take(250 * kMegabyte);  // nobody frees the second
  ASSERT_NE(third, nullptr);
  EXPECT_NE(third, second);
  pool.give_back(second);
  pool.give_back(third);
}

TEST(BlockPoolTest, ServesThreads) {
  BlockPool pool;
  auto work = [&](char mark) {
    for (size_t i = 0; i < 200; ++i) {
      const size_t size = (2 + i % 5) * kMegabyte;
      char* block = static_cast<char*>(pool.take(size));
      block[0] = block[size - 1] = mark;
      std::this_thread::yield();
      ASSERT_TRUE(block[0] == mark && block[size - 1] == mark);
      ASSERT_TRUE(pool.give_back(block));
    }
  };
  std::vector<std::thread> threads;
  for (char mark : {'a', 'b', 'c'}) {
    threads.emplace_back(work, mark);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(pool.usage().in_use, 0u);
  EXPECT_LE(pool.usage().kept, 18 * kMegabyte);
}

}  // namespace
}  // namespace torch_xla::pjrt
