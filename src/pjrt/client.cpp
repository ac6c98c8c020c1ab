#include "pjrt/client.h"

#include "base/env.h"
#include "pjrt/plugin_client.h"

#include <unistd.h>

#include <mutex>

namespace torch_xla::pjrt {

namespace {

struct Process {
  std::mutex mutex;
  std::atomic<Client*> client{nullptr};
  pid_t owner = 0;
};

Process& process() {
  static auto* instance = new Process;
  return *instance;
}

void refuse_forked_child() {
  if (process().owner != 0 && process().owner != getpid()) {
    throw Error(
        "the xla device was started before this process was forked, and cannot be used in the "
        "child: use the 'spawn' start method (torch.multiprocessing.set_start_method('spawn')), "
        "or touch xla tensors only in the parent");
  }
}

std::unique_ptr<Client> start() {
  std::string device = env::string("PJRT_DEVICE");
  if (device == "NULL") {
    return make_null_client();
  }
  return std::make_unique<PluginClient>(load_plugin(device), device);
}

}  // namespace

Client& client() {
  Process& p = process();
  Client* running = p.client.load(std::memory_order_acquire);
  if (running == nullptr) {
    std::lock_guard<std::mutex> lock(p.mutex);
    running = p.client.load(std::memory_order_acquire);
    if (running == nullptr) {
      // Never destroyed: buffers of static objects may outlive every order of destruction.
      running = start().release();
      p.owner = getpid();
      p.client.store(running, std::memory_order_release);
    }
  }
  refuse_forked_child();
  return *running;
}

bool client_started() { return process().client.load(std::memory_order_acquire) != nullptr; }

int device_count_hint() {
  if (client_started() || env::string("PJRT_DEVICE") != "CPU") {
    return client().device_count();
  }
  return static_cast<int>(env::integer("CPU_NUM_DEVICES"));
}

}  // namespace torch_xla::pjrt
