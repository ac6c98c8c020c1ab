// How memory is allocated that programs on the CPU ask for. Any thread.
#pragma once

#include <string>

namespace torch_xla::pjrt {

// The CPU plugin allocates a program's temporary memory and its results with aligned_alloc, at
// every run, on any of its threads. glibc would give most of it back to the kernel in between, and
// each page of it would fault again: a tenth of a training step. From here on the plugin's large
// blocks come from a pool that keeps them (block_pool.h), which concerns nobody else in the
// process, and glibc keeps smaller ones. With TORCH_XLA_KEEP_FREED_MEMORY=0, or malloc settings of
// the user, everything stays as it is. `plugin`: path of the loaded library.
void keep_freed_memory(const std::string& plugin);

// Gives back to the kernel what has been freed and kept until now.
void release_freed_memory();

}  // namespace torch_xla::pjrt
