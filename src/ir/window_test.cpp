// How windows lie in their storages.
#include "ir/window.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

std::vector<int64_t> spans(Dims sizes, Dims strides, int64_t offset, Dims frame) {
  std::vector<int64_t> result;
  if (auto digits = digits_in_frame(runs_of(sizes, strides), offset, frame)) {
    for (const Digit& digit : *digits) {
      result.push_back(digit.span);
    }
  }
  return result;
}

using Spans = std::vector<int64_t>;

TEST(WindowTest, DimensionsThatContinueEachOtherAreOneRun) {
  Runs runs = runs_of({5, 1, 3, 4, 2}, {0, 7, 4, 1, 24});
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].count, 2);
  EXPECT_EQ(runs[0].stride, 24);
  EXPECT_EQ(runs[1].count, 12);
  EXPECT_EQ(runs[1].stride, 1);
  EXPECT_TRUE(runs_of({1, 3}, {1, 0}).empty());
}

TEST(WindowTest, ARunMayGoOnInTheNextRow) {
  Runs runs = runs_of({2, 3}, {5, 1});
  EXPECT_FALSE(crosses_rows(runs, 2));
  EXPECT_TRUE(crosses_rows(runs, 3));
  EXPECT_FALSE(crosses_rows(runs, 5));
  EXPECT_TRUE(crosses_rows(runs_of({4, 3}, {1, 1}), 0));  // overlaps with itself
}

TEST(WindowTest, ABoxOfTheFrameIsARangeOfEachDimension) {
  Dims frame{8, 16, 4};
  EXPECT_EQ(spans({8, 4}, {64, 1}, 12, frame), (Spans{8, 1, 4}));        // [:, 3]
  EXPECT_EQ(spans({8, 2, 4}, {64, 4, 1}, 12, frame), (Spans{8, 2, 4}));  // [:, 3:5]
  EXPECT_EQ(spans({8, 2}, {64, 1}, 13, frame), (Spans{8, 1, 2}));        // [:, 3, 1:3]
  EXPECT_EQ(spans({3, 16}, {64, 4}, 66, frame), (Spans{3, 16, 1}));      // [1:4, :, 2]
  EXPECT_EQ(spans({2, 3}, {128, 8}, 0, frame), (Spans{3, 5, 1}));        // [:3:2, :6:2, 0]
  EXPECT_EQ(spans({128}, {1}, 64, frame), (Spans{2, 16, 4}));            // [1:3]
  EXPECT_EQ(spans({4}, {1}, 13, frame), Spans());                        // across rows of 4
  EXPECT_EQ(spans({2, 4}, {6, 1}, 0, frame), Spans());
}

TEST(WindowTest, ABeginningIsANumberOfTheNode) {
  Signature signature;
  signature.number_kinds = {Number::Kind::Double};
  signature.operands = {{DType::Float, {4}, {1}, 0}, {DType::Float, {4}, {1}, 7, 20}};
  auto starts = number_starts(signature);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].integer, 7);
  EXPECT_EQ(signature.operands[1].offset, 0);
  EXPECT_EQ(signature.number_kinds.size(), 2u);
  std::vector<Number> numbers{Number::of(0.5), Number::of(int64_t{9})};
  EXPECT_EQ(window_of_operand(signature, 1, numbers).offset, 9);
  EXPECT_EQ(window_of_operand(signature, 0, numbers).offset, 0);
}

}  // namespace
}  // namespace torch_xla
