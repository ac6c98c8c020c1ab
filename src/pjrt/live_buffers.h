// Counts of the buffers alive and of their bytes: in all, and by device. Relaxed atomics.
#pragma once

#include "pjrt/client.h"

#include <atomic>

namespace torch_xla::pjrt {

// What the buffers of one device of a client hold.
class DeviceMemory {
 public:
  void add(int64_t nbytes);     // a buffer was made
  void remove(int64_t nbytes);  // its memory was given up
  int64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
};

// Memory of this machine, in bytes; 0 if unknown.
int64_t host_memory_bytes();

}  // namespace torch_xla::pjrt
