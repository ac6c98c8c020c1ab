// Locks that clang's thread-safety analysis follows (dev/check runs it): GUARDED_BY says which
// mutex guards a member, REQUIRES what callers of a function hold, EXCLUDES what they must not
// hold.
//
// PyTorch takes the interpreter's lock wherever a tensor that Python holds is given a second owner
// or loses it, under one of these locks, too. So no thread waits for one of them while it holds the
// interpreter's: it steps aside (set_step_aside), which makes that order no deadlock.
#pragma once

#include <c10/util/FunctionRef.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <type_traits>

#if defined(__clang__)
#define TORCH_XLA_ANALYSED(attribute) __attribute__((attribute))
#else
#define TORCH_XLA_ANALYSED(attribute)
#endif
#define GUARDED_BY(mutex) TORCH_XLA_ANALYSED(guarded_by(mutex))
#define REQUIRES(...) TORCH_XLA_ANALYSED(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TORCH_XLA_ANALYSED(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) TORCH_XLA_ANALYSED(acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) TORCH_XLA_ANALYSED(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) TORCH_XLA_ANALYSED(release_capability(__VA_ARGS__))
// Of functions that are right for a reason that the analysis does not know; they say which.
#define NOT_ANALYSED TORCH_XLA_ANALYSED(no_thread_safety_analysis)

namespace torch_xla {

// How the front end calls `wait` without the interpreter's lock; false, and nothing is called, if
// the thread does not hold it. Set once.
void set_step_aside(bool (*step_aside)(c10::function_ref<void()> wait));

class TORCH_XLA_ANALYSED(capability("mutex")) Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() ACQUIRE() { lock(mutex_); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  static std::mutex& lock(std::mutex& mutex) {
    if (!mutex.try_lock()) [[unlikely]] {
      wait_for(mutex);
    }
    return mutex;
  }
  static void wait_for(std::mutex& mutex);

  friend class MutexLock;
  std::mutex mutex_;
};
// So that one in static memory outlives whatever a dying process destroys.
static_assert(std::is_trivially_destructible_v<Mutex>);

// Under which nothing takes another lock, PyTorch's or the interpreter's: who waits for it need not
// step aside, which an allocator, say, must not.
class TORCH_XLA_ANALYSED(capability("mutex")) InnermostMutex {
 public:
  constexpr InnermostMutex() = default;
  InnermostMutex(const InnermostMutex&) = delete;
  InnermostMutex& operator=(const InnermostMutex&) = delete;
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

class TORCH_XLA_ANALYSED(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex)
      : lock_(Mutex::lock(mutex.mutex_), std::adopt_lock) {}
  explicit MutexLock(InnermostMutex& mutex) ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// The other way round: gives up for a while what the thread holds.
class TORCH_XLA_ANALYSED(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RELEASE() { mutex_.lock(); }  // of itself: what it gave up is held again
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// What a thread waits for in a loop, `while (!there_) changed_.wait(lock)`, so that the analysis
// sees where guarded members are read.
class Condition {
 public:
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  // False: the time is up.
  template <typename Time>
  bool wait_until(MutexLock& lock, const Time& time) {
    return condition_.wait_until(lock.lock_, time) == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace torch_xla
