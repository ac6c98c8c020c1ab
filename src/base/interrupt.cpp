#include "base/interrupt.h"

#include <atomic>
#include <chrono>
#include <utility>

namespace torch_xla {

namespace {
std::atomic<InterruptHandler> interrupt_handler{nullptr};
std::atomic<InterruptTest> interrupt_test{nullptr};
thread_local bool nobody_is_asked = false;
constexpr auto kPeriod = std::chrono::milliseconds(50);
}  // namespace

void set_interrupt_handler(InterruptHandler handler, InterruptTest test) {
  interrupt_handler = handler;
  interrupt_test = test;
}

bool is_interrupt(const std::exception& error) {
  InterruptTest test = interrupt_test;
  return test != nullptr && test(error);
}

void check_interrupt() {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point asked = Clock::now();
  const Clock::time_point now = Clock::now();
  if (now - asked < kPeriod || nobody_is_asked) {
    return;
  }
  asked = now;
  if (InterruptHandler handler = interrupt_handler; handler != nullptr) {
    handler();
  }
}

void wait_or_interrupt(Condition& changed, Mutex& mutex, MutexLock& lock) {
  if (!changed.wait_until(lock, std::chrono::steady_clock::now() + kPeriod)) {
    MutexUnlock unlocked(mutex);
    check_interrupt();
  }
}

NoInterrupts::NoInterrupts() : outer_(std::exchange(nobody_is_asked, true)) {}
NoInterrupts::~NoInterrupts() { nobody_is_asked = outer_; }

}  // namespace torch_xla
