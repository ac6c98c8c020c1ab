#include "pjrt/host_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace torch_xla::pjrt {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr size_t kAddresses = 1024 * kMegabyte;
constexpr size_t kLittle = kMegabyte / 8;  // what blocks may be larger than asked for

char* take(HostArena& arena, size_t megabytes) {
  auto* block = static_cast<char*>(arena.take(megabytes * kMegabyte));
  EXPECT_NE(block, nullptr);
  std::memset(block, 1, megabytes * kMegabyte);
  return block;
}

size_t page_of(const void* block) { return reinterpret_cast<uintptr_t>(block) / 4096; }

TEST(HostArenaTest, GivesAgainWhatWasFreed) {
  HostArena arena(kAddresses);
  char* block = take(arena, 10);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % HostArena::kAlignment, 0u);
  EXPECT_TRUE(arena.owns(block));
  EXPECT_GE(arena.size_of(block), 10 * kMegabyte);
  arena.give_back(block);
  EXPECT_EQ(block[5 * kMegabyte], 1);  // still mapped
  EXPECT_EQ(page_of(take(arena, 3)), page_of(block));
  EXPECT_EQ(arena.usage().in_use / kMegabyte, 3u);
}

TEST(HostArenaTest, JoinsWhatWasFreedSideBySide) {
  HostArena arena(kAddresses);
  std::vector<char*> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(take(arena, 4));
  }
  for (char* block : blocks) {
    arena.give_back(block);
  }
  const size_t before = arena.usage().kept;
  EXPECT_EQ(page_of(take(arena, 32)), page_of(blocks[0]));
  EXPECT_LE(arena.usage().kept + arena.usage().in_use, before + kLittle);
}

TEST(HostArenaTest, BlocksDoNotBeginAtTheSamePlaceOfAPage) {
  HostArena arena(kAddresses);
  EXPECT_NE(reinterpret_cast<uintptr_t>(take(arena, 1)) % 4096,
            reinterpret_cast<uintptr_t>(take(arena, 1)) % 4096);
}

TEST(HostArenaTest, KnowsItsOwnBlocks) {
  HostArena arena(kAddresses);
  int other = 0;
  EXPECT_FALSE(arena.owns(nullptr));
  EXPECT_FALSE(arena.owns(&other));
}

TEST(HostArenaTest, KeepsNoMoreThanWasInUseAtOnce) {
  HostArena arena(kAddresses);
  arena.give_back(take(arena, 64));
  EXPECT_LE(arena.usage().kept, 64 * kMegabyte + kLittle);
  std::vector<char*> blocks;
  for (size_t megabytes : {7, 11, 3, 17, 29, 5}) {
    blocks.push_back(take(arena, megabytes));
    const auto usage = arena.usage();
    EXPECT_LE(usage.in_use + usage.kept, 80 * kMegabyte);
  }
  for (char* block : blocks) {
    arena.give_back(block);
  }
  EXPECT_LE(arena.usage().kept, 80 * kMegabyte);
}

TEST(HostArenaTest, GivesBackWhatIsNoLongerNeeded) {
  HostArena arena(kAddresses);
  arena.give_back(take(arena, 64));
  for (int i = 0; i < 3 * 4096; ++i) {
    arena.give_back(arena.take(2 * kMegabyte));
  }
  EXPECT_EQ(arena.usage().in_use, 0u);
  EXPECT_LE(arena.usage().kept, 8 * kMegabyte);
}

TEST(HostArenaTest, KeepsWhatEachStepWouldGiveBackAndTakeAnew) {
  HostArena arena(kAddresses);
  take(arena, 15);
  const auto kept_in_a_step = [&] {
    char* first = take(arena, 13);
    char* small = take(arena, 1);
    arena.give_back(first);
    char* second = take(arena, 14);  // does not fit into the first one's place
    const size_t kept = arena.usage().kept;
    arena.give_back(second);
    arena.give_back(small);
    return kept;
  };
  EXPECT_LE(kept_in_a_step(), 4 * kMegabyte);
  for (int i = 0; i < 20; ++i) {
    kept_in_a_step();
  }
  EXPECT_GE(kept_in_a_step(), 12 * kMegabyte);
  arena.release();
  EXPECT_LE(kept_in_a_step(), 4 * kMegabyte);
}

TEST(HostArenaTest, WhatItReleasedComesBackCleared) {
  HostArena arena(kAddresses);
  char* block = take(arena, 8);
  arena.give_back(block);
  arena.release();
  EXPECT_EQ(arena.usage().kept, 0u);
  auto* again = static_cast<char*>(arena.take(8 * kMegabyte));
  EXPECT_EQ(page_of(again), page_of(block));
  EXPECT_EQ(again[4 * kMegabyte], 0);
}

TEST(HostArenaTest, SaysWhereThereIsNoMemory) {
  HostArena arena(kAddresses);
  EXPECT_EQ(arena.take(size_t{1} << 50), nullptr);
  EXPECT_EQ(arena.take(~size_t{0}), nullptr);
  EXPECT_EQ(arena.usage().in_use, 0u);
  EXPECT_EQ(arena.take(kAddresses), nullptr);
  HostArena nothing(0);
  EXPECT_EQ(nothing.take(kMegabyte), nullptr);
  EXPECT_FALSE(nothing.owns(nullptr));
}

TEST(HostArenaTest, WaitsForAnAlikeBlockThatIsFreedInAMoment) {
  HostArena arena(kAddresses);
  char* first = take(arena, 512);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    arena.give_back(first);
  });
  void* second = arena.take(500 * kMegabyte, /*expect_freed=*/true);
  other.join();
  EXPECT_EQ(page_of(second), page_of(first));
  EXPECT_NE(arena.take(500 * kMegabyte, /*expect_freed=*/true), nullptr);  // nobody frees it
}

TEST(HostArenaTest, ManyThreads) {
  HostArena arena(kAddresses);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 300; ++i) {
        const size_t size = (1 + (i * 7 + t) % 9) * kMegabyte;
        auto* block = static_cast<char*>(arena.take(size, i % 2 == 0));
        ASSERT_NE(block, nullptr);
        block[0] = block[size - 1] = static_cast<char>(t);
        std::this_thread::yield();
        ASSERT_EQ(block[0], static_cast<char>(t));
        ASSERT_EQ(block[size - 1], static_cast<char>(t));
        arena.give_back(block);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(arena.usage().in_use, 0u);
  EXPECT_LE(arena.usage().kept, 83 * kMegabyte);  // half as much again as was in use at once
}

}  // namespace
}  // namespace torch_xla::pjrt
