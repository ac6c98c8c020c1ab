// Who reads often runs at once (reading_habit.h).
#include "tiers/reading_habit.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

namespace torch_xla::tiers {
namespace {

constexpr int64_t kSmall = 64, kLarge = 1 << 20;

class ReadingHabitTest : public testing::Test {
 protected:
  void SetUp() override { setenv("TORCH_XLA_TIERS", "counted", 1); }
  void TearDown() override { unsetenv("TORCH_XLA_TIERS"); }

  // Whether the last of so many operations ran at once; then a read, for which they run as a graph,
  // if they were recorded. Large ones are worth a program.
  bool step(int operations, int64_t elements = kSmall, const void* first = nullptr) {
    bool at_once = habit_.begins_operation(first, elements);
    for (int i = 1; i < operations; ++i) {
      at_once = habit_.begins_operation(&habit_, elements);
    }
    if (!at_once) {
      habit_.ran(/*is_better_called=*/elements <= kSmall);
    }
    habit_.ends_stretch();
    return at_once;
  }
  void acquire() {
    for (int i = 0; i < 32; ++i) {
      EXPECT_FALSE(step(3)) << i;
    }
    EXPECT_TRUE(step(3));
  }

  ReadingHabit habit_;
};

TEST_F(ReadingHabitTest, IsAcquiredByGraphsThatHadBetterBeenCalled) {
  acquire();
  EXPECT_TRUE(step(6));
}

TEST_F(ReadingHabitTest, IsBrokenByMoreOperationsAndByLargerOnesAndHarderToAcquireAgain) {
  acquire();
  EXPECT_FALSE(step(7));
  for (int i = 0; i < 128; ++i) {
    EXPECT_FALSE(step(3)) << i;
  }
  EXPECT_TRUE(step(3));
  habit_.begins_operation(nullptr, kSmall);
  EXPECT_FALSE(habit_.begins_operation(&habit_, kLarge));
  habit_.ends_stretch();
  EXPECT_FALSE(step(3));
}

TEST_F(ReadingHabitTest, KnowsWhatIsRecordedBesidePrograms) {
  EXPECT_FALSE(habit_.is_beside_programs());
  habit_.ran_program();
  step(3);
  EXPECT_TRUE(habit_.is_beside_programs());  // until the next one has ended, too
  step(3);
  EXPECT_FALSE(habit_.is_beside_programs());
}

TEST_F(ReadingHabitTest, IsKnownByTheFirstOperation) {
  const int acting = 0, training = 0;
  for (int i = 0; i < 200; ++i) {
    for (int act = 0; act < 4; ++act) {
      EXPECT_EQ(step(5, kSmall, &acting), i >= 8) << i;
    }
    EXPECT_EQ(step(300, kSmall, &training), i >= 32) << i;
    EXPECT_FALSE(step(300, kLarge, &training)) << i;
  }
}

TEST_F(ReadingHabitTest, ManyKindsDoNotReplaceEachOther) {
  const std::array<char, 100> kinds{};
  for (int i = 0; i < 32; ++i) {
    for (const char& kind : kinds) {
      EXPECT_FALSE(step(3, kSmall, &kind));
    }
  }
  for (const char& kind : kinds) {
    EXPECT_TRUE(step(3, kSmall, &kind));
  }
}

TEST_F(ReadingHabitTest, OneGraphThatIsWorthAProgramIsEnough) {
  for (int i = 0; i < 300; ++i) {
    habit_.begins_operation(nullptr, kSmall);
    habit_.ran(false);
    EXPECT_FALSE(step(3));
  }
}

TEST_F(ReadingHabitTest, EndsWhereTheUserChangesWhoRunsGraphs) {
  acquire();
  setenv("TORCH_XLA_TIERS", "never", 1);
  EXPECT_FALSE(step(3));
}

TEST_F(ReadingHabitTest, WhatIsReadAgainIsNoSignOfIt) {
  for (int i = 0; i < 300; ++i) {
    EXPECT_FALSE(step(1, kLarge));
    habit_.ends_stretch();
  }
  EXPECT_FALSE(step(3));
}

TEST_F(ReadingHabitTest, AReadForWhichNothingHadToRunEndsNothing) {
  const int first = 0, second = 0;
  for (int i = 0; i < 32; ++i) {
    EXPECT_FALSE(habit_.begins_operation(&first, kSmall));
    habit_.ends_stretch();
    EXPECT_FALSE(habit_.begins_operation(&second, kSmall));
    habit_.ran(true);
    habit_.ends_stretch();
  }
  EXPECT_TRUE(habit_.begins_operation(&first, kSmall));
}

TEST_F(ReadingHabitTest, IsNotAcquiredWhereTheUserSaidWhoRunsGraphs) {
  setenv("TORCH_XLA_TIERS", "off", 1);
  for (int i = 0; i < 300; ++i) {
    EXPECT_FALSE(step(3));
  }
}

}  // namespace
}  // namespace torch_xla::tiers
