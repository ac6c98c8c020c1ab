// How the process's malloc treats the memory that programs on the CPU ask for. Any thread.
#pragma once

namespace torch_xla::pjrt {

// The CPU plugin allocates a program's temporary memory and results with malloc, at every run.
// glibc would give most of it back to the kernel in between, and each page of it would fault again:
// a tenth of a training step. From here on it keeps blocks of up to 32 MB (larger ones, and what
// TORCH_XLA_KEEP_FREED_MEMORY=0 or malloc settings of the user ask for, stay as they are).
void keep_freed_memory();

}  // namespace torch_xla::pjrt
