// One operator on PyTorch's CPU kernels, in the memory of its xla arguments. Any thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_xla::eager {

// What matters here of an operator's schema.
struct HostOperator {
  c10::OperatorHandle op;
  std::vector<size_t> written;    // arguments that it changes
  std::vector<int> return_alias;  // per return: the argument that it is, or -1
  bool takes_cpu_tensors = false;
};

// Replaces the arguments on the stack by the returns. `device`: of the results, when no argument
// says it.
void call_on_host(const HostOperator& op, torch::jit::Stack* stack, int device);

}  // namespace torch_xla::eager
