// What identifies a kind of call: the tensors' metadata, how they share storages, and PyTorch's
// switches. Two calls with equal keys may use one trace.
#pragma once

#include "pure/entry.h"

namespace torch_xla {

// Grad and inference mode, autocast, default dtype, determinism.
void append_switches(Words& words);

// One tensor's metadata, without its storage's identity.
void append_tensor(c10::SmallVectorImpl<uint64_t>& words, const at::Tensor& tensor)
    REQUIRES(trace_mutex);

// The arguments, and which of them share a storage. Takes the trace lock.
void append_arguments(Words& words, const Tensors& arguments);

uint64_t hash_words(const Words& words);

// Are closed-over tensors what they were when the entry was traced, and on storages related to the
// arguments' as they were? Takes the trace lock.
bool handles_match(const PureEntry& entry, const Tensors& arguments);

// A new value for StorageState::Visit::epoch.
uint64_t next_visit_epoch();

}  // namespace torch_xla
