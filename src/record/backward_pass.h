// On which thread PyTorch's autograd runs the device's part of a backward pass.
//
// It has a thread for each device, but none for the CPU, whose passes run on the thread that asks
// for them. There the device's should run, too: a thread of its own costs two handovers a pass, and
// has a second team of OpenMP threads, beside which the first one sleeps between any two kernels.
#pragma once

namespace torch_xla {

// From now to the end of the outermost one, backward passes that the calling thread begins run on
// it, all devices' parts included. Only one thread of a process may have this: once a second one
// asks, all passes run on the devices' threads, and record for the thread that began them.
void begin_backward();

// After each begin_backward(), on the same thread.
void end_backward();

// Returns once the devices' autograd threads have let go of everything: to be called before the
// Python interpreter ends, which those references need. Does nothing if there was no backward pass.
void drain_autograd_threads();

}  // namespace torch_xla
