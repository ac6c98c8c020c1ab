// Programs of small operations: a filter, an agent, the training of a small model. What such a
// program records from one read or sync() to the next had better been called (policy.h). So once
// that has become a habit, its operations run as they are called, as in eager mode: that saves
// recording them and running a graph. Each thread has its own; no locks.
#pragma once

#include "base/recent_map.h"

#include <cstddef>
#include <cstdint>

namespace torch_xla::tiers {

// Like a processor's predictor of branches: what follows a read is known by its first operation, so
// an agent's few operations to act are told from the many of its training.
class ReadingHabit {
 public:
  static ReadingHabit& of_this_thread();

  // An operation begins, on tensors of so many elements in all. Whether it is to run at once.
  bool begins_operation(const void* op, int64_t elements);
  // Whether the last one was to.
  bool runs_at_once() const { return runs_at_once_; }
  // A graph that was recorded has run. Whether its operations had better been called.
  void ran(bool is_better_called);
  // A function's own program has run, as torch.compile's do. What is recorded beside it had better
  // be one, too: kernels' threads and the plugin's would wait for each other.
  void ran_program() { last_program_ = ends_; }
  bool is_beside_programs() const { return ends_ - last_program_ <= 1; }
  // A value is read, or the user ends a step.
  void ends_stretch();
  bool is_in_stretch() const { return operations_ > 0; }  // not so in eager mode
  int64_t stretches() const { return ends_; }             // that have been ended

 private:
  // What is read now and then is recorded, and can be looked at.
  static constexpr int kFirstTimes = 32;
  static constexpr int kMostTimes = 1 << 20;
  // The operations up to a read that begin with the same one.
  struct Stretch {
    int times = 0;             // in a row that it had better been called, or was
    int wanted = kFirstTimes;  // that make the habit; more each time that it was broken
    int operations = 0;        // at most
    int64_t elements = 0;      // at most, of an operation
  };

  void begins_stretch(size_t first);
  bool is_as_usual() const;
  void breaks();

  RecentMap<size_t, Stretch> stretches_{256};  // by their first operation
  Stretch* stretch_ = nullptr;                 // since an operation has begun
  int64_t ends_ = 0;
  int64_t last_program_ = -2;  // the stretch in which one ran
  int operations_ = 0;         // since the last read
  int64_t elements_ = 0;       // at most, of these
  bool ran_ = false;           // some of these
  bool had_to_be_recorded_ = false;
  bool runs_at_once_ = false;
};

}  // namespace torch_xla::tiers
