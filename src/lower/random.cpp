// Random numbers, from the generator's state that travels through the program. Every distribution
// starts from uniform integers; floats drawn from them never reach the open end of their range, and
// 16-bit ones are drawn with the digits they have, so that rounding does not reach it either. What
// needs a logarithm or its like is drawn by host_ops/draw.h where programs call the host: the
// interpreter must draw the same bits.
#include "lower/activation.h"
#include "lower/random_range.h"
#include "lower/reduction.h"
#include "pjrt/doubles.h"

#include <cmath>
#include <limits>

namespace torch_xla {
namespace {

Expr tan(Expr x) { return {x.b(), x.b().unary("tan", x.value())}; }
Expr ceil(Expr x) { return {x.b(), x.b().unary("ceil", x.value())}; }
Expr erf_inv(Expr x) { return {x.b(), x.b().chlo("erf_inv", x.value())}; }

// Integers that are computed as floats, as ATen does.
DType distribution_dtype(DType dtype) {
  return c10::isIntegralType(dtype, true) ? DType::Double : compute_dtype(dtype);
}

// Of what the device computes with.
int device_bits(DType dtype) { return significant_bits(pjrt::device_dtype(dtype)); }

// The `count` upper of the random bits drawn for f32 or f64, as a float of that type.
Expr random_digits(LowerContext& c, DType compute, int count, Ints dims) {
  bool wide = compute == DType::Double;
  DType bits_dtype = wide ? DType::UInt64 : DType::UInt32;
  Val bits = c.random_bits(bits_dtype, dims);
  Val shift = c.b.constant(Number::of(int64_t{(wide ? 64 : 32) - count}), bits_dtype);
  Val digits = c.b.binary("shift_right_logical", bits, c.b.expand(shift, dims));
  return {c.b, c.b.convert(digits, compute)};
}

// [0, 1), at the resolution of `result`, in its compute dtype.
Expr uniform(LowerContext& c, DType result, Ints dims) {
  int digits = device_bits(result);
  return random_digits(c, distribution_dtype(result), digits, dims) * std::ldexp(1.0, -digits);
}

// (0, 1): halfway between the numbers of a grid with one digit less.
Expr open_uniform(LowerContext& c, DType compute, Ints dims) {
  int digits = device_bits(compute) - 1;
  return (random_digits(c, compute, digits, dims) + 0.5) * std::ldexp(1.0, -digits);
}

// Mean 0, deviation 1.
Expr standard_normal(LowerContext& c, DType compute, Ints dims) {
  return erf_inv(open_uniform(c, compute, dims) * 2.0 - 1.0) * std::sqrt(2.0);
}

// Mean 1.
Expr standard_exponential(LowerContext& c, DType compute, Ints dims) {
  return -log(open_uniform(c, compute, dims));
}

// A complex output is drawn as pairs of reals: `draw` makes real numbers of the dtype and
// dimensions it is given, already rounded.
template <typename Draw>
void set_drawn(LowerContext& c, Draw draw) {
  const OutputSpec& output = c.output(0);
  if (!c10::isComplexType(output.dtype)) {
    c.set(0, draw(output.dtype, Ints(output.sizes)));
    return;
  }
  DType dtype = c10::toRealValueType(output.dtype);
  Val real = draw(dtype, Ints(output.sizes));
  c.set(0, c.b.complex(real, draw(dtype, Ints(output.sizes))));
}

// ---- distributions filling a tensor -------------------------------------------------------------

// uniform(self, from, to)
void lower_uniform(LowerContext& c) {
  set_drawn(c, [&](DType dtype, Ints dims) {
    DType compute = distribution_dtype(dtype);
    Expr low = number(c, 1, compute), high = number(c, 2, compute);
    Expr x = convert(low + uniform(c, dtype, dims) * (high - low), dtype);
    // `low + (high - low) * u` may round up to `high`.
    low = convert(low, dtype);
    return where(x < convert(high, dtype), x, low).value();
  });
}

// normal_functional(self, mean, std)
void lower_normal(LowerContext& c) {
  if (c.prefers_host()) {
    return c.call_host();
  }
  bool complex = c10::isComplexType(c.output(0).dtype);
  set_drawn(c, [&](DType dtype, Ints dims) {
    DType compute = distribution_dtype(dtype);
    Expr deviation = number(c, 2, compute);
    if (complex) {
      deviation = deviation * std::sqrt(0.5);  // each part has half the variance
    }
    Expr x = number(c, 1, compute) + standard_normal(c, compute, dims) * deviation;
    return c.b.convert(x.value(), dtype);
  });
}

// normal.Tensor_float, normal.float_Tensor, normal.Tensor_Tensor(mean, std)
void lower_normal_tensor(LowerContext& c) {
  if (c.prefers_host()) {
    return c.call_host();
  }
  DType compute = distribution_dtype(c.output(0).dtype);
  auto argument = [&](size_t i) -> Expr {
    bool is_number = std::holds_alternative<NumberRef>(c.signature().arguments[i]);
    return {c.b, is_number ? c.number(i, compute) : c.tensor_as(i, compute)};
  };
  Expr x = standard_normal(c, compute, c.output(0).sizes);
  finish(c, argument(0) + x * argument(1));
}

// exponential(self, lambd)
void lower_exponential(LowerContext& c) {
  if (c.prefers_host()) {
    return c.call_host();
  }
  DType compute = distribution_dtype(c.output(0).dtype);
  finish(c, standard_exponential(c, compute, c.output(0).sizes) / number(c, 1, compute));
}

// cauchy(self, median, sigma)
void lower_cauchy(LowerContext& c) {
  if (c.prefers_host()) {
    return c.call_host();
  }
  DType compute = distribution_dtype(c.output(0).dtype);
  Expr angle = (open_uniform(c, compute, c.output(0).sizes) - 0.5) * M_PI;
  finish(c, number(c, 1, compute) + number(c, 2, compute) * tan(angle));
}

// log_normal(self, mean, std)
void lower_log_normal(LowerContext& c) {
  if (c.prefers_host()) {
    return c.call_host();
  }
  DType compute = distribution_dtype(c.output(0).dtype);
  Expr normal = standard_normal(c, compute, c.output(0).sizes);
  finish(c, exp(number(c, 1, compute) + normal * number(c, 2, compute)));
}

// geometric(self, p)
void lower_geometric(LowerContext& c) {
  if (c.prefers_host()) {
    return c.call_host();
  }
  DType compute = distribution_dtype(c.output(0).dtype);
  Expr trials = log(open_uniform(c, compute, c.output(0).sizes)) / log1p(-number(c, 1, compute));
  finish(c, maximum(ceil(trials), 1.0));
}

// ---- coin flips ---------------------------------------------------------------------------------

// True with the given probability.
Expr coin(LowerContext& c, Expr probability, Ints dims) {
  DType compute = probability.value().dtype();
  return uniform(c, compute, dims) < probability;
}

void lower_bernoulli_with(LowerContext& c, size_t probability) {
  DType compute = distribution_dtype(c.tensor(probability).dtype());
  Expr p(c.b, c.tensor_as(probability, compute));
  finish(c, coin(c, p, c.output(0).sizes));
}

// bernoulli(self): self holds the probabilities
void lower_bernoulli(LowerContext& c) { lower_bernoulli_with(c, 0); }

// bernoulli.Tensor(self, p)
void lower_bernoulli_tensor(LowerContext& c) { lower_bernoulli_with(c, 1); }

// bernoulli.p(self, p)
void lower_bernoulli_p(LowerContext& c) {
  finish(c, coin(c, number(c, 1, DType::Float), c.output(0).sizes));
}

// native_dropout(input, p, train): the result and the mask of what was kept
void lower_dropout(LowerContext& c) {
  DType compute = compute_dtype(c.output(0).dtype);
  Expr input(c.b, c.tensor_as(0, compute));
  if (!c.is_none(2) && !c.flag(2)) {
    c.set(0, c.tensor(0));
    c.set(1, c.b.full(1.0, {DType::Bool, c.output(1).sizes}));
    return;
  }
  Expr kept = coin(c, 1.0 - number(c, 1, DType::Float), c.output(0).sizes);
  Expr probability = 1.0 - number(c, 1, compute);
  Expr scale = where(probability == 0.0, 0.0, 1.0 / probability);
  finish(c, input * convert(kept, compute) * scale);
  c.set(1, kept.value());
}

// native_dropout_backward(grad_output, mask, scale)
void lower_dropout_backward(LowerContext& c) {
  DType compute = compute_dtype(c.output(0).dtype);
  Expr grad(c.b, c.tensor_as(0, compute));
  finish(c, grad * Expr(c.b, c.tensor_as(1, compute)) * number(c, 2, compute));
}

// rrelu_with_noise_functional(self, noise, lower, upper, training): the result and the noise
void lower_rrelu(LowerContext& c) {
  DType compute = compute_dtype(c.output(0).dtype);
  Expr x(c.b, c.tensor_as(0, compute));
  Expr lower = number(c, 2, compute), upper = number(c, 3, compute);
  Expr slope = c.flag(4) ? lower + uniform(c, compute, c.output(0).sizes) * (upper - lower)
                         : (lower + upper) * 0.5;
  Expr noise = where(x <= 0.0, slope, x.constant(1.0));
  finish(c, x * noise);
  c.set(1, c.flag(4) ? c.b.convert(noise.value(), c.output(1).dtype) : c.tensor(1));
}

// ---- integers -----------------------------------------------------------------------------------

// Whole numbers from `low` on, of as many as `count` says; without it all 2^64.
void draw_integers(LowerContext& c, Val low, std::optional<Val> count, bool wide) {
  Builder& b = c.b;
  const OutputSpec& output = c.output(0);
  Val bits =
      b.convert(c.random_bits(wide ? DType::UInt64 : DType::UInt32, output.sizes), DType::UInt64);
  if (count) {
    Val modulus = b.bitcast_convert(*count, {DType::UInt64, {}});
    bits = b.binary("remainder", bits, b.expand(modulus, output.sizes));
  }
  Val offset = b.bitcast_convert(bits, {DType::Long, output.sizes});
  c.set(0, b.convert(b.add(offset, b.expand(low, output.sizes)), output.dtype));
}

void draw_integers(LowerContext& c, int64_t low, uint64_t count) {
  auto constant = [&](int64_t value) { return c.b.constant(Number::of(value), DType::Long); };
  const bool wide = count == 0 || count > std::numeric_limits<uint32_t>::max();
  draw_integers(c, constant(low),
                count == 0 ? std::nullopt : std::optional(constant(static_cast<int64_t>(count))),
                wide);
}

// Of few enough for 32 bits, the recorder has seen (record/moving.h).
bool range_moves(LowerContext& c) {
  return std::holds_alternative<NumberRef>(c.signature().arguments[1]);
}

// random.from(self, from, to); without `to` up to the dtype's largest, or all numbers of 64 bits
void lower_random_from(LowerContext& c) {
  if (range_moves(c)) {
    const Val low = c.number(1, DType::Long);
    return draw_integers(c, low, c.b.sub(c.number(2, DType::Long), low), false);
  }
  int64_t low = c.integer(1);
  uint64_t end = c.is_none(2) ? end_of_numbers_from(low, pjrt::device_dtype(c.output(0).dtype))
                              : static_cast<uint64_t>(c.integer(2));
  draw_integers(c, low, end - static_cast<uint64_t>(low));
}

// random.to(self, to)
void lower_random_to(LowerContext& c) {
  if (range_moves(c)) {
    return draw_integers(c, c.b.constant(0.0, DType::Long), c.number(1, DType::Long), false);
  }
  draw_integers(c, 0, static_cast<uint64_t>(c.integer(1)));
}

// random(self): up to the largest integer of the dtype; of a float, the last that it can count to
void lower_random(LowerContext& c) {
  draw_integers(c, 0, end_of_whole_numbers(pjrt::device_dtype(c.output(0).dtype)));
}

// randperm(n): sorts positions by random keys
void lower_randperm(LowerContext& c) {
  Builder& b = c.b;
  Ints sizes = c.output(0).sizes;
  Val keys = c.random_bits(DType::UInt64, sizes);
  Vals sorted = b.sort({keys, b.iota({DType::Long, Dims(sizes)}, 0)}, 0, false,
                       [](Builder& body, const Vals& args) -> Vals {
                         return {body.compare("LT", args[0], args[1])};
                       });
  c.set(0, b.convert(sorted[1], c.output(0).dtype));
}

// ---- multinomial --------------------------------------------------------------------------------

// The categories in an order that draws them one by one without putting them back: by weight over
// an exponential.
Val drawing_order(LowerContext& c, Expr weights) {
  Builder& b = c.b;
  const Dims& dims = weights.value().dims();
  Expr keys = weights / standard_exponential(c, weights.value().dtype(), dims);
  int64_t last = keys.value().rank() - 1;
  Vals sorted = b.sort({keys.value(), b.iota({DType::Long, dims}, last)}, last, false,
                       [](Builder& body, const Vals& args) -> Vals {
                         return {body.compare("GT", args[0], args[1])};
                       });
  return sorted[1];
}

// Sums of the weights [rows, categories] up to each category.
Expr cumulative(Expr weights) {
  Builder& b = weights.b();
  int64_t categories = weights.value().dim(1);
  stablehlo::WindowDims window;
  window.size = {1, categories};
  window.padding_low = {0, categories - 1};
  window.padding_high = {0, 0};
  return {b, b.reduce_window(weights.value(), b.scalar_like(weights.value(), 0), window, "add")};
}

// multinomial(self, num_samples, replacement)
void lower_multinomial(LowerContext& c) {
  if (c.prefers_host()) {
    return c.call_host();
  }
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  Expr self(b, c.tensor_as(0, compute_dtype(c.tensor(0).dtype())));
  int64_t samples = c.integer(1), categories = self.value().dims().back();
  int64_t rows = self.value().numel() / categories;
  Expr weights = reshape(self, {rows, categories});
  if (!c.flag(2)) {
    Val order = b.slice_dim(drawing_order(c, weights), 1, 0, samples);
    c.set(0, b.reshape(order, sizes));
    return;
  }
  Expr sums = cumulative(weights);
  Expr total(b, b.slice_dim(sums.value(), 1, categories - 1, categories));
  Expr position = uniform(c, total.value().dtype(), {rows, samples}) * total;
  Dims pairs = {rows, samples, categories};
  Expr passed = spread(sums, pairs, {0, 2}) <= spread(position, pairs, {0, 1});
  Val index = sum(convert(passed, DType::Long), {2}).value();
  index = b.minimum(index, b.scalar_like(index, static_cast<double>(categories - 1)));
  c.set(0, b.reshape(index, sizes));
}

}  // namespace

void register_random(LowerTable& table) {
  table["aten::uniform"] = {lower_uniform, kShapeOnlySelf};
  table["aten::normal_functional"] = {lower_normal, kShapeOnlySelf};
  table["aten::normal.Tensor_float"] = {lower_normal_tensor};
  table["aten::normal.float_Tensor"] = {lower_normal_tensor};
  table["aten::normal.Tensor_Tensor"] = {lower_normal_tensor};
  table["aten::exponential"] = {lower_exponential, kShapeOnlySelf};
  table["aten::cauchy"] = {lower_cauchy, kShapeOnlySelf};
  table["aten::log_normal"] = {lower_log_normal, kShapeOnlySelf};
  table["aten::geometric"] = {lower_geometric, kShapeOnlySelf};
  table["aten::bernoulli"] = {lower_bernoulli};
  table["aten::bernoulli.p"] = {lower_bernoulli_p, kShapeOnlySelf};
  table["aten::bernoulli.Tensor"] = {lower_bernoulli_tensor, kShapeOnlySelf};
  table["aten::native_dropout"] = {lower_dropout};
  table["aten::native_dropout_backward"] = {lower_dropout_backward};
  table["aten::rrelu_with_noise_functional"] = {lower_rrelu};
  table["aten::random"] = {lower_random, kShapeOnlySelf};
  table["aten::random.from"] = {lower_random_from, kShapeOnlySelf};
  table["aten::random.to"] = {lower_random_to, kShapeOnlySelf};
  table["aten::randperm"] = {lower_randperm};
  table["aten::randperm.generator"] = {lower_randperm};
  table["aten::multinomial"] = {lower_multinomial};
}

}  // namespace torch_xla
