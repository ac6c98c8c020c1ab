// Errors of the core. The binding turns Error into a Python RuntimeError.
#pragma once

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
// once bound, else stderr).
void warn(const std::string& message);
using WarningHandler = void (*)(const std::string&);
void set_warning_handler(WarningHandler handler);

}  // namespace torch_xla
