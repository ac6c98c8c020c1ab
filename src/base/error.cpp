#include "base/error.h"

#include "base/mutex.h"

#include <atomic>
#include <cstdio>
#include <vector>

namespace torch_xla {

namespace {
std::atomic<WarningHandler> warning_handler{nullptr};

thread_local bool deferring = false;
std::atomic<bool> any_deferred{false};
Mutex deferred_mutex;

std::vector<std::string>& deferred() REQUIRES(deferred_mutex) {
  static auto* messages = new std::vector<std::string>;
  return *messages;
}
}  // namespace

DeferWarnings::DeferWarnings() : outer_(deferring) { deferring = true; }
DeferWarnings::~DeferWarnings() { deferring = outer_; }

void issue_deferred_warnings() {
  if (!any_deferred.load(std::memory_order_relaxed) || deferring) {
    return;
  }
  std::vector<std::string> messages;
  {
    MutexLock lock(deferred_mutex);
    messages.swap(deferred());
    any_deferred = false;
  }
  for (const std::string& message : messages) {
    warn(message);
  }
}

void set_warning_handler(WarningHandler handler) { warning_handler = handler; }

void warn(const std::string& message) {
  if (deferring) {
    MutexLock lock(deferred_mutex);
    deferred().push_back(message);
    any_deferred = true;
    return;
  }
  WarningHandler handler = warning_handler;
  if (handler != nullptr) {
    handler(message);
  } else {
    std::fprintf(stderr, "torch_xla: %s\n", message.c_str());
  }
}

}  // namespace torch_xla
