// What PyTorch asks of the machine's accelerator: whether it is this device, and for memory of the
// host to transfer from. Any thread.
#pragma once

#include <c10/core/Allocator.h>

namespace torch_xla {

// Plain memory, which is known to be "pinned": plugins copy from any memory.
c10::Allocator* pinned_memory_allocator();
bool is_pinned(const void* data);

}  // namespace torch_xla
