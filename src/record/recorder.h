// The one boxed kernel behind every operator on the xla device: torch op in, recorded node out.
// Any thread; no lock is held while PyTorch or Python code runs.
#pragma once

#include "record/op_info.h"

#include <ATen/core/boxing/KernelFunction.h>

#include <atomic>
#include <span>

namespace torch_xla {

// The arguments of a call: kept by the caller, who may only lend their tensors (record/unboxed.h).
// So they are not moved from, and an xla tensor among them is not replaced.
using Arguments = std::span<c10::IValue>;
// What a call returns, without those returns that are one of its arguments.
using Returns = c10::SmallVector<c10::IValue, 2>;

void record_op(OpInfo& info, Arguments arguments, Returns& fresh);
// `on_host`: what runs_on_host() said of the call (record/eager_call.h).
void record_op(OpInfo& info, Arguments arguments, Returns& fresh, bool on_host);
// Of a boxed call: arguments on the stack become returns.
void record_boxed(OpInfo& info, torch::jit::Stack* stack);

// An operator that the recorder is registered for by name; its info is worked out when first
// called.
class RecordedOperator {
 public:
  explicit RecordedOperator(const c10::OperatorHandle& op) : op_(op) {}
  OpInfo& info() {
    OpInfo* known = info_.load(std::memory_order_acquire);
    if (known == nullptr) {
      info_.store(known = &op_info(op_), std::memory_order_release);
    }
    return *known;
  }

 private:
  c10::OperatorHandle op_;
  std::atomic<OpInfo*> info_{nullptr};
};

// Kernel objects: of one such operator...
class RecordKernel final : public c10::OperatorKernel {
 public:
  explicit RecordKernel(const c10::OperatorHandle& op) : op_(op) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    record_boxed(op_.info(), stack);
  }

 private:
  RecordedOperator op_;
};

// ...or the backend's fallback.
void record_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace torch_xla
