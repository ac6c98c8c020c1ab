// Threads that wait for a program and are awake take part in its work: to wake another one takes
// longer than many a kernel.
#pragma once

#include <cstddef>
#include <memory>

namespace torch_xla {

// Work in pieces that several threads may do.
class SharedWork {
 public:
  virtual ~SharedWork() = default;
  // Does pieces until none is left to begin; false if none was. Throws nothing. Any thread.
  virtual bool work() = 0;
};

// A thread that waits, as long as it looks for work. It holds no locks, nor the interpreter's.
class SpareHand {
 public:
  SpareHand();
  ~SpareHand();
  SpareHand(const SpareHand&) = delete;
  SpareHand& operator=(const SpareHand&) = delete;
  bool help();  // false: there is nothing to do
};

// While it lives, spare hands take part.
class Offer {
 public:
  explicit Offer(std::shared_ptr<SharedWork> work);
  ~Offer();
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;
  // That were there when it began. Each looks at the work before it goes.
  size_t hands() const { return hands_; }

 private:
  const std::shared_ptr<SharedWork> work_;
  const size_t hands_;
};

}  // namespace torch_xla
