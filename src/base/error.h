// Errors of the core. The binding turns Error into a Python RuntimeError.
#pragma once

#include "base/trace_lock.h"

#include <stdexcept>
#include <string>

namespace torch_xla {

// Message convention: what failed, the received value, what to do instead.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Device memory exhausted or an allocation too large.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

// Prints "torch_xla: <message>" as a warning through the front end's channel (Python's warnings
// once bound, else stderr), which may take the interpreter's lock.
void warn(const std::string& message) EXCLUDES(trace_mutex);
// While it lives, warnings of its thread are kept for issue_deferred_warnings(): the front end's
// channel may take locks that a thread of ours must not wait for.
class DeferWarnings {
 public:
  DeferWarnings();
  ~DeferWarnings();
  DeferWarnings(const DeferWarnings&) = delete;
  DeferWarnings& operator=(const DeferWarnings&) = delete;

 private:
  bool outer_;
};
// On a thread of the user's, without locks. Costs a relaxed load when there are none.
void issue_deferred_warnings() EXCLUDES(trace_mutex);

using WarningHandler = void (*)(const std::string&);
void set_warning_handler(WarningHandler handler);

}  // namespace torch_xla
