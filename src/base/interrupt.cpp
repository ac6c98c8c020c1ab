#include "base/interrupt.h"

#include <atomic>
#include <chrono>

namespace torch_xla {

namespace {
std::atomic<InterruptHandler> interrupt_handler{nullptr};
std::atomic<InterruptTest> interrupt_test{nullptr};
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
  if (now - asked < std::chrono::milliseconds(50)) {
    return;
  }
  asked = now;
  if (InterruptHandler handler = interrupt_handler; handler != nullptr) {
    handler();
  }
}

}  // namespace torch_xla
