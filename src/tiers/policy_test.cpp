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

TEST(PolicyTest, FewOperationsStayInterpretedWhereALaunchCostsMore) {
  const Estimate step{.operations = 40, .runs = 40, .computed = 1500};
  Estimate tiny = step, many = step, heavy = step, loop = step, recurrent, solved;
  tiny.computed = 30;
  solved = tiny, solved.calls_host = true;
  many.operations = 70, many.runs = 70;
  heavy.moving = 1e-3;
  loop.runs = 1500;
  recurrent.operations = 100, recurrent.runs = 100, recurrent.recurrent = true;
  EXPECT_TRUE(is_better_interpreted(step, {}));
  EXPECT_TRUE(is_better_interpreted(recurrent, {}));
  EXPECT_TRUE(is_better_interpreted(solved, {}));
  for (const Estimate& other : {tiny, many, heavy, loop}) {
    EXPECT_FALSE(is_better_interpreted(other, {}));
  }
  Options soon, at_once;
  soon.runs = 3;
  at_once.compile_at_once_up_to = 60;
  EXPECT_FALSE(is_better_interpreted(step, soon));
  EXPECT_FALSE(is_better_interpreted(step, at_once));
}

TEST(PolicyTest, WhatIsRecordedForLittleComputingHadBetterBeenCalled) {
  const Estimate step{
      .operations = 150, .moving = 1e-3, .runs = 150, .recorded = 150, .computed = 1e6};
  Estimate heavy = step, loop = step, traced = step, small = step, layers = step;
  heavy.moving = 1e-2;
  loop.runs = 1500;
  traced.runs = traced.operations = 1500, traced.recorded = 1;
  small.recorded = 1;  // the others are a function's own, which records nothing
  layers.recurrent = true;
  const Options recorded{.may_be_called = true};
  EXPECT_TRUE(is_better_called(step, recorded));
  EXPECT_TRUE(is_better_interpreted(step, recorded));
  EXPECT_FALSE(is_better_interpreted(step, {}));
  for (const Estimate& other : {heavy, loop, traced, small, layers}) {
    EXPECT_FALSE(is_better_called(other, recorded));
  }
  const Estimate tiny{.operations = 20, .runs = 20, .recorded = 20};
  for (bool beside_programs : {false, true}) {
    const Options options{.may_be_called = true, .beside_programs = beside_programs};
    EXPECT_TRUE(is_better_called(tiny, options));
    EXPECT_EQ(is_better_called(step, options), !beside_programs);
  }
  EXPECT_FALSE(is_better_called(step, {.runs = 3, .may_be_called = true}));
  EXPECT_FALSE(is_better_called(step, {.compile_at_once_up_to = 200, .may_be_called = true}));
}

TEST(PolicyTest, FewOperationsStayInterpretedWhereKernelsAreFaster) {
  Estimate rows{.operations = 2, .runs = 2, .gain = -1e-3}, elements = rows;
  elements.gain = 1e-3;
  Options soon, at_once;
  soon.runs = 3;
  at_once.compile_at_once_up_to = 20;
  EXPECT_TRUE(is_better_interpreted(rows, {}));
  EXPECT_TRUE(is_better_interpreted(rows, soon));
  EXPECT_FALSE(is_better_interpreted(rows, at_once));
  EXPECT_FALSE(is_better_interpreted(elements, soon));
  EXPECT_TRUE(is_better_interpreted(rows, {.beside_programs = true}));  // is such a program
  rows.recorded = 2;
  EXPECT_FALSE(is_better_interpreted(rows, {.beside_programs = true}));
}

TEST(PolicyTest, ModulesOfOthersAreProgramsAnyway) {
  EXPECT_TRUE(compiles_at_once({.operations = 2, .modules = 2, .compiling = 1}, {}));
  EXPECT_FALSE(compiles_at_once({.operations = 3, .modules = 2, .compiling = 1}, {}));
  EXPECT_FALSE(compiles_at_once({.operations = 0, .compiling = 1},
                                {.runs = {}, .compile_at_once_up_to = -1}));
}

}  // namespace torch_xla::tiers
