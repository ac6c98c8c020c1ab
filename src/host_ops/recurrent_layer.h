// A layer of a recurrent network in one direction, on CPU tensors. Forward calls the operators of
// which PyTorch composes it for the CPU; backward multiplies once for all steps where autograd adds
// up a product for each. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace torch_xla {

enum class RecurrentCell : int64_t { Relu, Tanh, Lstm, Gru };  // as oneDNN and cuDNN count them

// Parts of a gate matrix, each as wide as the hidden state.
constexpr int64_t gates_of(RecurrentCell cell) {
  return cell == RecurrentCell::Lstm ? 4 : cell == RecurrentCell::Gru ? 3 : 1;
}

// What backward needs of each step besides the output, in widths of the hidden state: of an LSTM
// its gates and the cell, of a GRU its gates and the hidden state's part of the new one.
constexpr int64_t kept_by(RecurrentCell cell) {
  return cell == RecurrentCell::Lstm ? 5 : cell == RecurrentCell::Gru ? 4 : 0;
}

struct RecurrentLayer {
  const at::Tensor& data;  // [rows of all steps, inputs], step after step
  const at::Tensor& hx;    // [sequences, hidden]
  const at::Tensor& cx;    // of an LSTM, else undefined
  const at::Tensor& w_ih;
  const at::Tensor& w_hh;
  at::Tensor b_ih, b_hh;        // undefined: none
  at::IntArrayRef batch_sizes;  // rows of each step, none more than before; one is that of all
  RecurrentCell cell;
  bool reverse;
};

struct RecurrentResult {
  at::Tensor output, hy, cy, kept;
};

RecurrentResult recurrent_forward(const RecurrentLayer& layer, bool keeps);

struct RecurrentGradients {
  at::Tensor data, hx, cx, w_ih, w_hh, b_ih, b_hh;  // of the weights: undefined if not asked for
};

// `gradients`: of output, hy and cy, undefined where there is none.
RecurrentGradients recurrent_backward(const RecurrentLayer& layer, const RecurrentResult& forward,
                                      const std::array<at::Tensor, 3>& gradients, bool of_data,
                                      bool of_weights);

}  // namespace torch_xla
