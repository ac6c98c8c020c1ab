#include "pjrt/live_buffers.h"

#include "base/error.h"

#include <array>
#include <fstream>
#include <string>

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
  change(nbytes);
}

void DeviceMemory::change(int64_t nbytes) {
  in_use_.fetch_add(nbytes, std::memory_order_relaxed);
  if (nbytes > 0) {
    note_peak(0);
  }
}

void DeviceMemory::note_peak(int64_t more) {
  const int64_t now = in_use() + more;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void DeviceMemory::remove(int64_t nbytes) {
  live_count.fetch_sub(1, std::memory_order_relaxed);
  live_bytes.fetch_sub(nbytes, std::memory_order_relaxed);
  change(-nbytes);
}

void DeviceMemory::reset_peak() { peak_.store(in_use(), std::memory_order_relaxed); }

DeviceMemory& device_memory(int device) {
  static std::array<DeviceMemory, 128> devices;  // PyTorch's indices of devices are int8_t
  if (device < 0 || static_cast<size_t>(device) >= devices.size()) {
    throw Error("xla:" + std::to_string(device) + " does not exist");
  }
  return devices[static_cast<size_t>(device)];
}

Client::MemoryStats memory_stats(int device) {
  if (client_started()) {
    return client().memory_stats(device);
  }
  const DeviceMemory& memory = device_memory(device);
  return {memory.in_use(), host_memory_bytes(), memory.peak()};
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
