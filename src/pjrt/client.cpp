#include "pjrt/client.h"

#include "base/env.h"
#include "pjrt/fork_guard.h"
#include "pjrt/null_client.h"
#include "pjrt/plugin.h"
#include "pjrt/plugin_client.h"

#include <atomic>
#include <mutex>

namespace torch_xla::pjrt {

namespace {

struct Process {
  std::mutex mutex;
  std::atomic<Client*> client{nullptr};
};

Process& process() {
  static auto* instance = new Process;
  return *instance;
}

std::unique_ptr<Client> start() {
  std::string device = env::string("PJRT_DEVICE");
  if (device == "NULL") {
    return make_null_client(static_cast<int>(env::integer("CPU_NUM_DEVICES")));
  }
  return start_plugin_client(find_plugin(device), device);
}

}  // namespace

Client& client() {
  refuse_forked_child();
  Process& p = process();
  Client* running = p.client.load(std::memory_order_acquire);
  if (running == nullptr) {
    std::lock_guard<std::mutex> lock(p.mutex);
    running = p.client.load(std::memory_order_acquire);
    if (running == nullptr) {
      // Never destroyed: buffers of static objects, and of Python objects that outlive the
      // interpreter, may be released after any order of destruction we could choose.
      running = start().release();
      p.client.store(running, std::memory_order_release);
    }
  }
  return *running;
}

bool client_started() { return process().client.load(std::memory_order_acquire) != nullptr; }

int device_count_hint() {
  std::string device = env::string("PJRT_DEVICE");
  bool known_before_start = device == "CPU" || device == "NULL";
  // A forked child may ask: PyTorch counts devices in places that use none.
  if (known_before_start && (!client_started() || in_forked_child)) {
    return static_cast<int>(env::integer("CPU_NUM_DEVICES"));
  }
  return client().device_count();
}

}  // namespace torch_xla::pjrt
