// Of plain_shapes.h: operators that make tensors of numbers alone.
#pragma once

#include "record/meta.h"

namespace torch_xla::plain {

// Behind the arguments that are named here come dtype, layout, device and pinned memory.
std::optional<IValues> range(const IValues& arguments);        // end; start, end, perhaps a step
std::optional<IValues> spaced(const IValues& arguments);       // start, end, steps, perhaps a base
std::optional<IValues> identity(const IValues& arguments);     // n, perhaps m
std::optional<IValues> permutation(const IValues& arguments);  // n, perhaps a generator
std::optional<IValues> lower_triangle(const IValues& arguments);  // rows, columns, offset
std::optional<IValues> upper_triangle(const IValues& arguments);  // the same

std::optional<IValues> range_into(const IValues& arguments);  // start, end, step, a tensor to write
}  // namespace torch_xla::plain
