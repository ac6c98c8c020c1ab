// Images as rows, each the channels of a pixel. Where channels lie last in memory, images are these
// rows already; in PyTorch's order of dimensions they would be turned to be read. Stateless.
#pragma once

#include "lower/context.h"

namespace torch_xla {

// Of an image [N, C, spatial...] with more than one pixel.
bool has_channels_last(Ints strides);
// Of argument `i`.
bool has_channels_last(LowerContext& c, size_t i);

// [N, C, spatial...] -> [N, spatial..., C], and back.
Val with_channels_last(Builder& b, Val image);
Val with_channels_second(Builder& b, Val image);
// [N, C, spatial...] -> [N * pixels, C], and back.
Val rows_of_pixels(Builder& b, Val image);
Val image_of_rows(Builder& b, Val rows, Ints sizes);

// Turns argument `i`, which is `x`, so that its dimensions are in the order of memory; returns
// which ones of it `dims` are. Nothing is done if what a reduction over `dims` leaves would be
// turned.
Dims turn_to_memory(LowerContext& c, size_t i, Val& x, Dims dims);

}  // namespace torch_xla
