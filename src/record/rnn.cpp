// Recurrent layers. PyTorch composes them of one step's operators on any device, LSTMs on the CPU
// of oneDNN's layers: so do we where its kernels can run, with the same operators in the same
// order. What the CPU composes of steps is an operator of ours for each layer there
// (recurrent_layer.cpp), so that graphs do not grow with sequences.
#include "execution/export.h"
#include "record/cpu_forms.h"
#include "record/recorder.h"
#include "record/recurrent_layer.h"
#include "record/registration.h"
#include "record/transformed.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

namespace torch_xla {

namespace {

using at::Tensor;
using torch::jit::Stack;

// A call of torch.lstm, gru, rnn_tanh or rnn_relu. In packed sequences the rows of all steps follow
// each other, so many at each.
struct Network {
  RecurrentCell cell;
  const Tensor& input;
  const Tensor* batch_sizes;  // of packed sequences, on the CPU; null: [steps, sequences, inputs]
  at::TensorList hx;          // an LSTM's cells, too
  at::TensorList weights;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;

  bool is_lstm() const { return cell == RecurrentCell::Lstm; }
  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t weights_per_layer() const { return has_biases ? 4 : 2; }
  at::TensorList weights_of(int64_t layer) const {
    return weights.slice(layer * weights_per_layer(), weights_per_layer());
  }
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

// ---- Whose layers -------------------------------------------------------------------------------

enum class LayerKind { None, OneDnn, Own };

bool suits_cpu_kernels(const Network& network) {
  const auto count = static_cast<int64_t>(network.weights.size());
  return !ExportScope::active() && takes_cpu_form({network.input}) && takes_cpu_form(network.hx) &&
         takes_cpu_form(network.weights) && network.input.numel() != 0 &&
         network.hx.size() == (network.is_lstm() ? 2 : 1) &&
         count == network.layers * network.directions() * network.weights_per_layer();
}

bool is_for_onednn(const Network& network) {
  const bool has_projections = network.is_lstm() && network.hx[0].size(2) != network.hx[1].size(2);
  return network.is_lstm() && network.batch_sizes == nullptr && !has_projections &&
         at::globalContext().userEnabledMkldnn() && onednn_has(network.input.scalar_type()) &&
         onednn_has(dtype_of_layers(network.input));
}

// Autocast mixes dtypes.
bool has_formulas_of_pytorch(const Tensor& tensor) {
  return at::autocast::is_autocast_enabled(at::kXLA) || is_transformed(tensor);
}

bool fits(const Tensor& tensor, at::ScalarType dtype, at::IntArrayRef sizes) {
  return tensor.scalar_type() == dtype && tensor.sizes() == sizes &&
         !has_formulas_of_pytorch(tensor);
}

bool weights_fit(const Network& network, int64_t inputs, int64_t hidden) {
  const at::ScalarType dtype = network.input.scalar_type();
  const int64_t gates = gates_of(network.cell) * hidden, directions = network.directions();
  for (int64_t layer = 0; layer < network.layers * directions; ++layer) {
    const at::TensorList weights = network.weights_of(layer);
    if (!fits(weights[0], dtype, {gates, layer < directions ? inputs : directions * hidden}) ||
        !fits(weights[1], dtype, {gates, hidden}) ||
        (network.has_biases &&
         !(fits(weights[2], dtype, {gates}) && fits(weights[3], dtype, {gates})))) {
      return false;
    }
  }
  return true;
}

bool batch_sizes_fit(const Tensor& sizes, int64_t rows, int64_t sequences) {
  if (!sizes.is_cpu() || sizes.dim() != 1 || sizes.scalar_type() != at::kLong ||
      sizes.numel() == 0 || !sizes.is_contiguous()) {
    return false;
  }
  const int64_t* begin = sizes.const_data_ptr<int64_t>();
  const int64_t* end = begin + sizes.numel();
  return *begin == sequences && end[-1] > 0 && std::is_sorted(begin, end, std::greater<>()) &&
         std::accumulate(begin, end, int64_t{0}) == rows;
}

// Anything else PyTorch composes, or says what is wrong with it.
bool is_for_own(const Network& network) {
  const Tensor& input = network.input;
  const at::ScalarType dtype = input.scalar_type();
  if (!at::isFloatingType(dtype) || c10::isFloat8Type(dtype) || has_formulas_of_pytorch(input) ||
      input.dim() != (network.batch_sizes != nullptr ? 2 : 3) || network.hx[0].dim() != 3) {
    return false;
  }
  const int64_t hidden = network.hx[0].size(2), sequences = network.hx[0].size(1);
  for (const Tensor& state : network.hx) {
    if (!fits(state, dtype, {network.layers * network.directions(), sequences, hidden})) {
      return false;
    }
  }
  const bool rows_fit = network.batch_sizes != nullptr
                            ? batch_sizes_fit(*network.batch_sizes, input.size(0), sequences)
                            : input.size(network.batch_first ? 0 : 1) == sequences;
  return hidden > 0 && rows_fit && weights_fit(network, input.size(-1), hidden);
}

LayerKind kind_of(const Network& network) {
  if (!suits_cpu_kernels(network)) {
    return LayerKind::None;
  }
  return is_for_onednn(network) ? LayerKind::OneDnn
         : is_for_own(network)  ? LayerKind::Own
                                : LayerKind::None;
}

// ---- Layers -------------------------------------------------------------------------------------

using Layer = std::tuple<Tensor, Tensor, Tensor>;  // the output, and the last hidden and cell state

Layer run_onednn(const Network& network, const Tensor& input, const Tensor& hx, const Tensor& cx,
                 int64_t index) {
  const at::TensorList weights = network.weights_of(index);
  auto bias = [&](size_t i) {
    return network.has_biases ? weights[i + 2]
                              : at::zeros(weights[i].sizes(), weights[i].options());
  };
  Tensor of_hidden = bias(1);
  const bool reverse = index % network.directions() == 1;
  auto [output, hy, cy, workspace] = at::mkldnn_rnn_layer(
      input, weights[0], weights[1], bias(0), of_hidden, hx, cx, reverse, {},
      static_cast<int64_t>(network.cell), hx.size(1), network.layers, network.has_biases,
      network.bidirectional, network.batch_first, /*train=*/at::GradMode::is_enabled());
  return {output, hy, cy};
}

Layer run_own(const Network& network, const Tensor& input, const Tensor& hx, const Tensor& cx,
              int64_t index) {
  const at::TensorList weights = network.weights_of(index);
  const Tensor none;
  const int64_t sequences = hx.size(0);
  const bool packed = network.batch_sizes != nullptr;
  const at::IntArrayRef batch_sizes =
      packed ? at::IntArrayRef(network.batch_sizes->const_data_ptr<int64_t>(),
                               static_cast<size_t>(network.batch_sizes->numel()))
             : at::IntArrayRef(sequences);
  const Tensor data = packed ? input : input.flatten(0, 1);
  auto [output, hy, cy] =
      recurrent_layer({data, hx, cx, weights[0], weights[1], network.has_biases ? weights[2] : none,
                       network.has_biases ? weights[3] : none, batch_sizes, network.cell,
                       index % network.directions() == 1});
  return {packed ? output : output.unflatten(0, {input.size(0), sequences}), hy, cy};
}

std::tuple<Tensor, Tensor, Tensor> run_layers(const Network& network, LayerKind kind) {
  auto in_order = [&](const Tensor& t) { return network.batch_first ? t.transpose(0, 1) : t; };
  Tensor sequence = in_order(network.input).contiguous();
  const Tensor hx = network.hx[0].contiguous();
  const Tensor cx = network.is_lstm() ? network.hx[1].contiguous() : Tensor();
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < network.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < network.directions(); ++direction) {
      const int64_t index = layer * network.directions() + direction;
      auto [output, h, c] = (kind == LayerKind::OneDnn ? run_onednn : run_own)(
          network, sequence, hx.select(0, index), cx.defined() ? cx.select(0, index) : cx, index);
      outputs.push_back(output);
      hy.push_back(h);
      cy.push_back(c);
    }
    sequence = network.bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (network.dropout != 0 && network.train && layer < network.layers - 1) {
      sequence = at::dropout(sequence, network.dropout, /*train=*/true);
    }
  }
  // Our layer's gradient needs its output, the CPU's steps keep their own: programs may change it.
  if (kind == LayerKind::Own && !network.bidirectional && at::GradMode::is_enabled()) {
    sequence = sequence.clone();
  }
  return {in_order(sequence), at::stack(hy), network.is_lstm() ? at::stack(cy) : Tensor()};
}

// ---- PyTorch's operators ------------------------------------------------------------------------

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx,
                                        at::TensorList weights, bool has_biases, int64_t layers,
                                        double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Network network{RecurrentCell::Lstm, input,  nullptr, hx,    weights,
                        has_biases,          layers, dropout, train, bidirectional,
                        batch_first};
  const LayerKind kind = kind_of(network);
  return kind != LayerKind::None ? run_layers(network, kind)
                                 : at::native::lstm(input, hx, weights, has_biases, layers, dropout,
                                                    train, bidirectional, batch_first);
}

std::tuple<Tensor, Tensor, Tensor> packed_lstm(const Tensor& data, const Tensor& batch_sizes,
                                               at::TensorList hx, at::TensorList weights,
                                               bool has_biases, int64_t layers, double dropout,
                                               bool train, bool bidirectional) {
  const Network network{RecurrentCell::Lstm,  data,   &batch_sizes, hx,    weights,
                        has_biases,           layers, dropout,      train, bidirectional,
                        /*batch_first=*/false};
  const LayerKind kind = kind_of(network);
  return kind != LayerKind::None ? run_layers(network, kind)
                                 : at::native::lstm(data, batch_sizes, hx, weights, has_biases,
                                                    layers, dropout, train, bidirectional);
}

using Function = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, at::TensorList, bool,
                                                int64_t, double, bool, bool, bool);
using PackedFunction = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&,
                                                      at::TensorList, bool, int64_t, double, bool,
                                                      bool);

template <RecurrentCell kCell, Function kComposed>
std::tuple<Tensor, Tensor> recurrent(const Tensor& input, const Tensor& hx, at::TensorList weights,
                                     bool has_biases, int64_t layers, double dropout, bool train,
                                     bool bidirectional, bool batch_first) {
  const Network network{kCell,   input, nullptr,       hx,         weights, has_biases, layers,
                        dropout, train, bidirectional, batch_first};
  if (const LayerKind kind = kind_of(network); kind != LayerKind::None) {
    auto [output, hy, none] = run_layers(network, kind);
    return {output, hy};
  }
  return kComposed(input, hx, weights, has_biases, layers, dropout, train, bidirectional,
                   batch_first);
}

template <RecurrentCell kCell, PackedFunction kComposed>
std::tuple<Tensor, Tensor> packed_recurrent(const Tensor& data, const Tensor& batch_sizes,
                                            const Tensor& hx, at::TensorList weights,
                                            bool has_biases, int64_t layers, double dropout,
                                            bool train, bool bidirectional) {
  const Network network{
      kCell, data,          &batch_sizes,         hx, weights, has_biases, layers, dropout,
      train, bidirectional, /*batch_first=*/false};
  if (const LayerKind kind = kind_of(network); kind != LayerKind::None) {
    auto [output, hy, none] = run_layers(network, kind);
    return {output, hy};
  }
  return kComposed(data, batch_sizes, hx, weights, has_biases, layers, dropout, train,
                   bidirectional);
}

void register_functions(torch::Library& m) {
  using Cell = RecurrentCell;
  m.impl("lstm.input", &lstm);
  m.impl("lstm.data", &packed_lstm);
  m.impl("gru.input", &recurrent<Cell::Gru, at::native::gru>);
  m.impl("gru.data", &packed_recurrent<Cell::Gru, at::native::gru>);
  m.impl("rnn_tanh.input", &recurrent<Cell::Tanh, at::native::rnn_tanh>);
  m.impl("rnn_tanh.data", &packed_recurrent<Cell::Tanh, at::native::rnn_tanh>);
  m.impl("rnn_relu.input", &recurrent<Cell::Relu, at::native::rnn_relu>);
  m.impl("rnn_relu.data", &packed_recurrent<Cell::Relu, at::native::rnn_relu>);
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
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { register_functions(m); }

}  // namespace

void register_recurrent_layers(torch::Library& m) {
  register_functions(m);
  m.impl("mkldnn_rnn_layer", torch::CppFunction::makeFromBoxedFunction<&record_layer>());
}

}  // namespace torch_xla
