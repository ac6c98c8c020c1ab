#include "base/mutex.h"

#include "base/trace_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace torch_xla {
namespace {

std::mutex interpreter;
std::atomic<bool> steps_aside{false};

bool wait_without_interpreter(c10::function_ref<void()> wait) {
  steps_aside = true;
  interpreter.unlock();
  wait();
  interpreter.lock();
  return true;
}

TEST(Mutex, IsNotWaitedForWithTheInterpretersLock) {
  set_step_aside(&wait_without_interpreter);
  Mutex mutex;
  mutex.lock();
  std::atomic<bool> done{false};
  std::thread other([&] {
    std::lock_guard<std::mutex> holds(interpreter);
    MutexLock lock(mutex);
    done = true;
  });
  while (!steps_aside) {
    std::this_thread::yield();
  }
  interpreter.lock();  // as a tensor does that gets a second owner
  EXPECT_FALSE(done);
  interpreter.unlock();
  mutex.unlock();
  other.join();
  EXPECT_TRUE(done);
  set_step_aside(nullptr);
}

TEST(TraceLock, IsTakenOnceByWhatMayEndUnderIt) {
  EXPECT_FALSE(TraceLock::held_here());
  {
    TraceLockIfFree alone;
    EXPECT_TRUE(TraceLock::held_here());
  }
  EXPECT_FALSE(TraceLock::held_here());
  TraceLock lock;
  { TraceLockIfFree inner; }
  EXPECT_TRUE(TraceLock::held_here());
  std::thread([] { EXPECT_FALSE(TraceLock::held_here()); }).join();
}

}  // namespace
}  // namespace torch_xla
