// Long work asks from time to time whether the user wants it to end (Ctrl-C).
#pragma once

#include "base/mutex.h"
#include "base/trace_lock.h"

#include <exception>

namespace torch_xla {

// The front end's: throws when the calling thread is to stop what it does. It may take the
// interpreter's lock, so check_interrupt() is called without locks.
using InterruptHandler = void (*)();
// Whether an exception is the user's wish to end (KeyboardInterrupt, SystemExit), which Python code
// that the core calls may raise. Whoever goes on after an exception passes these on.
using InterruptTest = bool (*)(const std::exception&);
void set_interrupt_handler(InterruptHandler handler, InterruptTest test);

// Asks at most every 50 ms per thread.
void check_interrupt() EXCLUDES(trace_mutex);

// A turn of a loop that waits for `changed`, and asks; no other lock is held. What was waited for
// is to be as before when this throws: whoever wants it waits again.
void wait_or_interrupt(Condition& changed, Mutex& mutex, MutexLock& lock) REQUIRES(mutex)
    EXCLUDES(trace_mutex);

// Nobody is asked on this thread: locks are held, or the front end is gone.
class NoInterrupts {
 public:
  NoInterrupts();
  ~NoInterrupts();
  NoInterrupts(const NoInterrupts&) = delete;
  NoInterrupts& operator=(const NoInterrupts&) = delete;

 private:
  const bool outer_;
};

bool is_interrupt(const std::exception& error);

}  // namespace torch_xla
