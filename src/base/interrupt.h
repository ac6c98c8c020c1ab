// Long work asks from time to time whether the user wants it to end (Ctrl-C).
#pragma once

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

bool is_interrupt(const std::exception& error);

}  // namespace torch_xla
