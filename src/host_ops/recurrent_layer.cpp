#include "host_ops/recurrent_layer.h"

#include "host_ops/faster_kernel.h"
#include "host_ops/product.h"
#include "host_ops/team.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <vector>

namespace torch_xla {

namespace {

using at::Tensor;

struct Step {
  int64_t first;  // of its rows in the data
  int64_t rows;

  Tensor of(const Tensor& matrix) const { return matrix.narrow(0, first, rows); }
};

// In the order in which the layer goes.
std::vector<Step> steps_of(const RecurrentLayer& layer) {
  std::vector<Step> steps;
  const bool alike = layer.batch_sizes.size() == 1;
  for (int64_t first = 0; first < layer.data.size(0); first += steps.back().rows) {
    steps.push_back({first, layer.batch_sizes[alike ? 0 : steps.size()]});
  }
  if (layer.reverse) {
    std::reverse(steps.begin(), steps.end());
  }
  return steps;
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  if (OwnProducts::wanted()) {
    const int64_t rows = input.size(0), columns = weight.size(0);
    Tensor result = bias.defined()
                        ? bias.expand({rows, columns}).clone(at::MemoryFormat::Contiguous)
                        : at::empty({rows, columns}, input.options());
    if (multiply(input, weight.t(), result, bias.defined() ? 1 : 0)) {
      return result;
    }
  }
  return at::linear(input, weight, bias);
}

// Of gradients, whose bits are no composition's.
Tensor product(const Tensor& x, const Tensor& y) {
  Tensor result = at::empty({x.size(0), y.size(1)}, x.options());
  return multiply(x, y, result) ? result : at::mm_out(result, x, y);
}

// ---- Forward: the operators of PyTorch's composition, in its order ------------------------------

// One step's share of what all steps have: states of as many sequences as go on are its first rows.
class ForwardStep {
 public:
  ForwardStep(const RecurrentLayer& layer, Tensor of_data, Tensor hidden, Tensor cell,
              Tensor output, Tensor kept)
      : of_data_(std::move(of_data)),
        of_hidden_(linear(hidden, layer.w_hh, layer.b_hh)),
        hidden_(std::move(hidden)),
        cell_(std::move(cell)),
        output_(std::move(output)),
        kept_(std::move(kept)) {}

  void run(RecurrentCell kind) {
    switch (kind) {
      case RecurrentCell::Relu:
        at::relu_(at::add_out(output_, of_hidden_, of_data_));
        break;
      case RecurrentCell::Tanh:
        at::add_out(output_, of_hidden_, of_data_).tanh_();
        break;
      case RecurrentCell::Lstm:
        lstm();
        break;
      case RecurrentCell::Gru:
        gru();
        break;
    }
    hidden_.copy_(output_);
  }

 private:
  Tensor part(const Tensor& matrix, int64_t index, int64_t count = 1) const {
    const int64_t hidden = hidden_.size(1);
    return matrix.narrow(1, index * hidden, count * hidden);
  }

  void lstm() {
    Tensor gates = part(kept_, 0, 4);
    at::add_out(gates, of_hidden_, of_data_);
    part(gates, 0, 2).sigmoid_();
    Tensor in = part(gates, 0), forget = part(gates, 1), candidate = part(gates, 2).tanh_();
    Tensor out = part(gates, 3).sigmoid_(), next = part(kept_, 4);
    at::mul_out(next, forget, cell_).add_(in * candidate);
    cell_.copy_(next);
    at::tanh_out(output_, next).mul_(out);
  }

  void gru() {
    Tensor gates = part(kept_, 0, 2), candidate = part(kept_, 2), of_hidden = part(kept_, 3);
    at::add_out(gates, part(of_hidden_, 0, 2), part(of_data_, 0, 2)).sigmoid_();
    of_hidden.copy_(part(of_hidden_, 2));
    at::mul_out(candidate, of_hidden, part(gates, 0)).add_(part(of_data_, 2)).tanh_();
    at::sub_out(output_, hidden_, candidate).mul_(part(gates, 1)).add_(candidate);
  }

  Tensor of_data_, of_hidden_, hidden_, cell_, output_, kept_;
};

// ---- Backward -----------------------------------------------------------------------------------

// What a step reads and writes of one sequence, `hidden` numbers in each part.
template <typename T>
struct Row {
  const T* kept;    // as forward left it
  const T* output;  // of the step
  const T* before;  // the hidden state it began with
  const T* cell;    // tanh of an LSTM's cell, and the cell it began with
  const T* cell_before;
  T* state;       // gradient of the hidden state: of a GRU also what goes past the product
  T* cell_state;  // the same of the cell
  T* of_data;     // gradients of what the two products gave
  T* of_hidden;
  int64_t hidden;
};

template <typename T>
void simple_row(const Row<T>& row, bool tanh) {
  using Wide = at::opmath_type<T>;
  for (int64_t i = 0; i < row.hidden; ++i) {
    const Wide gradient = row.state[i], y = row.output[i];
    row.of_data[i] = tanh ? gradient * (1 - y * y) : y > 0 ? gradient : Wide(0);
  }
}

template <typename T>
void lstm_row(const Row<T>& row) {
  using Wide = at::opmath_type<T>;
  const int64_t n = row.hidden;
  for (int64_t i = 0; i < n; ++i) {
    const Wide in = row.kept[i], forget = row.kept[n + i], candidate = row.kept[2 * n + i];
    const Wide out = row.kept[3 * n + i], cell = row.cell[i], gradient = row.state[i];
    const Wide of_cell = row.cell_state[i] + gradient * out * (1 - cell * cell);
    row.of_data[i] = of_cell * candidate * in * (1 - in);
    row.of_data[n + i] = of_cell * Wide(row.cell_before[i]) * forget * (1 - forget);
    row.of_data[2 * n + i] = of_cell * in * (1 - candidate * candidate);
    row.of_data[3 * n + i] = gradient * cell * out * (1 - out);
    row.cell_state[i] = of_cell * forget;
  }
}

template <typename T>
void gru_row(const Row<T>& row) {
  using Wide = at::opmath_type<T>;
  const int64_t n = row.hidden;
  for (int64_t i = 0; i < n; ++i) {
    const Wide reset = row.kept[i], update = row.kept[n + i], candidate = row.kept[2 * n + i];
    const Wide of_hidden = row.kept[3 * n + i], gradient = row.state[i], before = row.before[i];
    const Wide of_candidate = gradient * (1 - update) * (1 - candidate * candidate);
    const Wide of_reset = of_candidate * of_hidden * reset * (1 - reset);
    const Wide of_update = gradient * (before - candidate) * update * (1 - update);
    row.of_data[i] = row.of_hidden[i] = of_reset;
    row.of_data[n + i] = row.of_hidden[n + i] = of_update;
    row.of_data[2 * n + i] = of_candidate;
    row.of_hidden[2 * n + i] = of_candidate * reset;
    row.state[i] = gradient * update;
  }
}

// What each step began with, of what each step ended with.
Tensor states_before(const std::vector<Step>& steps, const Tensor& first, const Tensor& after) {
  Tensor before = at::empty({after.size(0), after.size(1)}, after.options());
  Tensor state = first.clone(at::MemoryFormat::Contiguous);
  for (const Step& step : steps) {
    Tensor now = state.narrow(0, 0, step.rows);
    step.of(before).copy_(now);
    now.copy_(step.of(after));
  }
  return before;
}

class Backward {
 public:
  Backward(const RecurrentLayer& layer, const RecurrentResult& forward,
           const std::array<Tensor, 3>& gradients)
      : layer_(layer), steps_(steps_of(layer)), kept_(forward.kept), output_(forward.output) {
    const int64_t hidden = layer.hx.size(1);
    const Tensor& like = layer.hx;
    before_ = states_before(steps_, layer.hx, output_);
    if (gradients[0].defined()) {
      of_output_ = gradients[0].contiguous();
    }
    state_ = begin(gradients[1]);
    if (layer.cell == RecurrentCell::Lstm) {
      const Tensor cells = kept_.narrow(1, 4 * hidden, hidden);
      cell_before_ = states_before(steps_, layer.cx, cells);
      cell_ = at::tanh(cells).contiguous();
      cell_state_ = begin(gradients[2]);
    }
    of_data_ = at::empty({output_.size(0), gates_of(layer.cell) * hidden}, like.options());
    of_hidden_ = layer.cell == RecurrentCell::Gru ? at::empty_like(of_data_) : of_data_;
  }

  RecurrentGradients run(bool of_data, bool of_weights) {
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, output_.scalar_type(), "recurrent_layer_backward",
                                   [&] { walk<scalar_t>(); });
    RecurrentGradients result;
    result.hx = state_;
    result.cx = cell_state_;
    if (of_data) {
      result.data = product(of_data_, layer_.w_ih);
    }
    if (of_weights) {
      result.w_ih = product(of_data_.t(), layer_.data);
      result.w_hh = product(of_hidden_.t(), before_);
      if (layer_.b_ih.defined()) {
        result.b_ih = of_data_.sum(0);
        result.b_hh = of_hidden_.is_same(of_data_) ? result.b_ih.clone() : of_hidden_.sum(0);
      }
    }
    return result;
  }

 private:
  Tensor begin(const Tensor& gradient) const {
    return gradient.defined() ? gradient.clone(at::MemoryFormat::Contiguous)
                              : at::zeros(layer_.hx.sizes(), layer_.hx.options());
  }

  template <typename T>
  void walk() {
    constexpr int64_t kNumbersAThread = 1 << 14;
    const int64_t grain = std::max<int64_t>(1, kNumbersAThread / state_.size(1));
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      Tensor state = state_.narrow(0, 0, step->rows);
      if (of_output_.defined()) {
        state.add_(step->of(of_output_));
      }
      run_in_team(step->rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          run_row<T>(*step, row);
        }
      });
      const Tensor of_hidden = step->of(of_hidden_);
      const float beta = layer_.cell == RecurrentCell::Gru ? 1 : 0;  // what goes past the product
      if (!multiply(of_hidden, layer_.w_hh, state, beta)) {
        state.addmm_(of_hidden, layer_.w_hh, beta);
      }
    }
  }

  template <typename T>
  void run_row(const Step& step, int64_t index) {
    auto at_row = [](const Tensor& matrix, int64_t row) {
      return matrix.defined() ? matrix.mutable_data_ptr<T>() + row * matrix.size(1) : nullptr;
    };
    const int64_t n = step.first + index;
    const Row<T> row{at_row(kept_, n),           at_row(output_, n),
                     at_row(before_, n),         at_row(cell_, n),
                     at_row(cell_before_, n),    at_row(state_, index),
                     at_row(cell_state_, index), at_row(of_data_, n),
                     at_row(of_hidden_, n),      state_.size(1)};
    switch (layer_.cell) {
      case RecurrentCell::Lstm:
        return lstm_row(row);
      case RecurrentCell::Gru:
        return gru_row(row);
      default:
        return simple_row(row, layer_.cell == RecurrentCell::Tanh);
    }
  }

  const RecurrentLayer& layer_;
  std::vector<Step> steps_;
  Tensor kept_, output_, before_, cell_, cell_before_, of_output_;
  Tensor state_, cell_state_, of_data_, of_hidden_;
};

RecurrentResult forward(const RecurrentLayer& layer, bool keeps) {
  const int64_t rows = layer.data.size(0), hidden = layer.hx.size(1);
  const int64_t width = kept_by(layer.cell) * hidden;
  const at::TensorOptions options = layer.hx.options();
  const Tensor of_data = linear(layer.data, layer.w_ih, layer.b_ih);
  RecurrentResult result;
  result.output = at::empty({rows, hidden}, options);
  result.hy = layer.hx.clone(at::MemoryFormat::Contiguous);
  if (layer.cell == RecurrentCell::Lstm) {
    result.cy = layer.cx.clone(at::MemoryFormat::Contiguous);
  }
  result.kept = at::empty({keeps ? rows : layer.hx.size(0), width}, options);
  for (const Step& step : steps_of(layer)) {
    auto going_on = [&](const Tensor& states) {
      return states.defined() ? states.narrow(0, 0, step.rows) : Tensor();
    };
    ForwardStep(layer, step.of(of_data), going_on(result.hy), going_on(result.cy),
                step.of(result.output), keeps ? step.of(result.kept) : going_on(result.kept))
        .run(layer.cell);
  }
  return result;
}

bool is_widened(const RecurrentLayer& layer) {
  const at::ScalarType dtype = layer.data.scalar_type();
  return dtype == at::kHalf || is_better_widened(dtype);
}

Tensor as(const Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

struct Widened {
  explicit Widened(const RecurrentLayer& of)
      : data(as(of.data, at::kFloat)),
        hx(as(of.hx, at::kFloat)),
        cx(as(of.cx, at::kFloat)),
        w_ih(as(of.w_ih, at::kFloat)),
        w_hh(as(of.w_hh, at::kFloat)),
        layer{data,
              hx,
              cx,
              w_ih,
              w_hh,
              as(of.b_ih, at::kFloat),
              as(of.b_hh, at::kFloat),
              of.batch_sizes,
              of.cell,
              of.reverse} {}

  Tensor data, hx, cx, w_ih, w_hh;
  RecurrentLayer layer;
};

}  // namespace

RecurrentResult recurrent_forward(const RecurrentLayer& layer, bool keeps) {
  if (!is_widened(layer)) {
    return forward(layer, keeps);
  }
  const RecurrentResult wide = forward(Widened(layer).layer, keeps);
  const at::ScalarType dtype = layer.data.scalar_type();
  return {as(wide.output, dtype), as(wide.hy, dtype), as(wide.cy, dtype), as(wide.kept, dtype)};
}

RecurrentGradients recurrent_backward(const RecurrentLayer& layer, const RecurrentResult& forward,
                                      const std::array<Tensor, 3>& gradients, bool of_data,
                                      bool of_weights) {
  if (!is_widened(layer)) {
    return Backward(layer, forward, gradients).run(of_data, of_weights);
  }
  const Widened widened(layer);
  const RecurrentResult result{
      as(forward.output, at::kFloat), {}, {}, as(forward.kept, at::kFloat)};
  const std::array<Tensor, 3> seeds = {as(gradients[0], at::kFloat), as(gradients[1], at::kFloat),
                                       as(gradients[2], at::kFloat)};
  const RecurrentGradients wide = Backward(widened.layer, result, seeds).run(of_data, of_weights);
  auto narrow = [&](const Tensor& tensor) { return as(tensor, layer.data.scalar_type()); };
  return {narrow(wide.data), narrow(wide.hx),   narrow(wide.cx),  narrow(wide.w_ih),
          narrow(wide.w_hh), narrow(wide.b_ih), narrow(wide.b_hh)};
}

}  // namespace torch_xla
