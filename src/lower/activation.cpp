#include "lower/activation.h"

#include <limits>

namespace torch_xla {

namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;

// ---- rectifiers -------------------------------------------------------------------------------

void lower_relu(LowerContext& c) {
  Val x = c.tensor_as(0, c.output(0).dtype);
  c.set(0, c.b.maximum(x, c.b.scalar_like(x, 0)));
}

void lower_threshold(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, where(x <= scalar(c, 1), scalar(c, 2), x));
}

void lower_threshold_backward(LowerContext& c) {
  Expr grad{c.b, c.tensor_as(0, c.output(0).dtype)};
  finish(c, where(operand(c, 1) <= scalar(c, 2), grad.constant(0), grad));
}

void lower_leaky_relu(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, where(x > 0, x, x * scalar(c, 1)));
}

void lower_leaky_relu_backward(LowerContext& c) {
  Expr grad = operand(c, 0);
  finish(c, where(operand(c, 1) > 0, grad, grad * scalar(c, 2)));
}

void lower_prelu(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, where(x > 0, x, operand(c, 1) * x));
}

void lower_prelu_backward(LowerContext& c) {
  Expr grad = operand(c, 0), x = operand(c, 1), weight = operand(c, 2);
  Expr positive = x > 0;
  finish(c, where(positive, grad, weight * grad), 0);
  finish(c, where(positive, 0, x * grad), 1);
}

void lower_elu(LowerContext& c) {
  Expr x = operand(c, 0), scale = scalar(c, 2);
  finish(c, where(x <= 0, expm1(x * scalar(c, 3)) * (scalar(c, 1) * scale), x * scale));
}

void lower_elu_backward(LowerContext& c) {
  Expr grad = operand(c, 0), scale = scalar(c, 2), input_scale = scalar(c, 3);
  Expr negative_scale = scalar(c, 1) * scale;
  bool is_result = c.flag(4);
  Expr x = operand(c, 5);  // the result of the forward pass when is_result
  Expr slope = is_result ? x + negative_scale : negative_scale * exp(x * input_scale);
  finish(c, where(x <= 0, grad * input_scale * slope, grad * scale));
}

// ---- hard ones ----------------------------------------------------------------------------------

void lower_hardtanh(LowerContext& c) {
  finish(c, minimum(maximum(operand(c, 0), scalar(c, 1)), scalar(c, 2)));
}

void lower_hardtanh_backward(LowerContext& c) {
  Expr x = operand(c, 1);
  finish(c, where(x <= scalar(c, 2) || x >= scalar(c, 3), 0, operand(c, 0)));
}

void lower_hardsigmoid(LowerContext& c) {
  finish(c, minimum(maximum(operand(c, 0) + 3, 0), 6) / 6);
}

void lower_hardsigmoid_backward(LowerContext& c) {
  Expr x = operand(c, 1);
  finish(c, where(x > -3 && x < 3, operand(c, 0) / 6, 0));
}

void lower_hardswish(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, x * minimum(maximum(x + 3, 0), 6) / 6);
}

void lower_hardswish_backward(LowerContext& c) {
  Expr grad = operand(c, 0), x = operand(c, 1);
  finish(c, where(x <= -3, 0, where(x < 3, grad * (x / 3 + 0.5), grad)));
}

void lower_hardshrink(LowerContext& c) {
  Expr x = operand(c, 0), lambd = scalar(c, 1);
  finish(c, where(x >= -lambd && x <= lambd, 0, x));
}

void lower_softshrink(LowerContext& c) {
  Expr x = operand(c, 0), lambd = scalar(c, 1);
  // x * 0 keeps NaN.
  finish(c, where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0)));
}

// hardshrink_backward and softshrink_backward.
void lower_shrink_backward(LowerContext& c) {
  Expr x = operand(c, 1), lambd = scalar(c, 2);
  finish(c, where(x >= -lambd && x <= lambd, 0, operand(c, 0)));
}

// ---- smooth ones ----------------------------------------------------------------------------

Expr gelu_tanh_inner(Expr x) { return kSqrtTwoOverPi * (x + kGeluCubic * (x * x * x)); }

// What the forward was given, of which the gradient computes the forward's exponentials again: if
// they were shared, they would be an array more that is written, kept and read.
Expr operand_again(LowerContext& c, size_t i) {
  const Val x = c.prefers_host() ? c.b.optimization_barrier(c.tensor(i)) : c.tensor(i);
  return {c.b, c.b.convert(x, compute_dtype(c.output(0).dtype))};
}

void lower_gelu(LowerContext& c) {
  Expr x = operand(c, 0);
  if (c.text(1) == "tanh") {
    finish(c, 0.5 * x * (1 + tanh(gelu_tanh_inner(x))));
  } else {
    finish(c, x * 0.5 * (1 + erf(x * kSqrtHalf)));
  }
}

void lower_gelu_backward(LowerContext& c) {
  Expr grad = operand(c, 0), x = operand_again(c, 1);
  if (c.text(2) == "tanh") {
    Expr t = tanh(gelu_tanh_inner(x));
    Expr inner_slope = kSqrtTwoOverPi * (1 + 3 * kGeluCubic * (x * x));
    finish(c, grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope));
  } else {
    Expr cdf = 0.5 * (1 + erf(x * kSqrtHalf));
    Expr pdf = 0.5 * kSqrtTwoOverPi * exp(-0.5 * (x * x));
    finish(c, grad * (cdf + x * pdf));
  }
}

void lower_silu(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, x * sigmoid(x));
}

void lower_silu_backward(LowerContext& c) {
  Expr grad = operand(c, 0), x = operand_again(c, 1), s = sigmoid(x);
  finish(c, grad * s * (1 + x * (1 - s)));
}

void lower_mish(LowerContext& c) {
  Expr x = operand(c, 0);
  finish(c, x * tanh(softplus(x)));
}

void lower_mish_backward(LowerContext& c) {
  Expr grad = operand(c, 0), x = operand_again(c, 1);
  Expr t = tanh(softplus(x));
  finish(c, grad * (t + x * sigmoid(x) * (1 - t * t)));
}

void lower_softplus(LowerContext& c) {
  Expr x = operand(c, 0), beta = scalar(c, 1);
  Expr scaled = x * beta;
  finish(c, where(scaled > scalar(c, 2), x, softplus(scaled) / beta));
}

void lower_softplus_backward(LowerContext& c) {
  Expr grad = operand(c, 0), scaled = operand(c, 1) * scalar(c, 2);
  finish(c, where(scaled > scalar(c, 3), grad, grad * sigmoid(scaled)));
}

void lower_log_sigmoid_forward(LowerContext& c) {
  Expr x = operand(c, 0);
  Expr z = exp(-abs(x));
  finish(c, minimum(x, 0) - log1p_of_unit(z), 0);
  // CPU kernels save z in the buffer; elsewhere the buffer is empty. Our gradient needs neither.
  if (product(c.output(1).sizes) == z.value().numel()) {
    finish(c, z, 1);
  } else {
    c.set(1, c.b.full(0.0, {c.output(1).dtype, c.output(1).sizes}));
  }
}

void lower_log_sigmoid_backward(LowerContext& c) {
  finish(c, operand(c, 0) * sigmoid(-operand(c, 1)));
}

void lower_sigmoid_backward(LowerContext& c) {
  Expr y = operand(c, 1);
  finish(c, operand(c, 0) * conj((1 - y) * y));
}

void lower_tanh_backward(LowerContext& c) {
  Expr y = operand(c, 1);
  finish(c, operand(c, 0) * conj(1 - y * y));
}

void lower_logit(LowerContext& c) {
  Expr x = operand(c, 0);
  if (!c.is_none(1)) {
    Expr eps = scalar(c, 1), high = 1 - eps;
    x = where(x < eps, eps, where(x > high, high, x));
  }
  finish(c, log(x / (1 - x)));
}

void lower_logit_backward(LowerContext& c) {
  Expr grad = operand(c, 0), x = operand(c, 1);
  Expr eps = c.is_none(2) ? x.constant(0) : scalar(c, 2);
  double outside = c.is_none(2) ? std::numeric_limits<double>::quiet_NaN() : 0;
  Expr inside = grad / (x * (1 - x));
  finish(c, where(x < eps || x > 1 - eps, outside, inside));
}

// ---- gated linear unit --------------------------------------------------------------------------

struct GluHalves {
  int64_t dim;
  Expr value, gate;
};

GluHalves glu_halves(LowerContext& c, size_t x_argument, size_t dim_argument) {
  Expr x = operand(c, x_argument);
  int64_t dim = c.dim(dim_argument, x.value().rank());
  int64_t half = x.value().dim(dim) / 2;
  return {dim, Expr(c.b, c.b.slice_dim(x.value(), dim, 0, half)),
          Expr(c.b, c.b.slice_dim(x.value(), dim, half, 2 * half))};
}

void lower_glu(LowerContext& c) {
  GluHalves x = glu_halves(c, 0, 1);
  finish(c, x.value * sigmoid(x.gate));
}

void lower_glu_backward(LowerContext& c) {
  Expr grad = operand(c, 0);
  GluHalves x = glu_halves(c, 1, 2);
  Expr s = sigmoid(x.gate);
  Expr grad_value = grad * s, grad_gate = (1 - s) * s * grad * x.value;
  finish(c, {c.b, c.b.concatenate({grad_value.value(), grad_gate.value()}, x.dim)});
}

}  // namespace

void register_activation(LowerTable& table) {
  auto set = [&](const char* name, LowerFunction function) {
    table[std::string("aten::") + name] = {function, kElementwise};
  };
  set("relu", lower_relu);
  set("threshold", lower_threshold);
  set("threshold_backward", lower_threshold_backward);
  set("leaky_relu", lower_leaky_relu);
  set("leaky_relu_backward", lower_leaky_relu_backward);
  set("_prelu_kernel", lower_prelu);
  set("_prelu_kernel_backward", lower_prelu_backward);
  set("elu", lower_elu);
  set("elu_backward", lower_elu_backward);
  set("hardtanh", lower_hardtanh);
  set("hardtanh_backward", lower_hardtanh_backward);
  set("hardsigmoid", lower_hardsigmoid);
  set("hardsigmoid_backward", lower_hardsigmoid_backward);
  set("hardswish", lower_hardswish);
  set("hardswish_backward", lower_hardswish_backward);
  set("hardshrink", lower_hardshrink);
  set("hardshrink_backward", lower_shrink_backward);
  set("softshrink", lower_softshrink);
  set("softshrink_backward", lower_shrink_backward);
  set("gelu", lower_gelu);
  set("gelu_backward", lower_gelu_backward);
  set("silu", lower_silu);
  set("silu_backward", lower_silu_backward);
  set("mish", lower_mish);
  set("mish_backward", lower_mish_backward);
  set("softplus", lower_softplus);
  set("softplus_backward", lower_softplus_backward);
  set("log_sigmoid_forward", lower_log_sigmoid_forward);
  set("log_sigmoid_backward", lower_log_sigmoid_backward);
  set("sigmoid_backward", lower_sigmoid_backward);
  set("tanh_backward", lower_tanh_backward);
  set("logit", lower_logit);
  set("logit_backward", lower_logit_backward);
  table["aten::glu"] = {lower_glu};
  table["aten::glu_backward"] = {lower_glu_backward};
  register_loss(table);
}

}  // namespace torch_xla
