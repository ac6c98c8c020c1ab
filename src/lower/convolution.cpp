// Convolution and its gradients. Where host memory is device memory ATen's kernels are called from
// the program: XLA's CPU convolutions were measured up to 30 times slower (docs/architecture.md).
// But for kernels of one pixel: these are matrix products, which XLA runs as fast as ATen's
// kernels. Elsewhere all of them are stablehlo.convolution: an input gradient is a convolution of
// the dilated gradient with the flipped kernel, a weight gradient one that contracts the batch.
#include "lower/activation.h"
#include "lower/graph_lowering.h"
#include "lower/pixel_rows.h"
#include "lower/reduction.h"

#include <algorithm>
#include <optional>

namespace torch_xla {
namespace {

// Per spatial dimension; images are [N, C, spatial...], kernels [out, in / groups, spatial...].
struct Geometry {
  Dims stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;

  int64_t rank() const { return static_cast<int64_t>(stride.size()); }
};

Dims per_dimension(Dims values, int64_t rank) {
  if (values.size() == 1) {
    values.resize(rank, values[0]);
  }
  return values;
}

// Arguments from `i` on: stride, padding, dilation, transposed, output_padding, groups.
Geometry geometry(LowerContext& c, size_t i, int64_t rank) {
  return {per_dimension(c.integers(i), rank), per_dimension(c.integers(i + 1), rank),
          per_dimension(c.integers(i + 2), rank), c.integer(i + 5), c.flag(i + 3)};
}

// To an image of `spatial` sizes. Padding is the same on both sides (what libraries are fast for)
// unless the output padding of a transposed convolution adds columns that this one must not read.
Val convolve(Builder& b, Val input, Val kernel, const Geometry& g, Ints spatial) {
  stablehlo::ConvolutionDims dims;
  dims.stride = g.stride;
  dims.padding_low = g.padding;
  for (int64_t d = 0; d < g.rank(); ++d) {
    int64_t reach = g.dilation[d] * (kernel.dim(d + 2) - 1);
    int64_t last = (spatial[d] - 1) * g.stride[d] + reach + 1;  // end of the last window
    int64_t spare = input.dim(d + 2) + 2 * g.padding[d] - last;
    dims.padding_high.push_back(spare < g.stride[d] ? g.padding[d] : g.padding[d] - spare);
  }
  dims.lhs_dilation = Dims(g.rank(), 1);
  dims.rhs_dilation = g.dilation;
  dims.feature_groups = g.groups;
  return b.convolution(input, kernel, dims, input.dtype());
}

// [groups * i, o, ...] -> [i, groups * o, ...]: groups move from the first dimension to the second.
Val regroup(Builder& b, Val kernel, int64_t groups) {
  if (groups == 1) {
    return kernel;
  }
  Dims split = {groups, kernel.dim(0) / groups};
  Dims permutation = {1, 0};
  Dims merged = {kernel.dim(0) / groups, groups * kernel.dim(1)};
  for (int64_t d = 1; d < kernel.rank(); ++d) {
    split.push_back(kernel.dim(d));
    permutation.push_back(d + 1);
    if (d > 1) {
      merged.push_back(kernel.dim(d));
    }
  }
  return b.reshape(b.transpose(b.reshape(kernel, split), permutation), merged);
}

// The adjoint of convolve() in its input, whose spatial sizes are `spatial`.
Val convolve_transposed(Builder& b, Val image, Val kernel, const Geometry& g, Ints spatial) {
  stablehlo::ConvolutionDims dims;
  Dims kernel_spatial;
  for (int64_t d = 0; d < g.rank(); ++d) {
    int64_t reach = g.dilation[d] * (kernel.dim(d + 2) - 1);
    int64_t dilated = (image.dim(d + 2) - 1) * g.stride[d] + 1;
    dims.padding_low.push_back(reach - g.padding[d]);
    dims.padding_high.push_back(spatial[d] + g.padding[d] - dilated);
    kernel_spatial.push_back(d + 2);
  }
  dims.stride = Dims(g.rank(), 1);
  dims.lhs_dilation = g.stride;
  dims.rhs_dilation = g.dilation;
  dims.feature_groups = g.groups;
  dims.kernel_input = 0;
  dims.kernel_output = 1;
  Val flipped = b.reverse(regroup(b, kernel, g.groups), kernel_spatial);
  return b.convolution(image, flipped, dims, image.dtype());
}

// The gradient of convolve() in its kernel: a convolution whose batch is the input's channels and
// whose contracted features are the batch.
Val kernel_gradient(Builder& b, Val input, Val grad, const Geometry& g, Ints kernel_sizes) {
  stablehlo::ConvolutionDims dims;
  for (int64_t d = 0; d < g.rank(); ++d) {
    int64_t reach = g.dilation[d] * (kernel_sizes[d + 2] - 1);
    int64_t dilated = (grad.dim(d + 2) - 1) * g.stride[d] + 1;
    dims.padding_low.push_back(g.padding[d]);
    dims.padding_high.push_back(reach + dilated - input.dim(d + 2) - g.padding[d]);
  }
  dims.stride = g.dilation;
  dims.lhs_dilation = Dims(g.rank(), 1);
  dims.rhs_dilation = g.stride;
  dims.batch_groups = g.groups;
  dims.input_batch = 1;
  dims.input_feature = 0;
  dims.kernel_input = 0;
  dims.kernel_output = 1;
  dims.result_batch = 1;
  dims.result_feature = 0;
  return b.convolution(input, grad, dims, input.dtype());
}

// Kernels of one pixel, that move by g.stride: products of [out, in] with the pixels of each image,
// or, where channels lie last, with all pixels as rows.
class Pointwise {
 public:
  static bool applies(Val input, Val kernel, const Geometry& g) {
    auto all = [](Ints values, int64_t wanted) {
      return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == wanted; });
    };
    return (input.dtype() == DType::Float || input.dtype() == DType::Double) && g.groups == 1 &&
           !g.transposed && all(Ints(kernel.dims()).slice(2), 1) && all(g.padding, 0) &&
           input.dim(1) == kernel.dim(1);
  }

  Pointwise(Builder& b, const Geometry& g, Ints input, Val kernel, Ints output, bool channels_last)
      : b_(b),
        geometry_(g),
        input_(input.begin(), input.end()),
        output_(output.begin(), output.end()),
        in_(kernel.dim(1)),
        out_(kernel.dim(0)),
        images_(input[0]),
        pixels_(product(output.slice(2))),
        kernel_(b.reshape(kernel, {out_, in_})),
        by_rows_(channels_last || pixels_ == 1) {}

  Val result(Val input) const {
    if (by_rows_) {
      return image_of_rows(b_, dot(rows(input), kernel_, {{}, {}, {1}, {1}}), output_);
    }
    Val x = pixels(read(input, 2));
    if (image_by_image()) {
      return b_.reshape(dot(for_each_image(kernel_), x, {{0}, {0}, {2}, {1}}), output_);
    }
    Val product = dot(kernel_, x, {{}, {}, {1}, {1}});
    return b_.reshape(b_.transpose(product, {1, 0, 2}), output_);
  }

  // The product, which is computed in any case, and the gradient that is made of it.
  struct InputGradient {
    Val product, image;
  };
  InputGradient input_gradient(Val grad) const {
    Dims strided = input_;
    std::copy(output_.begin() + 2, output_.end(), strided.begin() + 2);
    if (by_rows_) {
      Val product = dot(rows_of_pixels(b_, grad), kernel_, {{}, {}, {1}, {0}});
      Val image = with_channels_last(b_, image_of_rows(b_, product, strided));
      return {product, with_channels_second(b_, spread(image, 1))};
    }
    Val g = pixels(grad);
    if (image_by_image()) {
      // XLA's fast products know no transposed left factor.
      Val turned = for_each_image(b_.transpose(kernel_, {1, 0}));
      Val product = dot(turned, g, {{0}, {0}, {2}, {1}});
      return {product, spread(b_.reshape(product, strided), 2)};
    }
    Val product = dot(g, kernel_, {{}, {}, {1}, {0}});
    return {product, spread(b_.reshape(b_.transpose(product, {0, 2, 1}), strided), 2)};
  }

  Val kernel_gradient(Val input, Val grad, Ints sizes) const {
    if (by_rows_) {
      return b_.reshape(dot(rows_of_pixels(b_, grad), rows(input), {{}, {}, {0}, {0}}), sizes);
    }
    Val g = pixels(grad), x = pixels(read(input, 2));
    if (image_by_image()) {
      Val each = dot(g, x, {{0}, {0}, {2}, {2}});
      return b_.reshape(b_.reduce(each, b_.scalar_like(each, 0), {0}, "add"), sizes);
    }
    return b_.reshape(dot(g, x, {{}, {}, {0, 2}, {0, 2}}), sizes);
  }

 private:
  // Otherwise images are turned such that all their pixels lie side by side: worth it where they
  // are smaller than as many kernels as there are images.
  bool image_by_image() const { return images_ == 1 || pixels_ * (in_ + out_) >= in_ * out_; }

  Val for_each_image(Val matrix) const {
    return b_.broadcast_in_dim(matrix, {images_, matrix.dim(0), matrix.dim(1)}, {1, 2});
  }

  Val dot(Val x, Val y, const stablehlo::DotDims& dims) const {
    return b_.dot_general(x, y, dims, x.dtype());
  }

  Val pixels(Val image) const { return b_.reshape(image, {images_, image.dim(1), pixels_}); }

  Val rows(Val input) const {
    return b_.reshape(read(with_channels_last(b_, input), 1), {images_ * pixels_, in_});
  }

  // The pixels of the input that the kernel meets. `first`: of the spatial dimensions.
  Val read(Val input, size_t first) const {
    if (input.numel() == images_ * in_ * pixels_) {
      return input;
    }
    Dims step(input_.size(), 1);
    std::copy(geometry_.stride.begin(), geometry_.stride.end(), step.begin() + first);
    return b_.slice(input, Dims(input_.size(), 0), input.dims(), step);
  }

  // The opposite: zeros in the places of the others.
  Val spread(Val image, size_t first) const {
    Dims none(input_.size(), 0), high = none, interior = none;
    for (size_t d = 0; d < geometry_.stride.size(); ++d) {
      interior[first + d] = geometry_.stride[d] - 1;
      high[first + d] = input_[d + 2] - (output_[d + 2] - 1) * geometry_.stride[d] - 1;
    }
    const bool all = Ints(high).equals(none) && Ints(interior).equals(none);
    return all ? image : b_.pad(image, b_.constant(0, image.dtype()), none, high, interior);
  }

  Builder& b_;
  const Geometry& geometry_;
  const Dims input_, output_;
  const int64_t in_, out_, images_, pixels_;
  const Val kernel_;
  const bool by_rows_;
};

bool runs_on_host(LowerContext& c, Val input) {
  return c.prefers_host() && c10::isFloatingType(input.dtype());
}

// Of no images, or of images without channels: PyTorch's result is empty, its gradients are zero.
bool is_empty(LowerContext& c, Val input) {
  if (input.numel() > 0) {
    return false;
  }
  for (size_t i = 0; i < c.output_count(); ++i) {
    if (c.output(i).defined) {
      c.set(i, c.b.full(0.0, {input.dtype(), c.output(i).sizes}));
    }
  }
  return true;
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void lower_convolution(LowerContext& c) {
  Builder& b = c.b;
  Val input = c.tensor(0), weight = c.tensor(1);
  Geometry g = geometry(c, 3, input.rank() - 2);
  const Dims& sizes = c.output(0).sizes;
  if (is_empty(c, input)) {
    return;
  }
  Val result;
  if (runs_on_host(c, input)) {
    if (!Pointwise::applies(input, weight, g)) {
      c.call_host();
      return;
    }
    const bool channels_last = has_channels_last(c.output(0).strides);
    result = Pointwise(b, g, input.dims(), weight, sizes, channels_last).result(input);
  } else {
    result = g.transposed ? convolve_transposed(b, input, weight, g, Ints(sizes).slice(2))
                          : convolve(b, input, weight, g, Ints(sizes).slice(2));
  }
  if (auto bias = c.maybe_tensor(2)) {
    result = b.add(result, b.broadcast_in_dim(*bias, sizes, {1}));
  }
  c.set(0, result);
}

// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
//                      transposed, output_padding, groups, output_mask)
void lower_convolution_backward(LowerContext& c) {
  Builder& b = c.b;
  Val grad = c.tensor(0), input = c.tensor(1), weight = c.tensor(2);
  Geometry g = geometry(c, 4, input.rank() - 2);
  if (is_empty(c, input)) {
    return;
  }
  std::optional<Pointwise> pointwise;
  if (runs_on_host(c, input)) {
    if (!Pointwise::applies(input, weight, g)) {
      c.call_host();
      return;
    }
    pointwise.emplace(b, g, input.dims(), weight, grad.dims(), has_channels_last(c, 1));
  }
  Val of_input;  // reads the kernel, whose update it has to come before (late_reads.h)
  if (c.output(0).defined && pointwise) {
    const auto [product, image] = pointwise->input_gradient(grad);
    of_input = product;
    c.set(0, image);
  } else if (c.output(0).defined) {
    Ints spatial = Ints(input.dims()).slice(2);
    c.set(0, g.transposed ? convolve(b, grad, weight, g, spatial)
                          : convolve_transposed(b, grad, weight, g, spatial));
  }
  if (c.output(1).defined && pointwise) {
    const Val gradient = pointwise->kernel_gradient(input, grad, weight.dims());
    c.set(1, of_input ? b.behind(kBehindTarget, gradient, {of_input}) : gradient);
  } else if (c.output(1).defined) {
    c.set(1, g.transposed ? kernel_gradient(b, grad, input, g, weight.dims())
                          : kernel_gradient(b, input, grad, g, weight.dims()));
  }
  if (c.output(2).defined) {
    Dims pixels = {0};
    for (int64_t d = 2; d < grad.rank(); ++d) {
      pixels.push_back(d);
    }
    pixels = turn_to_memory(c, 0, grad, pixels);
    Val wide = b.convert(grad, compute_dtype(grad.dtype()));
    c.set(2, sum_of_narrow(c, grad, Reduction(wide, pixels)));
  }
}

}  // namespace

void register_convolution(LowerTable& table) {
  table["aten::convolution"] = {lower_convolution};
  table["aten::convolution_backward"] = {lower_convolution_backward};
}

}  // namespace torch_xla
