// Batch, layer, group and RMS norm, forward and backward. Variances are those of centred values
// (two passes): E[x^2] - E[x]^2 loses the digits PyTorch keeps.
#include "lower/activation.h"
#include "lower/graph_lowering.h"
#include "lower/pixel_rows.h"
#include "lower/reduction.h"

#include <algorithm>
#include <limits>

namespace torch_xla {
namespace {

// The float type statistics are computed in.
DType statistics_dtype(LowerContext& c, size_t input) {
  return compute_dtype(c.tensor(input).dtype());
}

Expr tensor(LowerContext& c, size_t i, DType dtype, Ints dims) {
  return {c.b, c.b.reshape(c.tensor_as(i, dtype), dims)};
}

// Result i in the sizes of its signature.
void finish_as(LowerContext& c, size_t i, Expr value) {
  if (c.output(i).defined) {
    c.set(i, c.b.reshape(value.value(), c.output(i).sizes));
  }
}

struct Statistics {
  Expr mean, variance;  // biased
  Expr centred;         // x - mean
};

// Of `given`, in the type of statistics, over all dimensions but `kept`.
Statistics statistics(LowerContext& c, Val given, DType dtype, Ints kept) {
  Dims reduced;
  for (int64_t d = 0; d < given.rank(); ++d) {
    if (std::find(kept.begin(), kept.end(), d) == kept.end()) {
      reduced.push_back(d);
    }
  }
  Expr x = convert({c.b, given}, dtype);
  const Reduction r(x.value(), reduced);
  const Moments found = moments_of(c, given, r);
  Expr mean(c.b, found.mean), squares(c.b, found.squares);
  return {mean, squares / static_cast<double>(r.count), x - spread(mean, given.dims(), kept)};
}

// ---- batch norm -------------------------------------------------------------------------------

// Images as [N, C, pixels], or as rows of channels where these lie last in memory.
class Images {
 public:
  Images(LowerContext& c, size_t input)
      : c_(c), sizes_(c.tensor(input).dims()), by_rows_(has_channels_last(c, input)) {
    const int64_t pixels = product(Ints(sizes_).slice(2));
    dims_ = by_rows_ ? Dims{sizes_[0] * pixels, sizes_[1]} : Dims{sizes_[0], sizes_[1], pixels};
  }

  bool are_rows() const { return by_rows_; }
  Ints dims() const { return dims_; }  // channels are the second
  Dims reduced() const { return by_rows_ ? Dims{0} : Dims{0, 2}; }
  double count() const { return static_cast<double>(product(dims_) / dims_[1]); }

  Val argument(size_t i) const {
    Val image = c_.tensor(i);
    return by_rows_ ? rows_of_pixels(c_.b, image) : c_.b.reshape(image, dims_);
  }
  Expr argument(size_t i, DType dtype) const { return convert({c_.b, argument(i)}, dtype); }

  // Result i.
  void finish(size_t i, Expr image) const {
    if (c_.output(i).defined) {
      c_.set(i, by_rows_ ? image_of_rows(c_.b, image.value(), sizes_)
                         : c_.b.reshape(image.value(), sizes_));
    }
  }

 private:
  LowerContext& c_;
  const Dims sizes_;
  const bool by_rows_;
  Dims dims_;
};

// A per-channel argument at the shape of the image; nullopt for None.
std::optional<Expr> channels(LowerContext& c, size_t i, DType dtype, Ints dims) {
  if (c.is_none(i)) {
    return std::nullopt;
  }
  return spread(tensor(c, i, dtype, {dims[1]}), dims, {1});
}

Expr scaled(Expr x, const std::optional<Expr>& weight) { return weight ? x * *weight : x; }
Expr shifted(Expr x, const std::optional<Expr>& bias) { return bias ? x + *bias : x; }

// Where the arguments stand that differ between the overloads; kAbsent: not in this one.
constexpr size_t kAbsent = static_cast<size_t>(-1);
struct BatchNormArguments {
  size_t running_mean, momentum, eps;
  bool training;
  size_t running_mean_out;  // first of two results: the new running statistics
};

// Results 1 and 2; ATen leaves them empty where it computes no statistics.
void set_saved(LowerContext& c, size_t i, Expr value) {
  if (product(c.output(i).sizes) == 0) {
    c.set(i, c.b.full(0.0, {c.output(i).dtype, c.output(i).sizes}));
  } else {
    c.set(i, value.value());
  }
}

void set_running(LowerContext& c, const BatchNormArguments& at, const Statistics& batch,
                 double count) {
  DType dtype = batch.mean.value().dtype();
  Expr momentum = number(c, at.momentum, dtype);
  Expr unbiased = batch.variance * (count / (count - 1));
  Expr statistics[] = {batch.mean, unbiased};
  for (size_t i = 0; i < 2; ++i) {
    Expr running(c.b, c.tensor_as(at.running_mean + i, dtype));
    Expr updated = running * (1.0 - momentum) + statistics[i] * momentum;
    c.set(at.running_mean_out + i, updated.value());
  }
}

void batch_norm(LowerContext& c, const BatchNormArguments& at) {
  DType dtype = statistics_dtype(c, 0);
  const Images images(c, 0);
  const Ints dims = images.dims();
  std::optional<Statistics> batch;
  if (at.training) {
    batch = statistics(c, images.argument(0), dtype, {1});
  }
  auto running = [&](size_t i) { return tensor(c, at.running_mean + i, dtype, {dims[1]}); };
  Expr mean = batch ? batch->mean : running(0);
  Expr variance = batch ? batch->variance : running(1);
  Expr inverse_deviation = rsqrt(variance + number(c, at.eps, dtype));

  Expr centred = batch ? batch->centred : images.argument(0, dtype) - spread(mean, dims, {1});
  Expr scale = spread(inverse_deviation, dims, {1});
  Expr y =
      shifted(scaled(centred * scale, channels(c, 1, dtype, dims)), channels(c, 2, dtype, dims));
  images.finish(0, y);
  set_saved(c, 1, mean);
  set_saved(c, 2, inverse_deviation);
  if (at.running_mean_out == kAbsent) {
    return;
  }
  if (batch) {
    set_running(c, at, *batch, images.count());
  } else {
    c.set(at.running_mean_out, c.tensor(at.running_mean));
    c.set(at.running_mean_out + 1, c.tensor(at.running_mean + 1));
  }
}

// _native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, training,
//                                     momentum, eps)
void lower_batch_norm_functional(LowerContext& c) { batch_norm(c, {3, 6, 7, c.flag(5), 3}); }

// native_batch_norm, which writes running statistics that its schema declares as read: without
// them its meaning is the functional one.
void lower_native_batch_norm(LowerContext& c) { batch_norm(c, {3, 6, 7, c.flag(5), kAbsent}); }

// _native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
void lower_batch_norm_no_stats(LowerContext& c) { batch_norm(c, {kAbsent, 4, 5, true, kAbsent}); }

// _native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum,
//                                      eps)
void lower_batch_norm_no_training(LowerContext& c) { batch_norm(c, {3, 5, 6, false, kAbsent}); }

// Result 3: space that only cuDNN uses.
void set_reserve(LowerContext& c) {
  c.set(3, c.b.full(0.0, {c.output(3).dtype, c.output(3).sizes}));
}

// _batch_norm_with_update_functional(input, weight, bias, running_mean, running_var, momentum, eps)
void lower_batch_norm_with_update(LowerContext& c) {
  batch_norm(c, {3, 5, 6, true, 4});
  set_reserve(c);
}

// _batch_norm_no_update(input, weight, bias, running_mean, running_var, momentum, eps)
void lower_batch_norm_no_update(LowerContext& c) {
  batch_norm(c, {3, 5, 6, false, kAbsent});
  set_reserve(c);
}

bool lies_dense(LowerContext& c, size_t i) {
  const Window* window = c.window(i);
  return window != nullptr && Ints(window->strides) == Ints(row_major_strides(window->sizes));
}

// A kernel of ours has its sums in vectors (host_ops/batch_norm.h).
bool has_faster_gradient(LowerContext& c, Ints dims) {
  constexpr int64_t kWorthwhile = 1 << 14, kPixels = 16;
  const DType dtype = c.tensor(1).dtype();
  return c.prefers_host() && c.flag(7) && fits_kernels(dtype) && c.tensor(0).dtype() == dtype &&
         lies_dense(c, 0) && lies_dense(c, 1) && dims.back() >= kPixels &&
         product(dims) >= kWorthwhile;
}

// Sums over the pixels of a channel: of the gradient, and of its products with what lies off the
// mean (batch norm) or is normalised (group norm).
struct ChannelSums {
  Expr gradient, projection;
};

ChannelSums channel_sums(LowerContext& c, const Images& images, Val means) {
  Builder& b = c.b;
  Val grad = images.argument(0), x = images.argument(1);
  const bool fits = images.are_rows() && grad.dtype() == x.dtype() && means.dtype() == DType::Float;
  const std::optional<Val> rows = fits ? matrix_for_host(c, grad, x.dim(1)) : std::nullopt;
  if (rows) {
    const TensorType type{DType::Float, {x.dim(1)}};
    const Vals found = b.custom_call(kColumnGradientSumsTarget, {*rows, x, means}, {type, type}, "",
                                     /*may_fail=*/false);
    return {{b, found[0]}, {b, found[1]}};
  }
  const DType dtype = means.dtype();
  Expr wide = convert({b, grad}, dtype);
  Expr off = convert({b, x}, dtype) - spread({b, means}, images.dims(), {1});
  auto over_pixels = [&](Expr y) { return Expr(b, sum_of(c, {y.value(), images.reduced()})); };
  return {over_pixels(wide), over_pixels(wide * off)};
}

// native_batch_norm_backward and batch_norm_backward(grad_out, input, weight, running_mean,
//     running_var, save_mean, save_invstd, train, eps, output_mask)
void lower_batch_norm_backward(LowerContext& c) {
  DType dtype = statistics_dtype(c, 1);
  const Images images(c, 1);
  const Ints dims = images.dims();
  if (has_faster_gradient(c, dims)) {
    c.call_host();
    return;
  }
  bool training = c.flag(7);
  Expr grad = images.argument(0, dtype), x = images.argument(1, dtype);
  auto per_channel = [&](size_t i) { return tensor(c, i, dtype, {dims[1]}); };
  Expr mean = per_channel(training ? 5 : 3);
  Expr inverse_deviation = training ? per_channel(6) : rsqrt(per_channel(4) + number(c, 8, dtype));

  Expr normalized = (x - spread(mean, dims, {1})) * spread(inverse_deviation, dims, {1});
  const ChannelSums sums = channel_sums(c, images, mean.value());
  Expr grad_weight = sums.projection * inverse_deviation, grad_bias = sums.gradient;
  Expr scale = c.is_none(2) ? inverse_deviation : inverse_deviation * per_channel(2);
  Expr grad_input = grad;
  if (training) {
    grad_input = grad - spread(grad_bias / images.count(), dims, {1}) -
                 normalized * spread(grad_weight / images.count(), dims, {1});
  }
  images.finish(0, grad_input * spread(scale, dims, {1}));
  finish_as(c, 1, grad_weight);
  finish_as(c, 2, grad_bias);
}

// ---- layer norm and RMS norm --------------------------------------------------------------------

// The input as [rows, normalized elements].
Dims row_dims(Ints sizes, Ints normalized) {
  return {product(sizes.slice(0, sizes.size() - normalized.size())), product(normalized)};
}

// An argument with one value per normalized element, at the shape of the rows.
std::optional<Expr> columns(LowerContext& c, size_t i, DType dtype, Ints dims) {
  if (c.is_none(i)) {
    return std::nullopt;
  }
  return spread(tensor(c, i, dtype, {dims[1]}), dims, {1});
}

// A kernel of ours has its sums in vectors (host_ops/row_norm.h). Arguments `first` to `input` are
// as large as the input.
bool has_faster_rows(LowerContext& c, size_t first, size_t input) {
  constexpr int64_t kWorthACall = 1 << 14, kWidth = 16;
  const DType dtype = c.tensor(input).dtype();
  bool fits = c.prefers_host() && fits_kernels(dtype) && product(c.integers(input + 1)) >= kWidth &&
              product(c.tensor(input).dims()) >= kWorthACall;
  for (size_t i = first; i <= input; ++i) {
    fits = fits && c.tensor(i).dtype() == dtype && lies_dense(c, i);
  }
  return fits;
}

template <size_t kFirst, size_t kInput, LowerFunction elsewhere>
void rows_on_host(LowerContext& c) {
  has_faster_rows(c, kFirst, kInput) ? c.call_host() : elsewhere(c);
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
void lower_layer_norm(LowerContext& c) {
  DType dtype = statistics_dtype(c, 0);
  Dims dims = row_dims(c.output(0).sizes, c.integers(1));
  Statistics row = statistics(c, c.b.reshape(c.tensor(0), dims), dtype, {0});
  Expr inverse_deviation = rsqrt(row.variance + number(c, 4, dtype));
  Expr y = row.centred * spread(inverse_deviation, dims, {0});
  finish_as(c, 0, shifted(scaled(y, columns(c, 2, dtype, dims)), columns(c, 3, dtype, dims)));
  finish_as(c, 1, row.mean);
  finish_as(c, 2, inverse_deviation);
}

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, mask)
void lower_layer_norm_backward(LowerContext& c) {
  DType dtype = statistics_dtype(c, 1);
  Dims dims = row_dims(c.tensor(1).dims(), c.integers(2));
  double width = static_cast<double>(dims[1]);
  auto per_row = [&](size_t i) { return spread(tensor(c, i, dtype, {dims[0]}), dims, {0}); };
  Expr grad = tensor(c, 0, dtype, dims), inverse_deviation = per_row(4);
  Expr normalized = (tensor(c, 1, dtype, dims) - per_row(3)) * inverse_deviation;
  Expr weighted = scaled(grad, columns(c, 5, dtype, dims));
  Expr grad_mean = spread(sum(weighted, {1}) / width, dims, {0});
  Expr grad_deviation = spread(sum(weighted * normalized, {1}) / width, dims, {0});
  finish_as(c, 0, inverse_deviation * (weighted - grad_mean - normalized * grad_deviation));
  finish_as(c, 1, sum(grad * normalized, {0}));
  finish_as(c, 2, sum(grad, {0}));
}

// _fused_rms_norm(input, normalized_shape, weight, eps)
void lower_rms_norm(LowerContext& c) {
  DType dtype = statistics_dtype(c, 0);
  Dims dims = row_dims(c.output(0).sizes, c.integers(1));
  Expr x = tensor(c, 0, dtype, dims);
  double default_eps = dtype == DType::Double ? std::numeric_limits<double>::epsilon()
                                              : std::numeric_limits<float>::epsilon();
  Expr eps(c.b, c.is_none(3) ? c.b.constant(default_eps, dtype) : c.number(3, dtype));
  Expr inverse = rsqrt(sum(square(x), {1}) / static_cast<double>(dims[1]) + eps);
  finish_as(c, 0, scaled(x * spread(inverse, dims, {0}), columns(c, 2, dtype, dims)));
  finish_as(c, 1, inverse);
}

// _fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask)
void lower_rms_norm_backward(LowerContext& c) {
  DType dtype = statistics_dtype(c, 1);
  Dims dims = row_dims(c.tensor(1).dims(), c.integers(2));
  Expr grad = tensor(c, 0, dtype, dims);
  Expr inverse = spread(tensor(c, 3, dtype, {dims[0]}), dims, {0});
  Expr normalized = tensor(c, 1, dtype, dims) * inverse;
  Expr weighted = scaled(grad, columns(c, 4, dtype, dims));
  Expr projection = sum(weighted * normalized, {1}) / static_cast<double>(dims[1]);
  finish_as(c, 0, inverse * (weighted - normalized * spread(projection, dims, {0})));
  finish_as(c, 1, sum(grad * normalized, {0}));
}

// ---- group norm ---------------------------------------------------------------------------------

// The input as [N, groups, channels of a group, pixels].
Dims group_dims(LowerContext& c, size_t n) {
  int64_t groups = c.integer(n + 3);
  return {c.integer(n), groups, c.integer(n + 1) / groups, c.integer(n + 2)};
}

// A per-channel argument at the shape above.
std::optional<Expr> group_channels(LowerContext& c, size_t i, DType dtype, Ints dims) {
  if (c.is_none(i)) {
    return std::nullopt;
  }
  return spread(tensor(c, i, dtype, {dims[1], dims[2]}), dims, {1, 2});
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
void lower_group_norm(LowerContext& c) {
  DType dtype = statistics_dtype(c, 0);
  Dims dims = group_dims(c, 3);
  Statistics group = statistics(c, c.b.reshape(c.tensor(0), dims), dtype, {0, 1});
  Expr inverse_deviation = rsqrt(group.variance + number(c, 7, dtype));
  Expr y = group.centred * spread(inverse_deviation, dims, {0, 1});
  finish_as(
      c, 0,
      shifted(scaled(y, group_channels(c, 1, dtype, dims)), group_channels(c, 2, dtype, dims)));
  finish_as(c, 1, group.mean);
  finish_as(c, 2, inverse_deviation);
}

// Sums over the pixels of a channel: of the gradient, and of it times what is normalised.
ChannelSums channel_sums_of_images(LowerContext& c, Ints dims, Expr grad, Expr normalized) {
  Builder& b = c.b;
  const bool alike = c.tensor(0).dtype() == c.tensor(1).dtype();
  const std::optional<Val> gradient = matrix_for_host(c, c.tensor(0), dims[3]),
                           input = matrix_for_host(c, c.tensor(1), dims[3]);
  if (!alike || !gradient || !input) {
    return {sum(grad, {3}), sum(grad * normalized, {3})};
  }
  const Dims channels(dims.begin(), dims.end() - 1);
  auto per_channel = [&](size_t i) {
    return spread(tensor(c, i, DType::Float, {dims[0], dims[1]}), channels, {0, 1});
  };
  const TensorType type{DType::Float, {gradient->dim(0)}};
  const Val means = b.reshape(per_channel(2).value(), {gradient->dim(0)});
  const Vals found = b.custom_call(kRowGradientSumsTarget, {*gradient, *input, means}, {type, type},
                                   "", /*may_fail=*/false);
  Expr sums(b, b.reshape(found[0], channels)), products(b, b.reshape(found[1], channels));
  return {sums, products * per_channel(3)};
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
void lower_group_norm_backward(LowerContext& c) {
  DType dtype = statistics_dtype(c, 1);
  Dims dims = group_dims(c, 5);
  Dims channel_dims = {dims[0], dims[1], dims[2]};
  double count = static_cast<double>(dims[2] * dims[3]);
  auto per_group = [&](size_t i) {
    return spread(tensor(c, i, dtype, {dims[0], dims[1]}), dims, {0, 1});
  };
  Expr grad = tensor(c, 0, dtype, dims), inverse_deviation = per_group(3);
  Expr normalized = (tensor(c, 1, dtype, dims) - per_group(2)) * inverse_deviation;
  const ChannelSums channel = channel_sums_of_images(c, dims, grad, normalized);
  auto group_mean = [&](Expr per_channel) {
    std::optional<Expr> weight;
    if (!c.is_none(4)) {
      weight = spread(tensor(c, 4, dtype, {dims[1], dims[2]}), channel_dims, {1, 2});
    }
    return spread(sum(scaled(per_channel, weight), {2}) / count, dims, {0, 1});
  };
  Expr weighted = scaled(grad, group_channels(c, 4, dtype, dims));
  finish_as(c, 0,
            inverse_deviation * (weighted - group_mean(channel.gradient) -
                                 normalized * group_mean(channel.projection)));
  finish_as(c, 1, sum(channel.projection, {0}));
  finish_as(c, 2, sum(channel.gradient, {0}));
}

}  // namespace

void register_norm(LowerTable& table) {
  table["aten::native_batch_norm"] = {lower_native_batch_norm, kNormalizes};
  table["aten::_native_batch_norm_legit_functional"] = {lower_batch_norm_functional, kNormalizes};
  table["aten::_native_batch_norm_legit.no_stats"] = {lower_batch_norm_no_stats, kNormalizes};
  table["aten::_native_batch_norm_legit_no_training"] = {lower_batch_norm_no_training, kNormalizes};
  table["aten::_batch_norm_with_update_functional"] = {lower_batch_norm_with_update, kNormalizes};
  table["aten::_batch_norm_no_update"] = {lower_batch_norm_no_update, kNormalizes};
  table["aten::native_batch_norm_backward"] = {lower_batch_norm_backward, kNormalizes};
  table["aten::batch_norm_backward"] = {lower_batch_norm_backward, kNormalizes};
  table["aten::native_layer_norm"] = {rows_on_host<0, 0, lower_layer_norm>, kNormalizes};
  table["aten::native_layer_norm_backward"] = {rows_on_host<0, 1, lower_layer_norm_backward>,
                                               kNormalizes};
  table["aten::_fused_rms_norm"] = {rows_on_host<0, 0, lower_rms_norm>, kNormalizes};
  table["aten::_fused_rms_norm_backward"] = {rows_on_host<0, 1, lower_rms_norm_backward>,
                                             kNormalizes};
  table["aten::native_group_norm"] = {lower_group_norm, kNormalizes};
  table["aten::native_group_norm_backward"] = {lower_group_norm_backward, kNormalizes};
}

}  // namespace torch_xla
