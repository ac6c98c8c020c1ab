#include "pjrt/live_buffers.h"

#include <fstream>

namespace torch_xla::pjrt {

namespace {
std::atomic<int64_t> live_count{0};
std::atomic<int64_t> live_bytes{0};
}  // namespace

int64_t live_buffer_count() { return live_count.load(std::memory_order_relaxed); }
int64_t live_buffer_bytes() { return live_bytes.load(std::memory_order_relaxed); }

void DeviceMemory::add(int64_t nbytes) {
  live_count.fetch_add(1, std::memory_order_relaxed);
  live_bytes.fetch_add(nbytes, std::memory_order_relaxed);
  int64_t now = in_use_.fetch_add(nbytes, std::memory_order_relaxed) + nbytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void DeviceMemory::remove(int64_t nbytes) {
  live_count.fetch_sub(1, std::memory_order_relaxed);
  live_bytes.fetch_sub(nbytes, std::memory_order_relaxed);
  in_use_.fetch_sub(nbytes, std::memory_order_relaxed);
}

int64_t host_memory_bytes() {
  static const int64_t bytes = [] {
    std::ifstream info("/proc/meminfo");  // "MemTotal:  16384000 kB" comes first
    std::string key;
    int64_t kilobytes = 0;
    info >> key >> kilobytes;
    return kilobytes * 1024;
  }();
  return bytes;
}

}  // namespace torch_xla::pjrt
