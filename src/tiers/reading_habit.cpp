#include "tiers/reading_habit.h"

#include "tiers/policy.h"

#include <c10/util/hash.h>

#include <algorithm>

namespace torch_xla::tiers {

namespace {

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
  stretch_ = &stretches_.get_or_add(first, {});
  runs_at_once_ = stretch_->times >= stretch_->wanted && may_interpret();
}

bool ReadingHabit::begins_operation(const void* op, int64_t elements) {
  if (operations_++ == 0) {
    begins_stretch(c10::get_hash(op, elements));
  }
  elements_ = std::max(elements_, elements);
  if (runs_at_once_ && !is_as_usual()) {
    breaks();
  }
  return runs_at_once_;
}

void ReadingHabit::ran(bool is_better_called) {
  ran_ = true;
  had_to_be_recorded_ = had_to_be_recorded_ || !is_better_called;
}

void ReadingHabit::ends_stretch() {
  ++ends_;
  if (operations_ == 0 || !(ran_ || runs_at_once_)) {
    return;
  }
  const bool again = runs_at_once_ || !had_to_be_recorded_;
  stretch_->times = again ? std::min(stretch_->times + 1, kMostTimes) : 0;
  if (!runs_at_once_) {
    stretch_->operations = std::max(stretch_->operations, operations_);
    stretch_->elements = std::max(stretch_->elements, elements_);
  }
  operations_ = 0;
  elements_ = 0;
  ran_ = had_to_be_recorded_ = runs_at_once_ = false;
}

// What has grown since might be worth a program by now.
bool ReadingHabit::is_as_usual() const {
  return operations_ <= 2 * stretch_->operations && elements_ <= 2 * stretch_->elements;
}

// A program that often does something else after the same operation gives each of its graphs a
// second form: what came before the habit broke has run.
void ReadingHabit::breaks() {
  runs_at_once_ = false;
  had_to_be_recorded_ = true;
  stretch_->wanted = std::min(stretch_->wanted * 4, kMostTimes);
}

}  // namespace torch_xla::tiers
