// Long work asks from time to time whether the user wants it to end (Ctrl-C).
#pragma once

namespace torch_xla {

// The front end's: throws when the calling thread is to stop what it does. It may take the
// interpreter's lock, so check_interrupt() is called without locks.
using InterruptHandler = void (*)();
void set_interrupt_handler(InterruptHandler handler);

// Asks at most every 50 ms per thread.
void check_interrupt();

}  // namespace torch_xla
