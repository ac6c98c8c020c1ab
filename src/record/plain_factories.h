// Of plain_shapes.h: operators that make tensors of numbers alone.
#pragma once

#include "record/meta.h"

namespace torch_xla::plain {

std::optional<IValues> range(const IValues& arguments);        // start, end, step, dtype, …
std::optional<IValues> identity(const IValues& arguments);     // n, perhaps m, dtype, …
std::optional<IValues> permutation(const IValues& arguments);  // n, perhaps a generator, dtype, …

}  // namespace torch_xla::plain
