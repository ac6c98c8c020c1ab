// What becomes of a value that is written where one is.
#pragma once

#include "ir/types.h"

namespace torch_xla {

// How a scatter combines what is there with an update.
enum class Combine { Replace, Add, Multiply, Maximum, Minimum };

// Whether a kernel of ours combines numbers of the type (host_ops/write_at.h).
inline bool is_written_by_host(Combine combine, DType dtype) {
  return combine == Combine::Replace ? c10::elementSize(dtype) <= 8
                                     : dtype == DType::Float || dtype == DType::Double ||
                                           dtype == DType::Int || dtype == DType::Long;
}

}  // namespace torch_xla
