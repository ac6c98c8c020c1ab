// One call of an operator, taken apart: what identifies its plan (`key`), and what belongs to this
// call alone (tensors, numbers). Lives on the recorder's stack.
#pragma once

#include "record/moving.h"
#include "record/op_info.h"
#include "trace/tensor.h"

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

namespace torch_xla {

struct Call {
  c10::SmallVector<int64_t, 96> key;
  uint64_t hash = 0;
  c10::SmallVector<c10::TensorImpl*, 8>
      tensors;  // xla tensors, in argument order; computed numbers
  c10::SmallVector<Number, 2> numbers;
  // Of these, those that the trace around computes. Their values follow the other tensors.
  c10::SmallVector<size_t, 1> computed;
  std::optional<MovingNumbers> moving;
  std::optional<at::Generator> generator;
  int device = -1;  // of the tensors, or of a device argument; the current one if neither
};

// Reads `arguments` (those of info.op). Replaces CPU index tensors on the stack by uploaded ones.
// Throws PyTorch's error when tensors are on different devices.
Call read_call(const OpInfo& info, c10::IValue* arguments, size_t count);

bool is_scalar_argument(const c10::Argument& argument);  // Scalar, Scalar?
bool is_cpu_scalar(const at::Tensor& tensor);
Number number_of(const c10::Scalar& scalar);
// Of a tensor of the host, read below `item`, which PyTorch replaces while it decomposes an export.
Number number_of(const at::Tensor& scalar);
int current_device();
// Of the first xla tensor, else of a device argument, else the current one.
int device_of_call(c10::ArrayRef<c10::IValue> arguments);
void set_current_device(int device);

}  // namespace torch_xla
