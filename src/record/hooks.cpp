// What PyTorch asks of a device type: a guard, generators, an allocator's absence.
#include "execution/sync.h"
#include "record/call.h"
#include "record/generator.h"

#include <ATen/detail/XLAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace torch_xla {

namespace {

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
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(pjrt::device_count_hint());
    } catch (...) {
      return 0;
    }
  }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = nullptr;  // one stream: events order nothing
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_device(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { wait_device(index); }
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
  bool hasPrimaryContext(c10::DeviceIndex) const override { return pjrt::client_started(); }
};

}  // namespace detail

}  // namespace torch_xla

namespace at {
// PyTorch looks for this name in its registry, whose registerer lives in this namespace.
REGISTER_XLA_HOOKS(torch_xla::detail::XLAHooks);
}  // namespace at
