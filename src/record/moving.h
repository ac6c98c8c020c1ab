// Numbers among an operator's arguments that may move from call to call while no size does: where
// slices begin and end, shifts, diagonals, ranks, ranges to draw from or to count, exponents. They
// are numbers of the node, so that one that moves keeps the plan, and in time is an input of the
// program. Others given as integers are part of the signature.
#pragma once

#include "ir/types.h"

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <string>

namespace torch_xla {

struct OpInfo;

// Of one call.
struct MovingNumbers {
  struct One {
    size_t argument = 0;
    Number value;
  };
  c10::SmallVector<One, 2> numbers;    // in the order of arguments; elements of a list are adjacent
  c10::SmallVector<int64_t, 1> fixed;  // what the results' sizes depend on
};

// Which arguments of an operator say what slice of a dimension it is about.
struct SliceArguments {
  size_t sized = 0;  // a tensor with that dimension, or its sizes
  size_t dim = 0;
  size_t begin = 0;  // an index, or the start
  // With a start; 0 where there is no such argument.
  size_t end = 0;
  size_t length = 0;
  size_t step = 0;
};
SliceArguments slice_arguments(const c10::FunctionSchema& schema);

// Writes what moves to `moving`, or says no: for what PyTorch will refuse, and where other values
// are another computation.
using MovingRule = bool (*)(const OpInfo& info, const c10::IValue* arguments,
                            MovingNumbers& moving);

// By the name of the functional operator; null for most. `is_slice`: lower/table.h, kSlice.
MovingRule find_moving_rule(const std::string& functional_name, bool is_slice);

}  // namespace torch_xla
