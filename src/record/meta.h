// Running operators on tensors without data, to learn sizes and raise PyTorch's errors.
#pragma once

#include "record/op_info.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace torch_xla {

using IValues = std::vector<c10::IValue>;

// The arguments with xla tensors and devices replaced by meta ones.
IValues to_meta(c10::ArrayRef<c10::IValue> arguments);

// Arguments for info.functional, from those of info.op.
IValues functional_arguments(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);

// Runs PyTorch's meta kernel, which is Python's as a rule. nullopt when there is none or its sizes
// depend on data; other errors are the user's and propagate.
std::optional<IValues> run_meta(const c10::OperatorHandle& op, IValues meta_arguments);

// Tensors of a stack of returns, lists flattened; undefined ones included.
std::vector<at::Tensor> flatten_tensors(const IValues& values);

// Applies `change` to every tensor (and device) of a value, lists included.
c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& change,
                        c10::Device device);

}  // namespace torch_xla
