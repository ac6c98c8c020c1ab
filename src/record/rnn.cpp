// LSTMs. PyTorch composes them of one step's operators on any device, but on the CPU of oneDNN's
// layers: so do we where its kernels can run, with the same operators in the same order.
#include "execution/export.h"
#include "record/cpu_forms.h"
#include "record/recorder.h"
#include "record/registration.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr int64_t kLstm = 2;  // oneDNN's kinds of cells

struct Lstm {
  const Tensor& input;
  at::TensorList hx;
  at::TensorList weights;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t weights_per_layer() const { return has_biases ? 4 : 2; }
};

c10::OperatorHandle find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

bool ask_onednn(const char* name) {
  c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::python_ks);  // it is no part of the user's program
  Stack stack;
  find_op(name).callBoxed(&stack);
  return stack[0].toBool();
}

// As PyTorch decides for the CPU; oneDNN's layer has no gradient in float16.
bool onednn_has(at::ScalarType dtype) {
  static const bool bfloat16 = ask_onednn("mkldnn::_is_mkldnn_bf16_supported");
  static const bool half = ask_onednn("mkldnn::_is_mkldnn_fp16_supported");
  return dtype == at::kFloat || (bfloat16 && dtype == at::kBFloat16) ||
         (half && dtype == at::kHalf && !at::GradMode::is_enabled());
}

at::ScalarType dtype_of_layers(const Tensor& input) {
  const bool cast = at::autocast::is_autocast_enabled(at::kXLA);
  return cast ? at::autocast::get_autocast_dtype(at::kXLA) : input.scalar_type();
}

bool has_projections(const Lstm& lstm) { return lstm.hx[0].size(2) != lstm.hx[1].size(2); }

bool is_for_onednn(const Lstm& lstm) {
  if (ExportScope::active() || lstm.hx.size() != 2 || !takes_cpu_form({lstm.input}) ||
      !takes_cpu_form(lstm.hx) || !takes_cpu_form(lstm.weights)) {
    return false;
  }
  const auto count = static_cast<int64_t>(lstm.weights.size());
  return at::globalContext().userEnabledMkldnn() && lstm.input.numel() != 0 &&
         onednn_has(lstm.input.scalar_type()) && onednn_has(dtype_of_layers(lstm.input)) &&
         !has_projections(lstm) &&
         count == lstm.layers * lstm.directions() * lstm.weights_per_layer();
}

using Layer = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Layer run_layer(const Lstm& lstm, const Tensor& input, const Tensor& hx, const Tensor& cx,
                int64_t index) {
  const at::TensorList weights =
      lstm.weights.slice(index * lstm.weights_per_layer(), lstm.weights_per_layer());
  auto bias = [&](size_t i) {
    return lstm.has_biases ? weights[i + 2] : at::zeros(weights[i].sizes(), weights[i].options());
  };
  Tensor of_hidden = bias(1);
  const bool reverse = index % lstm.directions() == 1;
  return at::mkldnn_rnn_layer(input, weights[0], weights[1], bias(0), of_hidden, hx, cx, reverse,
                              {}, kLstm, hx.size(1), lstm.layers, lstm.has_biases,
                              lstm.bidirectional, lstm.batch_first,
                              /*train=*/at::GradMode::is_enabled());
}

std::tuple<Tensor, Tensor, Tensor> run_layers(const Lstm& lstm) {
  Tensor sequence = (lstm.batch_first ? lstm.input.transpose(0, 1) : lstm.input).contiguous();
  const Tensor hx = lstm.hx[0].contiguous(), cx = lstm.hx[1].contiguous();
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < lstm.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < lstm.directions(); ++direction) {
      const int64_t index = layer * lstm.directions() + direction;
      auto [output, h, c, workspace] =
          run_layer(lstm, sequence, hx.select(0, index), cx.select(0, index), index);
      outputs.push_back(output);
      hy.push_back(h);
      cy.push_back(c);
    }
    sequence = lstm.bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (lstm.dropout != 0 && lstm.train && layer < lstm.layers - 1) {
      sequence = at::dropout(sequence, lstm.dropout, /*train=*/true);
    }
  }
  return {lstm.batch_first ? sequence.transpose(0, 1) : sequence, at::stack(hy), at::stack(cy)};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx,
                                        at::TensorList weights, bool has_biases, int64_t layers,
                                        double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Lstm lstm{input,   hx,    weights,       has_biases, layers,
                  dropout, train, bidirectional, batch_first};
  if (is_for_onednn(lstm)) {
    return run_layers(lstm);
  }
  return at::native::lstm(input, hx, weights, has_biases, layers, dropout, train, bidirectional,
                          batch_first);
}

// oneDNN's layer makes the workspace that its gradient needs when grad mode is on, a state of the
// thread, whatever `train` says. The recorded operator is one of ours that goes by `train`. It has
// no meta kernel, because only oneDNN knows the size of a workspace: plans ask the CPU's kernel.
void record_layer(const c10::OperatorHandle&, Stack* stack) {
  static const c10::OperatorHandle op = find_op("torch_xla::mkldnn_rnn_layer");
  stack->back() = stack->back().toBool() || at::GradMode::is_enabled();
  record_fallback(op, stack);
}

void run_layer_on_cpu(const c10::OperatorHandle&, Stack* stack) {
  static const c10::OperatorHandle op = find_op("aten::mkldnn_rnn_layer");
  at::AutoGradMode makes_workspace(stack->back().toBool());
  op.callBoxed(stack);
}

TORCH_LIBRARY_FRAGMENT(torch_xla, m) {
  m.def(
      "mkldnn_rnn_layer(Tensor input, Tensor weight0, Tensor weight1, Tensor weight2, "
      "Tensor weight3, Tensor hx_, Tensor cx_, bool reverse, int[] batch_sizes, int mode, "
      "int hidden_size, int num_layers, bool has_biases, bool bidirectional, bool batch_first, "
      "bool train) -> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(torch_xla, CPU, m) {
  m.impl("mkldnn_rnn_layer", torch::CppFunction::makeFromBoxedFunction<&run_layer_on_cpu>());
}

// Composed of differentiable parts.
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("lstm.input", &lstm); }

}  // namespace

void register_recurrent_layers(torch::Library& m) {
  m.impl("lstm.input", &lstm);
  m.impl("mkldnn_rnn_layer", torch::CppFunction::makeFromBoxedFunction<&record_layer>());
}

}  // namespace torch_xla
