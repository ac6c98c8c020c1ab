// One operator on PyTorch's CPU kernels, in the memory of its xla arguments. Any thread.
#pragma once

#include "eager/host_access.h"
#include "host_ops/faster_kernel.h"
#include "metrics/metrics.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

namespace torch_xla::eager {

// What matters here of an operator's schema.
struct HostOperator {
  c10::OperatorHandle op;
  std::vector<size_t> written;    // arguments that it changes
  std::vector<int> return_alias;  // per return: the argument that it is, or -1
  bool takes_cpu_tensors = false;
  const FasterKernel* faster = nullptr;

  bool writes(size_t argument) const {
    return std::find(written.begin(), written.end(), argument) != written.end();
  }
};

// The tensors of one call.
class HostTensors {
 public:
  // `device`: of the results, when no argument says it.
  HostTensors(const HostOperator& op, int device) : op_(op), device_(device) {}

  // First all arguments are added in turn...
  void add(const at::Tensor& tensor, bool written);
  void use_device(const c10::Device& device);
  void open() { access_.open(); }
  // ...then they are seen as the kernel's, in the same order.
  const at::Tensor& to_host(const at::Tensor& tensor) {
    return is_xla(tensor) ? access_.view(viewed_++) : tensor;
  }
  at::Tensor& next_to_host() { return access_.view(viewed_++); }  // of one that is no CPU tensor

  // After the call.
  void update_written() { access_.update_written(); }
  at::Tensor adopt(at::Tensor result) {
    return result.defined() ? access_.adopt(std::move(result), device_) : result;
  }

 private:
  void refuse_mixed(const c10::Device& other) const;

  const HostOperator& op_;
  int device_;
  bool has_tensor_ = false;
  size_t viewed_ = 0;  // how many of the tensors that were added
  HostAccess access_;
};

// Below every kernel that looks at the kind of a tensor: autograd has had its turn, and the CPU's
// autocast is not meant for xla tensors.
struct KernelDispatch {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::autocast_dispatch_keyset};
};

metrics::Metric& call_time();

// Adds what the call returns to `fresh`, but for the returns that are arguments. `device`: of the
// results, when no argument says it.
void call_on_host(const HostOperator& op, c10::ArrayRef<c10::IValue> arguments,
                  c10::SmallVector<c10::IValue, 2>& fresh, int device);

}  // namespace torch_xla::eager
