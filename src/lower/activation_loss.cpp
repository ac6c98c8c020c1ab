// Losses. Each computes the unreduced loss in the compute dtype and reduces it there.
#include "lower/activation.h"
#include "lower/index.h"
#include "lower/reduction.h"

namespace torch_xla {
namespace {

enum LossReduction : int64_t { kReductionNone = 0, kReductionMean = 1, kReductionSum = 2 };

Expr sum_all(LowerContext& c, Expr x) { return {c.b, sum_of(c, {x.value(), all_dims(x.value())})}; }

void finish_loss(LowerContext& c, Expr loss, int64_t reduction) {
  if (reduction == kReductionNone) {
    return finish(c, loss);
  }
  Expr sum = sum_all(c, loss);
  double count = static_cast<double>(loss.value().numel());
  finish(c, reduction == kReductionMean ? sum / count : sum);
}

// What the reduction multiplies gradients with.
double mean_factor(const LowerContext& c, size_t reduction_argument) {
  bool mean = c.integer(reduction_argument) == kReductionMean;
  return mean ? 1.0 / static_cast<double>(product(c.output(0).sizes)) : 1.0;
}

// ---- regression -----------------------------------------------------------------------------

void lower_mse_loss(LowerContext& c) {
  Expr difference = operand(c, 0) - operand(c, 1);
  finish_loss(c, difference * difference, c.integer(2));
}

void lower_mse_loss_backward(LowerContext& c) {
  Expr difference = operand(c, 1) - operand(c, 2);
  finish(c, 2 * mean_factor(c, 3) * difference * operand(c, 0));
}

void lower_smooth_l1_loss(LowerContext& c) {
  Expr z = abs(operand(c, 0) - operand(c, 1)), beta = scalar(c, 3);
  finish_loss(c, where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta), c.integer(2));
}

void lower_smooth_l1_loss_backward(LowerContext& c) {
  Expr grad = operand(c, 0) * mean_factor(c, 3);
  Expr x = operand(c, 1) - operand(c, 2), beta = scalar(c, 4);
  finish(c, where(x <= -beta, -grad, where(x >= beta, grad, grad * x / beta)));
}

void lower_huber_loss(LowerContext& c) {
  Expr z = abs(operand(c, 0) - operand(c, 1)), delta = scalar(c, 3);
  finish_loss(c, where(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta)), c.integer(2));
}

void lower_huber_loss_backward(LowerContext& c) {
  Expr grad = operand(c, 0) * mean_factor(c, 3);
  Expr x = operand(c, 1) - operand(c, 2), delta = scalar(c, 4);
  Expr limit = grad * delta;
  finish(c, where(x <= -delta, -limit, where(x >= delta, limit, grad * x)));
}

// ---- binary classification ----------------------------------------------------------------------

void lower_binary_cross_entropy(LowerContext& c) {
  Expr x = operand(c, 0), target = operand(c, 1);
  Expr loss = (target - 1) * maximum(log1p(-x), -100) - target * maximum(log(x), -100);
  finish_loss(c, c.is_none(2) ? loss : loss * operand(c, 2), c.integer(3));
}

void lower_binary_cross_entropy_backward(LowerContext& c) {
  constexpr double kEpsilon = 1e-12f;  // ATen's, an f32 also for f64
  Expr x = operand(c, 1);
  Expr grad = operand(c, 0) * (x - operand(c, 2)) / maximum((1 - x) * x, kEpsilon);
  grad = c.is_none(3) ? grad : grad * operand(c, 3);
  finish(c, grad * mean_factor(c, 4));
}

void lower_binary_cross_entropy_with_logits(LowerContext& c) {
  Expr x = operand(c, 0), target = operand(c, 1);
  Expr log_sigmoid = -softplus(-x);
  if (!c.is_none(3)) {
    log_sigmoid = ((operand(c, 3) - 1) * target + 1) * log_sigmoid;
  }
  Expr loss = (1 - target) * x - log_sigmoid;
  finish_loss(c, c.is_none(2) ? loss : loss * operand(c, 2), c.integer(4));
}

// ---- negative log likelihood ----------------------------------------------------------------

// The classes are dimension 0 of one sample, else dimension 1; `target` lacks that dimension.
struct Nll {
  Dims with_class;  // target's sizes with a class dimension of 1
  int64_t class_dim = 0;
  Expr target;
  Expr weight;  // per target, 0 where ignored
};

Nll nll(LowerContext& c, size_t first_argument) {
  Builder& b = c.b;
  Val x = c.tensor(first_argument);
  Dims dims = x.dims();
  int64_t class_dim = dims.size() == 1 ? 0 : 1;
  dims[class_dim] = 1;
  Expr target(b, b.reshape(c.tensor_as(first_argument + 1, DType::Long), dims));
  DType dtype = compute_dtype(c.output(0).dtype);
  Expr weight(b, b.full(1.0, {dtype, dims}));
  if (!c.is_none(first_argument + 2)) {
    weight = {b, take_slices(b, c.tensor_as(first_argument + 2, dtype), 0, target.value())};
  }
  double ignored = static_cast<double>(c.integer(first_argument + 4));
  return {dims, class_dim, target, where(target == ignored, 0, weight)};
}

void lower_nll_loss_forward(LowerContext& c) {
  Nll n = nll(c, 0);
  Builder& b = c.b;
  Expr x = operand(c, 0);
  Expr chosen(b, gather_along(b, x.value(), n.class_dim, n.target.value()));
  // An ignored target may point anywhere, at NaN too.
  Expr loss = where(n.weight == 0, 0, -chosen * n.weight);
  int64_t reduction = c.integer(3);
  if (reduction == kReductionNone) {
    finish(c, {b, b.reshape(loss.value(), c.output(0).sizes)}, 0);
    bool one_sample = n.with_class.size() == 1;
    finish(c, one_sample ? sum_all(c, n.weight) : x.constant(0), 1);
    return;
  }
  Expr total_weight = sum_all(c, n.weight);
  Expr sum = sum_all(c, loss);
  finish(c, reduction == kReductionMean ? sum / total_weight : sum, 0);
  finish(c, total_weight, 1);
}

void lower_nll_loss_backward(LowerContext& c) {
  Nll n = nll(c, 1);
  Builder& b = c.b;
  Expr grad = operand(c, 0);
  if (grad.value().rank() > 0) {
    grad = {b, b.reshape(grad.value(), n.with_class)};
  }
  if (c.integer(4) == kReductionMean) {
    grad = grad / operand(c, 6);
  }
  const Dims& sizes = c.output(0).sizes;
  Expr classes(b, b.iota({DType::Long, sizes}, n.class_dim));
  // Ignored targets get 0 even where the mean divides by a total weight of 0.
  Expr at_target = where(n.weight == 0, 0, -grad * n.weight);
  finish(c, where(classes == n.target, at_target, 0));
}

}  // namespace

void register_loss(LowerTable& table) {
  table.insert({
      {"aten::mse_loss", {lower_mse_loss}},
      {"aten::mse_loss_backward", {lower_mse_loss_backward}},
      {"aten::smooth_l1_loss", {lower_smooth_l1_loss, kStaticNumbers}},
      {"aten::smooth_l1_loss_backward", {lower_smooth_l1_loss_backward}},
      {"aten::huber_loss", {lower_huber_loss, kStaticNumbers}},
      {"aten::huber_loss_backward", {lower_huber_loss_backward}},
      {"aten::binary_cross_entropy", {lower_binary_cross_entropy}},
      {"aten::binary_cross_entropy_backward", {lower_binary_cross_entropy_backward}},
      {"aten::binary_cross_entropy_with_logits", {lower_binary_cross_entropy_with_logits}},
      {"aten::nll_loss_forward", {lower_nll_loss_forward}},
      {"aten::nll_loss_backward", {lower_nll_loss_backward}},
      {"aten::nll_loss2d_forward", {lower_nll_loss_forward}},
      {"aten::nll_loss2d_backward", {lower_nll_loss_backward}},
  });
}

}  // namespace torch_xla
