// What PyTorch asks of a device type: a guard, generators, an allocator's absence.
#include "execution/sync.h"
#include "record/accelerator.h"
#include "record/call.h"
#include "record/generator.h"

#include <ATen/detail/XLAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

namespace torch_xla {

namespace {

// An event that measures time: when all work before it was done.
using Moment = std::chrono::steady_clock::time_point;

int checked_index(int index) {
  if (index < 0) {
    return current_device();
  }
  int count = pjrt::device_count_hint();
  TORCH_CHECK(index < count, "xla:", index, " does not exist: there ",
              count == 1 ? "is 1 device" : "are " + std::to_string(count) + " devices",
              " (CPU_NUM_DEVICES sets how many the CPU plugin makes)");
  return index;
}

// One stream per device, in order; programs are asynchronous behind it.
struct XlaGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::XLA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return device_of(current_device()); }
  void setDevice(c10::Device device) const override {
    set_current_device(checked_index(device.index()));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_current_device(std::max<int>(device.index(), 0));
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_QInt8 = types.has_QUInt8 = types.has_QInt32 = 0;
    types.has_QUInt4x2 = types.has_QUInt2x4 = 0;
    return capability;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(pjrt::device_count_hint());
    } catch (...) {
      return 0;
    }
  }
  // One stream: events order nothing. One that measures time waits for the work before it.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    if (flag != c10::EventFlag::BACKEND_DEFAULT) {
      *event = nullptr;
      return;
    }
    run_and_wait(checked_index(stream.device_index()));
    if (*event == nullptr) {
      *event = new Moment;
    }
    *static_cast<Moment*>(*event) = std::chrono::steady_clock::now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Moment*>(event);
  }
  void synchronizeEvent(void* event) const override {
    for (int device = 0; event == nullptr && device < pjrt::device_count_hint(); ++device) {
      run_and_wait(device);
    }
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(begin != nullptr && end != nullptr,
                "both events must be recorded, and made with enable_timing=True");
    std::chrono::duration<double, std::milli> elapsed =
        *static_cast<Moment*>(end) - *static_cast<Moment*>(begin);
    return elapsed.count();
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    run_and_wait(checked_index(stream.device_index()));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    run_and_wait(checked_index(index));
  }

 private:
  static void run_and_wait(int device) {
    sync_device(device, /*wait=*/true);
    wait_device(device);
  }
};

C10_REGISTER_GUARD_IMPL(XLA, XlaGuard);

}  // namespace

namespace detail {

struct XLAHooks : at::XLAHooksInterface {
  void init() const override {}
  bool hasXLA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  std::string showConfig() const override { return "torch-pjrt"; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(checked_index(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(checked_index(index));
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(pjrt::device_count_hint());
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_current_device(checked_index(index));
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return pjrt::client_started(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_memory_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
};

}  // namespace detail

}  // namespace torch_xla

namespace at {
// PyTorch looks for this name in its registry, whose registerer lives in this namespace.
REGISTER_XLA_HOOKS(torch_xla::detail::XLAHooks);
}  // namespace at
