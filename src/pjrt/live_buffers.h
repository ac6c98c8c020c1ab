// Counts of the memory that values take: in all, and by device. Relaxed atomics.
#pragma once

#include "pjrt/client.h"

#include <atomic>

namespace torch_xla::pjrt {

// What the values of one device hold.
class DeviceMemory {
 public:
  void add(int64_t nbytes);     // a buffer was made
  void remove(int64_t nbytes);  // its memory was given up
  void change(int64_t nbytes);  // of the host's, which is no buffer yet: more, or less
  // For a moment now: what a program has of its own while it runs.
  void note_peak(int64_t more);
  void reset_peak();
  int64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
};

// That of the device with this index, also before the client starts.
DeviceMemory& device_memory(int device);

// What the client says if it has started, else what is counted here.
Client::MemoryStats memory_stats(int device);

// Memory of this machine, in bytes; 0 if unknown.
int64_t host_memory_bytes();

}  // namespace torch_xla::pjrt
