// Programs that read a value after every few small operations: a filter, an agent that acts, a
// test. What such a program records between two reads would be interpreted for good (policy.h). So
// once a thread has the habit, its operations run as they are called, as in eager mode: that saves
// recording them and running a graph. Each thread has its own; no locks.
#pragma once

#include <cstdint>

namespace torch_xla::tiers {

class ReadingHabit {
 public:
  static ReadingHabit& of_this_thread();

  // An operation begins, on tensors of so many elements in all. Whether it is to run at once.
  bool begins_operation(int64_t elements);
  // A value is read.
  void reads();
  // The program says itself where a step ends: it thinks in graphs.
  void ends_step();

 private:
  void breaks();

  // What is read now and then is recorded, and can be looked at.
  static constexpr int kFirstReads = 128;
  static constexpr int kMostReads = 1 << 20;
  int operations_ = 0;        // since the last read
  bool all_small_ = true;     // were these
  int reads_ = 0;             // in a row, after a few small operations each
  int wanted_ = kFirstReads;  // that make the habit; more each time that it was broken
  bool runs_at_once_ = false;
};

}  // namespace torch_xla::tiers
