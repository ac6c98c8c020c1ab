// How memory is allocated that programs on the CPU ask for. Any thread.
#pragma once

#include "pjrt/host_arena.h"

#include <string>

namespace torch_xla::pjrt {

// The CPU plugin allocates a program's temporary memory and its results with aligned_alloc, at
// every run, on any of its threads. glibc would give most of it back to the kernel in between, and
// each page of it would fault again: a tenth of a training step. From here on the plugin's large
// blocks come from an arena that keeps them (host_arena.h), and glibc keeps smaller ones. With
// TORCH_XLA_KEEP_FREED_MEMORY=0, or malloc settings of the user, everything stays as it is.
// `plugin`: path of the loaded library.
void keep_freed_memory(const std::string& plugin);

// Called when the arena begins to be used. Set while libraries are loaded.
void set_arena_user(void (*begin)(HostArena&));

// Smaller ones are left to malloc.
constexpr size_t kLargeBlock = size_t{512} << 10;

// Gives back to the kernel what has been freed and kept until now.
void release_freed_memory();

// Around a fork.
void hold_arena();
void let_arena_go(bool in_child);

}  // namespace torch_xla::pjrt
