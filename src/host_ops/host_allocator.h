// PyTorch's allocator for the CPU once programs run there: large blocks come from the arena that
// the plugin's come from (pjrt/host_malloc.h), so that what one frees the other takes, and the
// kernel neither unmaps nor clears it in between.
#pragma once

#include <c10/core/Storage.h>

namespace torch_xla {

// Memory of PyTorch's allocator for the CPU alone: freeing it runs no code of others. Any thread.
bool is_plain_host_memory(const c10::Storage& storage);

}  // namespace torch_xla
