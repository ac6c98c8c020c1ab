// One operator on PyTorch's CPU kernels, in the memory of its xla arguments. Any thread.
#pragma once

#include "host_ops/widened.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

namespace torch_xla::eager {

// What matters here of an operator's schema.
struct HostOperator {
  c10::OperatorHandle op;
  std::vector<size_t> written;    // arguments that it changes
  std::vector<int> return_alias;  // per return: the argument that it is, or -1
  bool takes_cpu_tensors = false;
  const WidenedKernel* widened = nullptr;
};

// Adds what the call returns to `fresh`, but for the returns that are arguments. `device`: of the
// results, when no argument says it.
void call_on_host(const HostOperator& op, c10::ArrayRef<c10::IValue> arguments,
                  c10::SmallVector<c10::IValue, 2>& fresh, int device);

}  // namespace torch_xla::eager
