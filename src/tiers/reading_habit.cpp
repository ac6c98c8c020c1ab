#include "tiers/reading_habit.h"

#include "tiers/policy.h"

#include <c10/util/hash.h>

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

void ReadingHabit::begins_stretch(size_t first) {
  stretch_ = &stretches_[first % stretches_.size()];
  if (stretch_->first != first) {
    *stretch_ = {.first = first};
  }
  runs_at_once_ = stretch_->reads >= stretch_->wanted && may_interpret();
}

bool ReadingHabit::begins_operation(const void* op, int64_t elements) {
  if (operations_++ == 0) {
    begins_stretch(c10::get_hash(op, elements));
  }
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
  stretch_->reads = after_little ? std::min(stretch_->reads + 1, kMostReads) : 0;
  operations_ = 0;
  all_small_ = true;
}

// A program that often does something else after the same operation gives each of its graphs a
// second form: what came before the habit broke has run.
void ReadingHabit::breaks() {
  runs_at_once_ = false;
  stretch_->wanted = std::min(stretch_->wanted * 4, kMostReads);
}

void ReadingHabit::ends_step() {
  for (Stretch& stretch : stretches_) {
    stretch.reads = 0;
  }
  operations_ = 0;
  all_small_ = true;
}

}  // namespace torch_xla::tiers
