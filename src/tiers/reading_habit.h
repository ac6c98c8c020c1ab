// Programs that read a value after every few small operations: a filter, an agent that acts, a
// test. What such a program records between two reads would be interpreted for good (policy.h). So
// once a thread has the habit, its operations run as they are called, as in eager mode: that saves
// recording them and running a graph. Each thread has its own; no locks.
#pragma once

#include <array>
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
  // A value is read.
  void reads();
  // The program says itself where a step ends: it thinks in graphs.
  void ends_step();

 private:
  // What is read now and then is recorded, and can be looked at.
  static constexpr int kFirstReads = 128;
  static constexpr int kMostReads = 1 << 20;
  // The operations from one read to the next that begin with the same one.
  struct Stretch {
    size_t first = 0;          // operation
    int reads = 0;             // in a row, after a few small operations each
    int wanted = kFirstReads;  // that make the habit; more each time that it was broken
  };

  void begins_stretch(size_t first);
  void breaks();

  std::array<Stretch, 64> stretches_;  // of programs with more, the last that began
  Stretch* stretch_ = stretches_.data();
  int operations_ = 0;     // since the last read
  bool all_small_ = true;  // were these
  bool runs_at_once_ = false;
};

}  // namespace torch_xla::tiers
