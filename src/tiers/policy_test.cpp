#include "tiers/policy.h"

#include <gtest/gtest.h>

namespace torch_xla::tiers {

TEST(PolicyTest, SmallGraphsAreDueWhenTheirRunsHaveTakenLongerThanCompiling) {
  const Estimate token{.operations = 250, .compiling = 0.27, .moving = 0};
  const Estimate step{.operations = 400, .compiling = 2, .moving = 0.1};
  EXPECT_GE(interpreted_runs(token, {}), 400);
  EXPECT_LE(interpreted_runs(token, {}), 512);
  EXPECT_EQ(interpreted_runs(step, {}), 100);
  EXPECT_EQ(interpreted_runs(Estimate{}, {}), 32);
  EXPECT_EQ(interpreted_runs(token, Options{.runs = 3}), 3);
}

TEST(PolicyTest, ModulesOfOthersAreProgramsAnyway) {
  EXPECT_TRUE(compiles_at_once({.operations = 2, .modules = 2, .compiling = 1}, {}));
  EXPECT_FALSE(compiles_at_once({.operations = 3, .modules = 2, .compiling = 1}, {}));
  EXPECT_FALSE(compiles_at_once({.operations = 0, .compiling = 1},
                                {.runs = {}, .compile_at_once_up_to = -1}));
}

}  // namespace torch_xla::tiers
