#include "pjrt/client.h"

#include "base/env.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "pjrt/foreign_plugin.h"
#include "pjrt/fork_guard.h"
#include "pjrt/null_client.h"
#include "pjrt/plugin.h"
#include "pjrt/plugin_client.h"
#include "sharding/spmd.h"

#include <atomic>
#include <cctype>
#include <string_view>

namespace torch_xla::pjrt {

namespace {

constexpr std::string_view kNullDevice = "NULL";
constexpr std::string_view kForeignDevice = "FOREIGN";

struct Process {
  Mutex mutex;
  std::atomic<Client*> client{nullptr};
};

Process& process() {
  static auto* instance = new Process;
  return *instance;
}

// PJRT_DEVICE as the front end's finder reads it.
std::string requested_device() {
  std::string device;
  for (const unsigned char letter : env::string("PJRT_DEVICE")) {
    if (std::isspace(letter) == 0) {
      device += static_cast<char>(std::toupper(letter));
    }
  }
  return device.empty() ? "CPU" : device;
}

std::unique_ptr<Client> start(const std::string& device, const std::string& plugin) {
  if (device == kNullDevice) {
    return make_null_client(static_cast<int>(env::integer("CPU_NUM_DEVICES")));
  }
  return device == kForeignDevice ? std::make_unique<PluginClient>(load_foreign(plugin), device)
                                  : start_plugin_client(plugin, device);
}

Client& start_once() {
  // Found without the lock: the front end's finder may need Python's, which other threads hold
  // while they wait for ours.
  const std::string device = requested_device();
  std::string plugin;
  if (device != kNullDevice) {
    plugin = find_plugin(device == kForeignDevice ? "CPU" : device);
  }
  Process& p = process();
  MutexLock lock(p.mutex);
  NoInterrupts locked;
  Client* running = p.client.load(std::memory_order_acquire);
  if (running == nullptr) {
    // Never destroyed: buffers of static objects, and of Python objects that outlive the
    // interpreter, may be released after any order of destruction we could choose.
    running = start(device, plugin).release();
    p.client.store(running, std::memory_order_release);
  }
  return *running;
}

}  // namespace

Client& client() {
  refuse_forked_child();
  Client* running = process().client.load(std::memory_order_acquire);
  return running != nullptr ? *running : start_once();
}

bool client_started() { return process().client.load(std::memory_order_acquire) != nullptr; }

int device_count_hint() {
  if (spmd_enabled()) {
    return 1;
  }
  // A forked child may ask: PyTorch counts devices in places that use none.
  if (!client_started() || in_forked_child) {
    const std::string device = requested_device();
    if (device == "CPU" || device == kNullDevice || device == kForeignDevice) {
      return static_cast<int>(env::integer("CPU_NUM_DEVICES"));
    }
  }
  return client().device_count();
}

}  // namespace torch_xla::pjrt
