// Max and average pooling over windows.
#include "lower/pool.h"

#include "lower/index.h"

#include <limits>

namespace torch_xla {

Region pick_largest(DType dtype) {
  return [dtype](Builder& b, const Vals& args) -> Vals {
    Val x = args[0], at_x = args[1], y = args[2], at_y = args[3];
    Val take_y = b.logical_or(b.compare("GT", y, x),
                              b.logical_and(b.compare("EQ", y, x), b.compare("LT", at_y, at_x)));
    if (c10::isFloatingType(dtype)) {
      Val x_nan = b.compare("NE", x, x), y_nan = b.compare("NE", y, y);
      Val later = b.logical_or(b.logical_not(x_nan), b.compare("GT", at_y, at_x));
      take_y = b.logical_or(take_y, b.logical_and(y_nan, later));
    }
    return {b.select(take_y, y, x), b.select(take_y, at_y, at_x)};
  };
}

Val plane_positions(Builder& b, Val x, Ints spatial) {
  Val positions = b.reshape(b.iota({DType::Int, {product(spatial)}}, 0), spatial);
  return b.expand(positions, x.dims());
}

Val no_position(Builder& b) {
  return b.constant(Number::of(int64_t{std::numeric_limits<int32_t>::max()}), DType::Int);
}

Val scatter_to_positions(LowerContext& c, Val grad, Val positions, Ints sizes, int64_t spatial) {
  Builder& b = c.b;
  int64_t plane = product(sizes.slice(sizes.size() - spatial));
  int64_t planes = product(sizes) / std::max<int64_t>(plane, 1);
  int64_t pooled = grad.numel() / std::max<int64_t>(planes, 1);
  Val zeros = b.full(0.0, {grad.dtype(), {planes, plane}});
  Val result = scatter_along(c, zeros, 1, b.reshape(positions, {planes, pooled}),
                             b.reshape(grad, {planes, pooled}), Combine::Add);
  return b.reshape(result, sizes);
}

namespace {

struct Pooling {
  Dims size, stride, padding, dilation;  // per spatial dimension

  int64_t rank() const { return static_cast<int64_t>(size.size()); }
};

Dims per_dimension(Dims values, int64_t rank, const Dims& if_empty) {
  if (values.empty()) {
    return if_empty;
  }
  if (values.size() == 1) {
    values.resize(rank, values[0]);
  }
  return values;
}

// Arguments from `i` on: kernel_size, stride, padding and, for max pooling, dilation.
Pooling pooling(LowerContext& c, size_t i, int64_t rank, bool dilates) {
  Pooling p;
  p.size = per_dimension(c.integers(i), rank, Dims(rank, 1));
  p.stride = per_dimension(c.integers(i + 1), rank, p.size);
  p.padding = per_dimension(c.integers(i + 2), rank, Dims(rank, 0));
  p.dilation = dilates ? per_dimension(c.integers(i + 3), rank, Dims(rank, 1)) : Dims(rank, 1);
  return p;
}

// The window over a tensor of sizes `in` that yields the sizes `out`: ceil_mode reads past the
// padding of the last window.
stablehlo::WindowDims window_of(const Pooling& p, Ints in, Ints out) {
  int64_t batch = static_cast<int64_t>(in.size()) - p.rank();
  stablehlo::WindowDims w;
  w.size = w.stride = w.window_dilation = Dims(in.size(), 1);
  w.padding_low = w.padding_high = Dims(in.size(), 0);
  for (int64_t d = 0; d < p.rank(); ++d) {
    int64_t at = batch + d;
    int64_t end = (out[at] - 1) * p.stride[d] + p.dilation[d] * (p.size[d] - 1) + 1;
    w.size[at] = p.size[d];
    w.stride[at] = p.stride[d];
    w.window_dilation[at] = p.dilation[d];
    w.padding_low[at] = p.padding[d];
    w.padding_high[at] = std::max(p.padding[d], end - in[at] - p.padding[d]);
  }
  return w;
}

// ---- max pooling ------------------------------------------------------------------------------

// max_pool2d_with_indices, max_pool3d_with_indices(self, kernel_size, stride, padding, dilation,
//                                                  ceil_mode)
template <int64_t spatial>
void lower_max_pool(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Pooling p = pooling(c, 1, spatial, true);
  auto window = window_of(p, x.dims(), c.output(0).sizes);
  Val positions = plane_positions(b, x, Ints(x.dims()).slice(x.rank() - spatial));
  Vals results = b.reduce_window({x, positions}, {b.lowest(x.dtype()), no_position(b)}, window,
                                 pick_largest(x.dtype()));
  c.set(0, results[0]);
  c.set(1, b.convert(results[1], DType::Long));
}

// max_pool2d_with_indices_backward and 3d(grad_output, self, kernel_size, stride, padding,
//                                         dilation, ceil_mode, indices)
template <int64_t spatial>
void lower_max_pool_backward(LowerContext& c) {
  DType compute = compute_dtype(c.output(0).dtype);
  c.set(0,
        scatter_to_positions(c, c.tensor_as(0, compute), c.tensor(7), c.output(0).sizes, spatial));
}

// ---- average pooling ----------------------------------------------------------------------------

// How many elements each window averages over: a product of one factor per dimension.
Expr divisors(LowerContext& c, const Pooling& p, DType compute, Ints in, Ints out,
              bool count_padding, int64_t divisor_override) {
  Builder& b = c.b;
  if (divisor_override != 0) {
    return {b, b.constant(static_cast<double>(divisor_override), compute)};
  }
  int64_t batch = static_cast<int64_t>(in.size()) - p.rank();
  std::optional<Expr> result;
  for (int64_t d = 0; d < p.rank(); ++d) {
    std::vector<int64_t> counts;
    for (int64_t o = 0; o < out[batch + d]; ++o) {
      int64_t start = o * p.stride[d] - p.padding[d];
      int64_t end = std::min(start + p.size[d], in[batch + d] + p.padding[d]);
      counts.push_back(count_padding ? end - start
                                     : std::min(end, in[batch + d]) - std::max<int64_t>(start, 0));
    }
    Expr factor(b, b.convert(b.ints(counts), compute));
    factor = spread(factor, out, {batch + d});
    result = result ? *result * factor : factor;
  }
  return *result;
}

// Arguments of the averaging itself stand from `i` on: ceil_mode, count_include_pad,
// divisor_override.
Expr divisors(LowerContext& c, size_t i, const Pooling& p, DType compute, Ints in, Ints out) {
  return divisors(c, p, compute, in, out, c.flag(i + 1), c.integer_or(i + 2, 0));
}

// avg_pool2d, avg_pool3d(self, kernel_size, stride, padding, ceil_mode, count_include_pad,
//                        divisor_override)
template <int64_t spatial>
void lower_avg_pool(LowerContext& c) {
  Builder& b = c.b;
  DType compute = compute_dtype(c.output(0).dtype);
  Val x = c.tensor_as(0, compute);
  const Dims& out = c.output(0).sizes;
  Pooling p = pooling(c, 1, spatial, false);
  Val total = b.reduce_window(x, b.scalar_like(x, 0), window_of(p, x.dims(), out), "add");
  finish(c, Expr(b, total) / divisors(c, 4, p, compute, x.dims(), out));
}

// avg_pool2d_backward, avg_pool3d_backward(grad_output, self, kernel_size, stride, padding,
//                                          ceil_mode, count_include_pad, divisor_override): each
// element gets the sum of the windows it is in, a window sum over the gradient spaced by the stride
template <int64_t spatial>
void lower_avg_pool_backward(LowerContext& c) {
  Builder& b = c.b;
  DType compute = compute_dtype(c.output(0).dtype);
  Expr grad(b, c.tensor_as(0, compute));
  Dims out = grad.value().dims(), in = c.output(0).sizes;
  Pooling p = pooling(c, 2, spatial, false);
  Val shared = (grad / divisors(c, 5, p, compute, in, out)).value();

  Dims low(in.size(), 0), high(in.size(), 0), interior(in.size(), 0);
  stablehlo::WindowDims window;
  window.size = Dims(in.size(), 1);
  for (int64_t d = 0; d < spatial; ++d) {
    int64_t at = static_cast<int64_t>(in.size()) - spatial + d;
    int64_t spaced = (out[at] - 1) * p.stride[d] + 1;
    interior[at] = p.stride[d] - 1;
    low[at] = p.size[d] - 1 - p.padding[d];
    high[at] = in[at] + p.size[d] - 1 - low[at] - spaced;
    window.size[at] = p.size[d];
  }
  Val zero = b.scalar_like(shared, 0);
  finish(c, {b, b.reduce_window(b.pad(shared, zero, low, high, interior), zero, window, "add")});
}

}  // namespace

void register_pool(LowerTable& table) {
  // XLA-CPU has no vectors for windows.
  auto set = [&](const char* name, LowerFunction function) {
    table[std::string("aten::") + name] = {function};
  };
  set("max_pool2d_with_indices", large_floats_on_host<lower_max_pool<2>>);
  set("max_pool3d_with_indices", large_floats_on_host<lower_max_pool<3>>);
  set("max_pool2d_with_indices_backward", large_floats_on_host<lower_max_pool_backward<2>>);
  set("max_pool3d_with_indices_backward", large_floats_on_host<lower_max_pool_backward<3>>);
  set("avg_pool2d", large_floats_on_host<lower_avg_pool<2>>);
  set("avg_pool3d", large_floats_on_host<lower_avg_pool<3>>);
  set("avg_pool2d_backward", large_floats_on_host<lower_avg_pool_backward<2>>);
  set("avg_pool3d_backward", large_floats_on_host<lower_avg_pool_backward<3>>);
  register_adaptive_pool(table);
  register_resize(table);
}

}  // namespace torch_xla
