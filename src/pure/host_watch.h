// Tells constants from closed-over tensors among the CPU tensors that a trace meets: what PyTorch's
// operators make during the trace, from nothing but numbers and other such tensors, is a constant.
#pragma once

#include <ATen/record_function.h>

namespace torch_xla {

// Watches the operators that run in the calling thread's scope, on autograd's threads too. The
// scope must be active before and after.
class HostWatch {
 public:
  HostWatch();
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace torch_xla
