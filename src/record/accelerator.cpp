#include "record/accelerator.h"

#include "base/mutex.h"
#include "pjrt/client.h"
#include "pjrt/imports.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>

namespace torch_xla {

namespace {

bool environment_names_a_platform() {
  const char* platform = std::getenv("PJRT_DEVICE");
  return platform != nullptr && platform[std::strspn(platform, " \t\r\n")] != '\0';
}

// Being installed makes the device nobody's default: PJRT_DEVICE asks for it, before it is in use.
// Autograd's engine wants to know for each operation.
bool asked_for() {
  if (!pjrt::client_started()) {
    return environment_names_a_platform();
  }
  static const bool asked = environment_names_a_platform();
  return asked;
}

std::optional<c10::DeviceType> accelerator(bool checked) {
  return asked_for() ? c10::DeviceType::XLA : at::accelerator::getAccelerator(checked);
}

bool is_accelerator(c10::DeviceType type) {
  return (type == c10::DeviceType::XLA && asked_for()) || at::accelerator::isAccelerator(type);
}

// PyTorch lists the accelerators that it knows in these two functions. Its libraries ask ours: for
// `torch.accelerator`, for `tensor.to(0)`, and for memory to pin.
const bool kAnswered = [] {
  for (const char* name : {"libtorch_cpu.so", "libtorch_python.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) {
      pjrt::redirect_imports(library, {{"_ZN2at11accelerator14getAcceleratorEb",
                                        reinterpret_cast<void*>(&accelerator)},
                                       {"_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE",
                                        reinterpret_cast<void*>(&is_accelerator)}});
      dlclose(library);  // the reference of this function only
    }
  }
  return true;
}();

// Blocks in use by their addresses.
struct PinnedBlocks {
  Mutex mutex;
  std::map<const char*, size_t> sizes GUARDED_BY(mutex);
};

PinnedBlocks& pinned_blocks() {
  static auto* instance = new PinnedBlocks;
  return *instance;
}

void free_pinned(void* data) {
  {
    MutexLock lock(pinned_blocks().mutex);
    pinned_blocks().sizes.erase(static_cast<char*>(data));
  }
  c10::GetCPUAllocator()->raw_deleter()(data);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void* data = c10::GetCPUAllocator()->raw_allocate(nbytes);
    if (data != nullptr) {
      MutexLock lock(pinned_blocks().mutex);
      pinned_blocks().sizes[static_cast<char*>(data)] = nbytes;
    }
    return {data, data, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* target, const void* source, std::size_t nbytes) const override {
    default_copy_data(target, source, nbytes);
  }
};

}  // namespace

c10::Allocator* pinned_memory_allocator() {
  static auto* instance = new PinnedAllocator;
  return instance;
}

bool is_pinned(const void* data) {
  const auto* address = static_cast<const char*>(data);
  MutexLock lock(pinned_blocks().mutex);
  auto after = pinned_blocks().sizes.upper_bound(address);
  if (after == pinned_blocks().sizes.begin()) {
    return false;
  }
  const auto& [begin, size] = *std::prev(after);
  return address < begin + size;
}

}  // namespace torch_xla
