// Of plain_shapes.h: convolutions, and what else looks at pixels and their
// neighbours.
#pragma once

#include "record/meta.h"

namespace torch_xla::plain {

// input, weight, bias, stride, padding, dilation, transposed, output_padding,
// groups
std::optional<IValues> convolution(const IValues& arguments);
// grad_output, input, weight, bias_sizes, …, output_mask
std::optional<IValues> convolution_backward(const IValues& arguments);
// input, grid, …
std::optional<IValues> grid_sampler(const IValues& arguments);
// self, output_size
std::optional<IValues> adaptive_pool(const IValues& arguments);
// gradient, self
std::optional<IValues> adaptive_pool_backward(const IValues& arguments);
// self, padding: left, right, top, bottom
std::optional<IValues> reflected(const IValues& arguments);

}  // namespace torch_xla::plain
