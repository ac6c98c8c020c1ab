#include "base/error.h"

#include <atomic>
#include <cstdio>

namespace torch_xla {

namespace {
std::atomic<WarningHandler> warning_handler{nullptr};
}  // namespace

void set_warning_handler(WarningHandler handler) { warning_handler = handler; }

void warn(const std::string& message) {
  WarningHandler handler = warning_handler;
  if (handler != nullptr) {
    handler(message);
  } else {
    std::fprintf(stderr, "torch_xla: %s\n", message.c_str());
  }
}

}  // namespace torch_xla
