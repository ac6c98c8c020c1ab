// Fused optimizers: one node updates all parameters. Results are the lists of the functional
// schema one after the other. A step whose `found_inf` is 1 leaves everything as it was.
#include "lower/activation.h"
#include "lower/reduction.h"

namespace torch_xla {
namespace {

Expr pow(Expr x, Expr y) {
  Builder& b = x.b();
  Val base = b.expand(x.value(), y.value().dims());
  return {b, b.binary("power", base, y.value())};
}

// A number or, in the tensor_lr overloads, a tensor of one element; 0-d.
Expr scalar_argument(LowerContext& c, size_t i) {
  bool is_tensor = std::holds_alternative<OperandRef>(c.signature().arguments[i]);
  Val value =
      is_tensor ? c.b.reshape(c.tensor_as(i, DType::Double), {}) : c.number(i, DType::Double);
  return {c.b, value};
}

bool is_zero(LowerContext& c, size_t i) {
  std::optional<Number> literal = c.literal(i);
  return literal && literal->to_double() == 0;
}

// What every fused optimizer does around its own formula. Scalars are combined in f64 and rounded
// once, in the dtype of the parameter they meet.
class Step {
 public:
  Step(LowerContext& c, bool maximize, size_t grad_scale)
      : c_(c), parameters_(c.tensors(0)), grads_(c.tensors(1)), maximize_(maximize) {
    if (!c.is_none(grad_scale)) {
      grad_scale_ = scalar_argument(c, grad_scale);
    }
    if (!c.is_none(grad_scale + 1)) {
      skip_ = scalar_argument(c, grad_scale + 1) == 1.0;
    }
  }

  size_t count() const { return parameters_.size(); }
  DType dtype(size_t t) const { return compute_dtype(parameters_[t].dtype()); }
  Expr parameter(size_t t) const { return wide(parameters_[t], t); }
  Expr wide(Val x, size_t t) const { return {c_.b, c_.b.convert(x, dtype(t))}; }
  Expr rounded(Expr scalar, size_t t) const { return convert(scalar, dtype(t)); }

  // The unscaled gradient, which is also the new value of the gradient.
  Expr gradient(size_t t) const {
    Expr grad = wide(grads_[t], t);
    if (!grad_scale_) {
      return grad;
    }
    set(count() + t, grads_[t], grad / rounded(*grad_scale_, t));
    return grad / rounded(*grad_scale_, t);
  }
  // In the direction of descent.
  Expr descent(size_t t) const { return maximize_ ? -gradient(t) : gradient(t); }

  // Result `i`, which replaces `old` unless the step is skipped.
  void set(size_t i, Val old, Expr updated) const {
    Val value = c_.b.convert(updated.value(), old.dtype());
    c_.set(i, skip_ ? c_.b.select(skip_->value(), old, value) : value);
  }
  void set_parameter(size_t t, Expr updated) const { set(t, parameters_[t], updated); }
  // Gradients that nothing changes.
  void keep_gradients() const {
    for (size_t t = 0; t < count() && !grad_scale_; ++t) {
      c_.set(count() + t, grads_[t]);
    }
  }

 private:
  LowerContext& c_;
  Vals parameters_, grads_;
  bool maximize_;
  std::optional<Expr> grad_scale_, skip_;
};

// The steps of all parameters as one f64 vector: its corrections are computed once, together, not
// again for every element of every parameter.
Expr joined_steps(LowerContext& c, const Vals& steps) {
  Vals rows;
  for (Val step : steps) {
    rows.push_back(c.b.reshape(c.b.convert(step, DType::Double), {1}));
  }
  return {c.b, c.b.concatenate(rows, 0)};
}

// Computed before the loops over parameters, not inside them.
Expr hoisted(Expr x) { return {x.b(), x.b().optimization_barrier(x.value())}; }

Expr element(Expr vector, size_t t) {
  Builder& b = vector.b();
  int64_t i = static_cast<int64_t>(t);
  return {b, b.reshape(b.slice_dim(vector.value(), 0, i, i + 1), {})};
}

// ---- Adam and AdamW
// ------------------------------------------------------------------------------

// _fused_adam(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
//             weight_decay, eps, amsgrad, maximize, grad_scale, found_inf); without amsgrad the
// fifth list is empty
void lower_adam(LowerContext& c, bool decoupled_decay) {
  Step step(c, c.flag(12), 13);
  size_t n = step.count();
  if (n == 0) {
    return;
  }
  Vals means = c.tensors(2), squares = c.tensors(3), maxima = c.tensors(4);
  Expr lr = scalar_argument(c, 6), beta1 = scalar_argument(c, 7), beta2 = scalar_argument(c, 8);
  Expr decay = scalar_argument(c, 9), eps = scalar_argument(c, 10);
  Expr steps = joined_steps(c, c.tensors(5));
  Expr step_sizes = hoisted(lr / (1.0 - pow(beta1, steps)));
  Expr corrections = hoisted(sqrt(1.0 - pow(beta2, steps)));
  bool amsgrad = c.flag(11), decays = !is_zero(c, 9);

  for (size_t t = 0; t < n; ++t) {
    auto rounded = [&](Expr scalar) { return step.rounded(scalar, t); };
    Expr parameter = step.parameter(t), grad = step.descent(t);
    if (decays && decoupled_decay) {
      parameter = parameter - rounded(lr * decay) * parameter;
    } else if (decays) {
      grad = grad + rounded(decay) * parameter;
    }
    Expr mean = step.wide(means[t], t), square = step.wide(squares[t], t);
    mean = mean + (grad - mean) * rounded(1.0 - beta1);
    square = square * rounded(beta2) + grad * grad * rounded(1.0 - beta2);
    Expr largest = square;
    if (amsgrad) {
      largest = maximum(step.wide(maxima[t], t), square);
      step.set(4 * n + t, maxima[t], largest);
    }
    Expr deviation = sqrt(largest) / rounded(element(corrections, t)) + rounded(eps);
    step.set_parameter(t, parameter - rounded(element(step_sizes, t)) * mean / deviation);
    step.set(2 * n + t, means[t], mean);
    step.set(3 * n + t, squares[t], square);
  }
  for (size_t t = 0; t < maxima.size() && !amsgrad; ++t) {
    c.set(4 * n + t, maxima[t]);
  }
  step.keep_gradients();
}

void lower_fused_adam(LowerContext& c) { lower_adam(c, false); }
void lower_fused_adamw(LowerContext& c) { lower_adam(c, true); }

// ---- SGD -------------------------------------------------------------------------------------

// _fused_sgd(self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov,
//            maximize, is_first_step, grad_scale, found_inf); without momentum the third list is
// empty
void lower_sgd(LowerContext& c) {
  Step step(c, c.flag(8), 10);
  size_t n = step.count();
  Vals buffers = c.tensors(2);
  Expr decay = scalar_argument(c, 3), momentum = scalar_argument(c, 4);
  Expr lr = scalar_argument(c, 5), dampening = scalar_argument(c, 6);
  bool nesterov = c.flag(7), first = c.flag(9), decays = !is_zero(c, 3);

  for (size_t t = 0; t < n; ++t) {
    auto rounded = [&](Expr scalar) { return step.rounded(scalar, t); };
    Expr parameter = step.parameter(t), grad = step.descent(t);
    if (decays) {
      grad = grad + rounded(decay) * parameter;
    }
    if (!buffers.empty()) {
      Expr buffer = grad;
      if (!first) {
        buffer = step.wide(buffers[t], t) * rounded(momentum) + grad * rounded(1.0 - dampening);
      }
      step.set(2 * n + t, buffers[t], buffer);
      grad = nesterov ? grad + rounded(momentum) * buffer : buffer;
    }
    step.set_parameter(t, parameter - rounded(lr) * grad);
  }
  step.keep_gradients();
}

// ---- Adagrad -----------------------------------------------------------------------------------

// _fused_adagrad(self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize,
//                grad_scale, found_inf)
void lower_adagrad(LowerContext& c) {
  Step step(c, c.flag(8), 9);
  size_t n = step.count();
  if (n == 0) {
    return;
  }
  Vals sums = c.tensors(2), steps = c.tensors(3);
  Expr lr = scalar_argument(c, 4), lr_decay = scalar_argument(c, 5);
  Expr decay = scalar_argument(c, 6), eps = scalar_argument(c, 7);
  Expr rates = hoisted(lr / (1.0 + (joined_steps(c, steps) - 1.0) * lr_decay));
  bool decays = !is_zero(c, 6);

  for (size_t t = 0; t < n; ++t) {
    auto rounded = [&](Expr scalar) { return step.rounded(scalar, t); };
    Expr parameter = step.parameter(t), grad = step.descent(t);
    if (decays) {
      grad = grad + rounded(decay) * parameter;
    }
    Expr total = step.wide(sums[t], t) + square(grad);
    step.set(2 * n + t, sums[t], total);
    Expr update = rounded(element(rates, t)) * grad / (sqrt(total) + rounded(eps));
    step.set_parameter(t, parameter - update);
    if (c.output_count() > 3 * n) {  // not in the tensor_lr overload
      c.set(3 * n + t, steps[t]);
    }
  }
  step.keep_gradients();
}

}  // namespace

void register_optimizer(LowerTable& table) {
  for (const char* overload : {"", ".tensor_lr"}) {
    table[std::string("aten::_fused_adam") + overload] = {lower_fused_adam};
    table[std::string("aten::_fused_adamw") + overload] = {lower_fused_adamw};
    table[std::string("aten::_fused_sgd") + overload] = {lower_sgd};
    table[std::string("aten::_fused_adagrad") + overload] = {lower_adagrad};
  }
}

}  // namespace torch_xla
