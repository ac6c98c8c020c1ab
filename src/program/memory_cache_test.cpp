#include "program/memory_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace torch_xla {
namespace {

using Cache = MemoryCache<int, std::string>;

Cache make_cache(size_t limit) {
  return Cache([limit] { return limit; });
}

auto value(const std::string& text) {
  return [text] { return std::make_shared<std::string>(text); };
}

TEST(MemoryCacheTest, BuildsOnce) {
  Cache cache = make_cache(4);
  EXPECT_EQ(*cache.find_or_build(1, value("one")), "one");
  EXPECT_EQ(*cache.find_or_build(1, value("other")), "one");
  EXPECT_EQ(*cache.find(1), "one");
  EXPECT_EQ(cache.find(2), nullptr);
  cache.clear();
  EXPECT_EQ(cache.find(1), nullptr);
}

TEST(MemoryCacheTest, DropsTheEntryUsedLongestAgo) {
  Cache cache = make_cache(2);
  cache.find_or_build(1, value("one"));
  cache.find_or_build(2, value("two"));
  cache.find_or_build(1, value("used"));
  cache.find_or_build(3, value("three"));
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_NE(cache.find(1), nullptr);
  EXPECT_EQ(cache.find(2), nullptr);
}

TEST(MemoryCacheTest, KeepsAtLeastOneEntry) {
  Cache cache = make_cache(0);
  cache.find_or_build(1, value("one"));
  EXPECT_NE(cache.find(1), nullptr);
}

TEST(MemoryCacheTest, LeavesNoEntryWhenBuildingFails) {
  Cache cache = make_cache(2);
  auto fail = []() -> std::shared_ptr<std::string> { throw std::runtime_error("no"); };
  EXPECT_THROW(cache.find_or_build(1, fail), std::runtime_error);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(*cache.find_or_build(1, value("one")), "one");
}

TEST(MemoryCacheTest, AFailedLimitLeavesNoEntry) {
  Cache cache([]() -> size_t { throw std::runtime_error("no number"); });
  EXPECT_THROW(cache.find_or_build(1, value("one")), std::runtime_error);
  EXPECT_EQ(cache.size(), 0u);
}

TEST(MemoryCacheTest, ThreadsShareOneBuild) {
  Cache cache = make_cache(8);
  std::atomic<int> builds{0}, right{0};
  std::atomic<bool> asked{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto built = cache.find_or_build(7, [&] {
        asked = true;
        ++builds;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return std::make_shared<std::string>("seven");
      });
      right += *built == "seven";
    });
  }
  while (!asked) {
    std::this_thread::yield();
  }
  EXPECT_EQ(cache.find(7), nullptr);  // not built yet
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(right, 4);
}

TEST(MemoryCacheTest, WaitersGetTheErrorOfTheBuild) {
  Cache cache = make_cache(8);
  std::atomic<bool> building{false};
  std::atomic<int> failures{0};
  auto ask = [&] {
    try {
      cache.find_or_build(7, [&]() -> std::shared_ptr<std::string> {
        building = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        throw std::runtime_error("no");
      });
    } catch (const std::runtime_error&) {
      ++failures;
    }
  };
  std::thread first(ask);
  while (!building) {
    std::this_thread::yield();
  }
  std::thread second(ask);
  first.join();
  second.join();
  EXPECT_EQ(failures, 2);
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace torch_xla
