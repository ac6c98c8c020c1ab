// Reading and writing strided windows of a frame as StableHLO. One plan serves both: cut the flat
// frame into mixed-radix digits such that every dimension of the window is a (stepped) range of
// one digit; what no digits express becomes an index gather or scatter.
#pragma once

#include "stablehlo/builder.h"

namespace torch_xla {

// The window's elements, dense, in `window.sizes`.
stablehlo::Val read_window(stablehlo::Builder& b, stablehlo::Val frame, const Window& window);

// The frame with the window's elements replaced by `update` (of window.sizes, any dtype). The
// result has type `result`, which may be larger than the frame when the window reaches beyond it.
stablehlo::Val write_window(stablehlo::Builder& b, stablehlo::Val frame, const Window& window,
                            stablehlo::Val update, const TensorType& result);

// The same bytes as `result`, which has as many or more bytes (zeros are appended) or fewer.
stablehlo::Val reinterpret_frame(stablehlo::Builder& b, stablehlo::Val frame,
                                 const TensorType& result);

}  // namespace torch_xla
