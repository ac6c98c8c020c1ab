#include "program/progress.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

using std::chrono::milliseconds;

std::string printed_within(milliseconds delay, milliseconds work) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line("step_fn", delay);
    std::this_thread::sleep_for(work);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(ProgressLine, SaysWhatIsCompiledWhenItTakesLong) {
  const std::string printed = printed_within(milliseconds(20), milliseconds(400));
  EXPECT_NE(printed.find("compiling step_fn for 0.0 s"), std::string::npos);
  EXPECT_NE(printed.find("for 0.2 s"), std::string::npos);  // after 20, 40, 80, 160 ms
}

TEST(ProgressLine, IsSilentWhenFastOrOff) {
  EXPECT_EQ(printed_within(std::chrono::minutes(1), milliseconds(1)), "");
  EXPECT_EQ(printed_within(milliseconds(0), milliseconds(50)), "");
}

}  // namespace
}  // namespace torch_xla
