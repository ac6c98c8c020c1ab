// Floats of 64 bits on platforms that have none: to PyTorch a tensor of float64 stays one, programs
// and buffers keep it in f32, and complex128 in complex64. Thread-safe.
#pragma once

#include "ir/types.h"

namespace torch_xla::pjrt {

// Whether the devices of the process's client know f64.
bool has_doubles();
void set_has_doubles(bool has);  // by the client, as it starts

// The dtype that devices of the process's client keep values of `dtype` in. Starts the client, for
// the two dtypes that it depends on.
DType device_dtype(DType dtype);
// The dtype that they are kept in where there are no doubles.
DType without_doubles(DType dtype);

}  // namespace torch_xla::pjrt
