// Slices given by Python integers (select_backward, slice_scatter, ...): where they begin and end
// are numbers of the node, so that an index that moves keeps the plan (lower/table.h, kSlice).
#pragma once

#include "record/op_info.h"

#include <ATen/core/ivalue.h>

#include <optional>

namespace torch_xla {

// In a dimension counted from 0.
struct SliceRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Nothing for other operators, and for what PyTorch will refuse.
std::optional<SliceRange> slice_range(const OpInfo& info, const c10::IValue* arguments);

}  // namespace torch_xla
