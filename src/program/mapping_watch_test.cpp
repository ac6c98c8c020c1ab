#include "program/mapping_watch.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

TEST(MappingWatch, AsksForProgramsToGoBeforeMappingsRunOut) {
  size_t used = 1000, counted = 0, dropped = 0;
  auto count = [&] {
    ++counted;
    return used;
  };
  MappingWatch watch(count, 64000);
  for (int program = 0; program < 1000; ++program) {
    if (watch.nearly_out()) {
      used /= 2;
      ++dropped;
    }
    used += 400;
    ASSERT_LT(used, 64000u);
  }
  EXPECT_GT(dropped, 5u);
  EXPECT_LT(counted, 300u);
}

TEST(MappingWatch, GivesUpWhenDroppingDoesNotHelp) {
  MappingWatch watch([] { return size_t{60000}; }, 64000);
  EXPECT_TRUE(watch.nearly_out());
  EXPECT_FALSE(watch.nearly_out());
  EXPECT_FALSE(watch.nearly_out());
}

TEST(MappingWatch, KnowsNoLimit) {
  MappingWatch watch([] { return size_t{60000}; }, 0);
  EXPECT_FALSE(watch.nearly_out());
}

}  // namespace
}  // namespace torch_xla
