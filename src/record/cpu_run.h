// Runs of the CPU's kernel on tensors full of one value: what it returns, or why it refuses.
#pragma once

#include "record/meta.h"

#include <exception>
#include <functional>
#include <string>

namespace torch_xla {

struct CpuRun {
  std::optional<IValues> results;
  std::exception_ptr error;
  std::string message;
};

// A CPU tensor in place of one of the device.
using Fill = std::function<at::Tensor(const at::Tensor&)>;

// Dense, with its dimensions in the tensor's order, which results take over.
at::Tensor filled(const at::Tensor& tensor, int value);
// Laid out as the tensor is, gaps and repetitions too.
at::Tensor laid_out(const at::Tensor& tensor, int value);
at::Tensor full_of_zeros(const at::Tensor& tensor);
at::Tensor full_of_ones(const at::Tensor& tensor);
at::Tensor emptied(const at::Tensor& tensor);

// Draws come from no generator of the user's. Any thread; throws interrupts only.
CpuRun run_on_cpu(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                  const Fill& fill);

// It refuses the call, not the values, if it says the same of zeros and of ones.
void rethrow_if_both_refuse(const CpuRun& of_zeros, const CpuRun& of_ones);

}  // namespace torch_xla
