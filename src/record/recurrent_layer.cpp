// One direction of a recurrent layer as an operator of our own, with its gradient
// (host_ops/recurrent_layer.h), recorded where the CPU's kernels can run (rnn.cpp).
#include "record/recurrent_layer.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <algorithm>

namespace torch_xla {

namespace {

using at::IntArrayRef;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Optional = std::optional<Tensor>;
using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Tensor given(const Optional& tensor) { return tensor.value_or(Tensor()); }

Optional optional(const Tensor& tensor) {
  return tensor.defined() ? Optional(tensor) : std::nullopt;
}

// Operators return tensors, also where there is nothing.
Tensor or_nothing(const Tensor& tensor, const Tensor& like) {
  return tensor.defined() ? tensor : at::empty({0}, like.options());
}

// ---- recurrent_layer ----------------------------------------------------------------------------

Forward forward_on_cpu(const Tensor& data, const Tensor& hx, const Optional& cx, const Tensor& w_ih,
                       const Tensor& w_hh, const Optional& b_ih, const Optional& b_hh,
                       IntArrayRef batch_sizes, int64_t cell, bool reverse, bool keeps) {
  const Tensor cells = given(cx);
  const RecurrentLayer layer{data,        hx,          cells,
                             w_ih,        w_hh,        given(b_ih),
                             given(b_hh), batch_sizes, static_cast<RecurrentCell>(cell),
                             reverse};
  RecurrentResult result = recurrent_forward(layer, keeps);
  return {result.output, result.hy, or_nothing(result.cy, hx),
          keeps ? result.kept : or_nothing({}, hx)};
}

Forward forward_meta(const Tensor& data, const Tensor& hx, const Optional& cx, const Tensor&,
                     const Tensor&, const Optional&, const Optional&, IntArrayRef, int64_t cell,
                     bool, bool keeps) {
  const int64_t rows = data.size(0), hidden = hx.size(1);
  const at::TensorOptions options = hx.options();
  const int64_t kept = kept_by(static_cast<RecurrentCell>(cell)) * hidden;
  return {at::empty({rows, hidden}, options), at::empty(hx.sizes(), options),
          cx ? at::empty(hx.sizes(), options) : or_nothing({}, hx),
          keeps ? at::empty({rows, kept}, options) : or_nothing({}, hx)};
}

// ---- recurrent_layer_backward -------------------------------------------------------------------

Gradients backward_on_cpu(const Optional& of_output, const Optional& of_hy, const Optional& of_cy,
                          const Tensor& data, const Tensor& hx, const Optional& cx,
                          const Tensor& w_ih, const Tensor& w_hh, const Tensor& output,
                          const Tensor& kept, IntArrayRef batch_sizes, int64_t cell, bool reverse,
                          bool has_biases, bool of_data, bool of_weights) {
  const Tensor cells = given(cx);
  const Tensor bias = has_biases ? hx : Tensor();  // only asked whether there is one
  const RecurrentLayer layer{
      data,   hx, cells, w_ih, w_hh, bias, bias, batch_sizes, static_cast<RecurrentCell>(cell),
      reverse};
  const RecurrentResult forward{output, {}, {}, kept};
  const RecurrentGradients result = recurrent_backward(
      layer, forward, {given(of_output), given(of_hy), given(of_cy)}, of_data, of_weights);
  auto or_none = [&](const Tensor& tensor) { return or_nothing(tensor, hx); };
  return {or_none(result.data), result.hx,
          or_none(result.cx),   or_none(result.w_ih),
          or_none(result.w_hh), or_none(result.b_ih),
          or_none(result.b_hh)};
}

Gradients backward_meta(const Optional&, const Optional&, const Optional&, const Tensor& data,
                        const Tensor& hx, const Optional& cx, const Tensor& w_ih,
                        const Tensor& w_hh, const Tensor&, const Tensor&, IntArrayRef, int64_t,
                        bool, bool has_biases, bool of_data, bool of_weights) {
  auto like = [&](bool wanted, IntArrayRef sizes) {
    return at::empty(wanted ? sizes : IntArrayRef({0}), hx.options());
  };
  const IntArrayRef bias = w_hh.sizes().slice(0, 1);
  return {like(of_data, data.sizes()),         like(true, hx.sizes()),
          like(cx.has_value(), hx.sizes()),    like(of_weights, w_ih.sizes()),
          like(of_weights, w_hh.sizes()),      like(of_weights && has_biases, bias),
          like(of_weights && has_biases, bias)};
}

// ---- Gradients ----------------------------------------------------------------------------------

template <typename Function>
auto typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

Forward call_forward(const Tensor& data, const Tensor& hx, const Optional& cx, const Tensor& w_ih,
                     const Tensor& w_hh, const Optional& b_ih, const Optional& b_hh,
                     IntArrayRef batch_sizes, int64_t cell, bool reverse, bool keeps) {
  static const auto op = typed<decltype(forward_on_cpu)>("torch_xla::recurrent_layer");
  return op.call(data, hx, cx, w_ih, w_hh, b_ih, b_hh, batch_sizes, cell, reverse, keeps);
}

struct Inputs {
  explicit Inputs(AutogradContext& context)
      : saved(context.get_saved_variables()),
        batch_sizes(context.saved_data["batch_sizes"].toIntVector()),
        cell(static_cast<RecurrentCell>(context.saved_data["cell"].toInt())),
        reverse(context.saved_data["reverse"].toBool()) {}

  const Tensor& data() const { return saved[0]; }
  const Tensor& hx() const { return saved[1]; }
  const Tensor& cx() const { return saved[2]; }
  bool has_biases() const { return saved[5].defined(); }
  std::vector<Tensor> weights() const {
    const auto end = has_biases() ? saved.begin() + 7 : saved.begin() + 5;
    return {saved.begin() + 3, end};
  }

  variable_list saved;  // data, hx, cx, w_ih, w_hh, b_ih, b_hh, output, kept
  std::vector<int64_t> batch_sizes;
  RecurrentCell cell;
  bool reverse;
};

// As PyTorch composes it, to be differentiated again: only its layers of two directions know the
// reverse one.
variable_list composed(const Inputs& in) {
  std::vector<int64_t> sizes = in.batch_sizes;
  if (sizes.size() == 1) {
    sizes.assign(in.data().size(0) / sizes[0], sizes[0]);
  }
  const Tensor batch_sizes = at::tensor(sizes, at::kLong);
  const bool both = in.reverse, biases = in.has_biases();
  auto twice = [&](std::vector<Tensor> tensors) {
    const std::vector<Tensor> once = tensors;
    tensors.insert(tensors.end(), once.begin(), both ? once.end() : once.begin());
    return tensors;
  };
  const std::vector<Tensor> weights = twice(in.weights());
  const Tensor hx = at::stack(twice({in.hx()}));
  auto chosen = [&](const Tensor& output, const Tensor& hy) {
    const int64_t hidden = hy.size(-1);
    return variable_list{both ? output.narrow(1, hidden, hidden) : output,
                         hy.select(0, both ? 1 : 0)};
  };
  auto simple = [&](auto&& function) {
    auto [output, hy] =
        function(in.data(), batch_sizes, hx, weights, biases, 1, 0.0, /*train=*/true, both);
    return chosen(output, hy);
  };
  switch (in.cell) {
    case RecurrentCell::Relu:
      return simple([](auto&&... given) { return at::native::rnn_relu(given...); });
    case RecurrentCell::Tanh:
      return simple([](auto&&... given) { return at::native::rnn_tanh(given...); });
    case RecurrentCell::Gru:
      return simple([](auto&&... given) { return at::native::gru(given...); });
    case RecurrentCell::Lstm:
      break;
  }
  const std::vector<Tensor> states = {hx, at::stack(twice({in.cx()}))};
  auto [output, hy, cy] = at::native::lstm(in.data(), batch_sizes, states, weights, biases, 1, 0.0,
                                           /*train=*/true, both);
  variable_list results = chosen(output, hy);
  results.push_back(cy.select(0, both ? 1 : 0));
  return results;
}

struct RecurrentFunction : torch::autograd::Function<RecurrentFunction> {
  static constexpr size_t kInputs = 7, kArguments = 11;

  static variable_list forward(AutogradContext* context, const Tensor& data, const Tensor& hx,
                               const Optional& cx, const Tensor& w_ih, const Tensor& w_hh,
                               const Optional& b_ih, const Optional& b_hh, IntArrayRef batch_sizes,
                               int64_t cell, bool reverse, bool keeps) {
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [output, hy, cy, kept] =
        call_forward(data, hx, cx, w_ih, w_hh, b_ih, b_hh, batch_sizes, cell, reverse, keeps);
    context->save_for_backward(
        {data, hx, given(cx), w_ih, w_hh, given(b_ih), given(b_hh), output, kept});
    context->saved_data["batch_sizes"] = batch_sizes.vec();
    context->saved_data["cell"] = cell;
    context->saved_data["reverse"] = reverse;
    context->mark_non_differentiable({kept});
    context->set_materialize_grads(false);
    return {output, hy, cy, kept};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Inputs in(*context);
    variable_list results = at::GradMode::is_enabled() ? differentiable(*context, in, gradients)
                                                       : plain(*context, in, gradients);
    for (size_t i = 0; i < kInputs; ++i) {
      if (!is_asked(*context, in, i)) {
        results[i] = Tensor();
      }
    }
    results.resize(kArguments);
    return results;
  }

 private:
  // Autograd counts the tensors that there are.
  static bool is_asked(const AutogradContext& context, const Inputs& in, size_t input) {
    const auto defined = [](const Tensor& tensor) { return tensor.defined(); };
    const auto begin = in.saved.begin();
    return in.saved[input].defined() &&
           context.needs_input_grad(std::count_if(begin, begin + input, defined));
  }

  static variable_list plain(AutogradContext& context, const Inputs& in,
                             const variable_list& gradients) {
    static const auto op = typed<decltype(backward_on_cpu)>("torch_xla::recurrent_layer_backward");
    bool of_weights = false;
    for (size_t i = 3; i < kInputs; ++i) {
      of_weights = of_weights || is_asked(context, in, i);
    }
    const bool is_lstm = in.cell == RecurrentCell::Lstm;
    auto [data, hx, cx, w_ih, w_hh, b_ih, b_hh] =
        op.call(optional(gradients[0]), optional(gradients[1]),
                is_lstm ? optional(gradients[2]) : std::nullopt, in.data(), in.hx(),
                optional(in.cx()), in.saved[3], in.saved[4], in.saved[7], in.saved[8],
                in.batch_sizes, static_cast<int64_t>(in.cell), in.reverse, in.has_biases(),
                is_asked(context, in, 0), of_weights);
    return {data, hx, cx, w_ih, w_hh, b_ih, b_hh};
  }

  static variable_list differentiable(AutogradContext& context, const Inputs& in,
                                      const variable_list& gradients) {
    variable_list results = composed(in), outputs, seeds, inputs;
    for (size_t i = 0; i < results.size(); ++i) {
      if (gradients[i].defined()) {
        outputs.push_back(results[i]);
        seeds.push_back(gradients[i]);
      }
    }
    for (size_t i = 0; i < kInputs; ++i) {
      if (is_asked(context, in, i)) {
        inputs.push_back(in.saved[i]);
      }
    }
    const variable_list found = torch::autograd::grad(outputs, inputs, seeds, /*retain_graph=*/true,
                                                      /*create_graph=*/true, /*allow_unused=*/true);
    variable_list all(kInputs);
    for (size_t i = 0, next = 0; i < kInputs; ++i) {
      if (is_asked(context, in, i)) {
        all[i] = found[next++];
      }
    }
    return all;
  }
};

Forward differentiable_layer(const Tensor& data, const Tensor& hx, const Optional& cx,
                             const Tensor& w_ih, const Tensor& w_hh, const Optional& b_ih,
                             const Optional& b_hh, IntArrayRef batch_sizes, int64_t cell,
                             bool reverse, bool keeps) {
  const variable_list results = RecurrentFunction::apply(data, hx, cx, w_ih, w_hh, b_ih, b_hh,
                                                         batch_sizes, cell, reverse, keeps);
  return {results[0], results[1], results[2], results[3]};
}

TORCH_LIBRARY_FRAGMENT(torch_xla, m) {
  m.def(
      "recurrent_layer(Tensor data, Tensor hx, Tensor? cx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, "
      "Tensor? b_hh, int[] batch_sizes, int cell, bool reverse, bool keeps) -> (Tensor, Tensor, "
      "Tensor, Tensor)");
  m.def(
      "recurrent_layer_backward(Tensor? of_output, Tensor? of_hy, Tensor? of_cy, Tensor data, "
      "Tensor hx, Tensor? cx, Tensor w_ih, Tensor w_hh, Tensor output, Tensor kept, int[] "
      "batch_sizes, int cell, bool reverse, bool has_biases, bool of_data, bool of_weights) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(torch_xla, CPU, m) {
  m.impl("recurrent_layer", &forward_on_cpu);
  m.impl("recurrent_layer_backward", &backward_on_cpu);
}

TORCH_LIBRARY_IMPL(torch_xla, Meta, m) {
  m.impl("recurrent_layer", &forward_meta);
  m.impl("recurrent_layer_backward", &backward_meta);
}

TORCH_LIBRARY_IMPL(torch_xla, AutogradXLA, m) { m.impl("recurrent_layer", &differentiable_layer); }

}  // namespace

std::tuple<Tensor, Tensor, Tensor> recurrent_layer(const RecurrentLayer& in) {
  const bool learns = torch::autograd::compute_requires_grad(in.data, in.hx, in.cx, in.w_ih,
                                                             in.w_hh, in.b_ih, in.b_hh);
  const bool repeats = in.batch_sizes.size() > 1 || in.data.size(0) > in.batch_sizes[0];
  // The CPU's steps keep no biases, and weights only for the gradient of what they multiply:
  // programs may change others before the backward pass.
  const auto unless = [learns](bool kept, const Tensor& given) {
    return optional(learns && !kept && given.defined() ? given.clone() : given);
  };
  auto [output, hy, cy, kept] =
      call_forward(in.data, in.hx, optional(in.cx), *unless(in.data.requires_grad(), in.w_ih),
                   *unless(repeats || in.hx.requires_grad(), in.w_hh), unless(false, in.b_ih),
                   unless(false, in.b_hh), in.batch_sizes, static_cast<int64_t>(in.cell),
                   in.reverse, at::GradMode::is_enabled());
  return {output, hy, cy};
}

}  // namespace torch_xla
