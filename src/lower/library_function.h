// Functions of elements for which PyTorch has vectors, and which XLA-CPU has the C library compute,
// number by number, or computes by long formulas.
#pragma once

#include "lower/table.h"

#include <string_view>

namespace torch_xla {

// `op`: "aten::sin", with or without its overload. `dtype`: its result's.
bool is_library_function(std::string_view op, DType dtype);

// Those of many numbers are calls of PyTorch's kernels.
template <LowerFunction own>
void or_library(LowerContext& c) {
  is_library_function(c.signature().op, c.output(0).dtype) ? large_on_host<own>(c) : own(c);
}

}  // namespace torch_xla
