#include "pjrt/ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace torch_xla::pjrt {
namespace {

using Pieces = std::vector<std::pair<size_t, size_t>>;

TEST(RangesTest, JoinsNeighbours) {
  Ranges ranges;
  ranges.add(0, 10);
  ranges.add(20, 30);
  ranges.add(10, 20);
  EXPECT_EQ(ranges.by_begin().size(), 1u);
  EXPECT_EQ(ranges.count(), 30u);
}

TEST(RangesTest, FindsTheSmallestThatIsLargeEnough) {
  Ranges ranges;
  ranges.add(0, 100);
  ranges.add(200, 220);
  ranges.add(300, 320);
  EXPECT_EQ(ranges.best_fit(20), 200u);
  EXPECT_EQ(ranges.best_fit(21), 0u);
  EXPECT_EQ(ranges.best_fit(101), std::nullopt);
}

TEST(RangesTest, RemovesWhatIsThereAndKnowsTheGaps) {
  Ranges ranges;
  ranges.add(0, 100);
  ranges.remove(10, 20);
  ranges.remove(15, 30);
  ranges.remove(90, 200);
  EXPECT_EQ(ranges.count(), 70u);
  EXPECT_EQ(ranges.gaps_in(0, 120), (Pieces{{10, 30}, {90, 120}}));
  EXPECT_EQ(ranges.gaps_in(12, 15), (Pieces{{12, 15}}));
  EXPECT_EQ(ranges.gaps_in(40, 50), Pieces{});
}

// Against a set of numbers.
TEST(RangesTest, IsTheSetOfItsNumbers) {
  std::mt19937 random(0);
  Ranges ranges;
  std::set<size_t> numbers;
  for (int round = 0; round < 2000; ++round) {
    const size_t begin = random() % 60;
    const size_t end = begin + 1 + random() % 8;
    if (random() % 2 == 0) {
      ranges.remove(begin, end);
      numbers.erase(numbers.lower_bound(begin), numbers.lower_bound(end));
    } else {
      for (const auto& [from, to] : ranges.gaps_in(begin, end)) {
        ranges.add(from, to);
      }
      for (size_t number = begin; number < end; ++number) {
        numbers.insert(number);
      }
    }
    ASSERT_EQ(ranges.count(), numbers.size());
    size_t last_end = 0;
    for (const auto& [from, to] : ranges.by_begin()) {
      ASSERT_TRUE(from > last_end || (from == 0 && last_end == 0));  // else they were one
      ASSERT_TRUE(numbers.contains(from) && numbers.contains(to - 1) && !numbers.contains(to));
      last_end = to;
    }
  }
}

}  // namespace
}  // namespace torch_xla::pjrt
