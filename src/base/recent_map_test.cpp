#include "base/recent_map.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

TEST(RecentMap, NeverOutgrowsItsBoundAndKeepsWhatIsUsed) {
  RecentMap<int, int> map(100);
  map.get_or_add(-1, 7);
  for (int i = 0; i < 10000; ++i) {
    map.get_or_add(i, i);
    EXPECT_EQ(map.get_or_add(-1, 0), 7);
    ASSERT_LE(map.size(), 100U);
  }
  EXPECT_EQ(map.get_or_add(9999 - 40, -5), 9999 - 40);
  EXPECT_EQ(map.find(3), nullptr);
  EXPECT_EQ(map.get_or_add(3, -5), -5);
  *map.find(3) = 8;
  EXPECT_EQ(map.get_or_add(3, -5), 8);
}

}  // namespace
}  // namespace torch_xla
