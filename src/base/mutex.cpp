#include "base/mutex.h"

#include <atomic>

namespace torch_xla {

namespace {

std::atomic<bool (*)(c10::function_ref<void()>)> step_aside{nullptr};

}  // namespace

void set_step_aside(bool (*function)(c10::function_ref<void()>)) { step_aside.store(function); }

// Whoever stepped aside has the interpreter's lock again before it asks once more: it would not
// wait for that with the mutex held either.
void Mutex::wait_for(std::mutex& mutex) {
  auto* const aside = step_aside.load(std::memory_order_acquire);
  const auto until_free = [&mutex] { std::lock_guard<std::mutex> lock(mutex); };
  while (aside != nullptr && aside(until_free)) {
    if (mutex.try_lock()) {
      return;
    }
  }
  mutex.lock();
}

}  // namespace torch_xla
