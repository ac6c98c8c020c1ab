// Reading and writing strided windows of a frame as StableHLO. One plan serves both: cut the flat
// frame into mixed-radix digits such that every dimension of the window is a (stepped) range of
// one digit. Where only the program knows where a window begins, or where it crosses the ends of
// rows, the box of digits that holds it is cut out first: a dynamic slice. What no digits express,
// windows that overlap with themselves, becomes an index gather or scatter.
#pragma once

#include "stablehlo/builder.h"

namespace torch_xla {

// A window, and where it begins: at its offset, or at `start` (0-d i64) if that is given.
struct Place {
  Window window;
  stablehlo::Val start;
};

// The window's elements, dense, in `window.sizes`.
stablehlo::Val read_window(stablehlo::Builder& b, stablehlo::Val frame, const Place& place);

// The frame with the window's elements replaced by `update` (of window.sizes, any dtype). The
// result has type `result`, which may be larger than the frame when the window reaches beyond it.
stablehlo::Val write_window(stablehlo::Builder& b, stablehlo::Val frame, const Place& place,
                            stablehlo::Val update, const TensorType& result);

// The same bytes as `result`, which has as many or more bytes (zeros are appended) or fewer.
stablehlo::Val reinterpret_frame(stablehlo::Builder& b, stablehlo::Val frame,
                                 const TensorType& result);

}  // namespace torch_xla
