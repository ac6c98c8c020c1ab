#include "pjrt/processes.h"

#include "base/error.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {

namespace {

Processes& instance() {
  static auto* processes = new Processes;
  return *processes;
}

}  // namespace

void set_processes(Processes processes) {
  if (client_started()) {
    throw Error(
        "the processes must be known before the client starts: call init_processes before the "
        "first use of the device");
  }
  if (processes.index < 0 || processes.index >= processes.count) {
    throw Error("process " + std::to_string(processes.index) + " of " +
                std::to_string(processes.count) + " does not exist: they are numbered from 0");
  }
  instance() = std::move(processes);
}

const Processes& processes() { return instance(); }

}  // namespace torch_xla::pjrt
