// Programs that neither sync nor read for long. What a thread has recorded is run for it, as a sync
// would, where else it would grow without bounds: each batch stays in memory, and as many steps as
// come between two reads are one graph. Each thread has its own counts; no locks. Nothing is run
// where it must not (regions, traces, exports).
#pragma once

#include <cstddef>

namespace torch_xla::growth {

// What the thread has recorded on all devices, where it may run.
void run_recorded();

// A step of the training has ended: once a program has shown that it does not sync or read between
// two steps of this optimizer, each of them ends a graph.
void optimizer_stepped(size_t optimizer);

// So many bytes are about to be sent to the device.
void before_upload(int device, size_t bytes);

// An operation has been recorded.
void operation_recorded(int device);

// All that the thread has recorded runs.
void reset();

}  // namespace torch_xla::growth
