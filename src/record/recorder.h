// The one boxed kernel behind every operator on the xla device: torch op in, recorded node out.
// Any thread; no lock is held while PyTorch or Python code runs.
#pragma once

#include "record/op_info.h"

#include <ATen/core/boxing/KernelFunction.h>

namespace torch_xla {

void record_op(OpInfo& info, torch::jit::Stack* stack);

// Kernel objects: registered by name with the operator's info at hand...
class RecordKernel final : public c10::OperatorKernel {
 public:
  explicit RecordKernel(const c10::OperatorHandle& op) : op_(op) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (info_ == nullptr) {
      info_ = &op_info(op_);
    }
    record_op(*info_, stack);
  }

 private:
  c10::OperatorHandle op_;
  std::atomic<OpInfo*> info_{nullptr};
};

// ...or the backend's fallback.
void record_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace torch_xla
