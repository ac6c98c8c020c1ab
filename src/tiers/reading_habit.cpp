#include "tiers/reading_habit.h"

#include "tiers/policy.h"

#include <algorithm>

namespace torch_xla::tiers {

namespace {

constexpr int kFewOperations = 48;         // as many are interpreted for good
constexpr int64_t kFewElements = 1 << 14;  // of an operation

// Whether the user left it to us who runs a graph.
bool may_interpret() {
  const Options options = from_environment();
  return (options.policy == Policy::Counted || options.policy == Policy::Async) &&
         !options.runs.has_value() && options.compile_at_once_up_to == 0;
}

}  // namespace

ReadingHabit& ReadingHabit::of_this_thread() {
  static thread_local ReadingHabit habit;
  return habit;
}

bool ReadingHabit::begins_operation(int64_t elements) {
  ++operations_;
  if (elements > kFewElements) {
    all_small_ = false;
  }
  if (runs_at_once_ && (!all_small_ || operations_ > kFewOperations)) {
    breaks();
  }
  return runs_at_once_;
}

void ReadingHabit::reads() {
  if (operations_ == 0) {
    return;
  }
  const bool after_little = all_small_ && operations_ <= kFewOperations;
  operations_ = 0;
  all_small_ = true;
  if (runs_at_once_) {
    runs_at_once_ = may_interpret();  // the user may have changed it
  } else if (!after_little) {
    reads_ = 0;
  } else if (++reads_ >= wanted_) {
    reads_ = 0;
    runs_at_once_ = may_interpret();
  }
}

// A program that often does something else between such reads gives each of its graphs a second
// form: what came before the habit broke has run.
void ReadingHabit::breaks() {
  runs_at_once_ = false;
  reads_ = 0;
  wanted_ = std::min(wanted_ * 4, kMostReads);
}

void ReadingHabit::ends_step() {
  runs_at_once_ = false;
  reads_ = 0;
  operations_ = 0;
  all_small_ = true;
}

}  // namespace torch_xla::tiers
