#include "host_ops/row_norm.h"

#include "host_ops/kernel_call.h"
#include "host_ops/lane_sums.h"
#include "host_ops/lanes.h"
#include "host_ops/workers.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace torch_xla {

namespace {

using at::Tensor;
using torch::jit::Stack;

// Where the arguments of an operator stand; -1: it has none.
struct NormForm {
  const char* name;
  int gradient, input, shape, weight, bias, mean, inverse, eps, mask;
  bool is_gradient() const { return gradient >= 0; }
  bool centres() const { return bias >= 0; }
};
constexpr std::array kNormForms = {
    NormForm{"aten::native_layer_norm", -1, 0, 1, 2, 3, -1, -1, 4, -1},
    NormForm{"aten::_fused_rms_norm", -1, 0, 1, 2, -1, -1, -1, 3, -1},
    NormForm{"aten::native_layer_norm_backward", 0, 1, 2, 5, 6, 3, 4, -1, 7},
    NormForm{"aten::_fused_rms_norm_backward", 0, 1, 2, 4, -1, -1, 3, -1, 5},
};
enum : size_t { kLayerNorm, kRmsNorm, kLayerNormGradient, kRmsNormGradient };

bool has_tensor(const Stack& arguments, int i) {
  return i >= 0 && arguments[i].isTensor() && arguments[i].toTensor().defined();
}

// One float for each row or column; undefined where the call has none.
Tensor floats(const Stack& arguments, int i) {
  return has_tensor(arguments, i) ? arguments[i].toTensor().to(at::kFloat).contiguous() : Tensor();
}

template <typename T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

int64_t width_of(const NormForm& form, const Stack& arguments) {
  return c10::multiply_integers(arguments[form.shape].toIntVector());
}

// A part of a result, as dense numbers of the type that the kernel writes.
class Written {
 public:
  Written(const Tensor& part, at::ScalarType dtype)
      : part_(part),
        dense_(part.is_contiguous() && part.scalar_type() == dtype
                   ? part
                   : at::empty(part.sizes(), part.options().dtype(dtype))) {}
  ~Written() {
    if (!dense_.is_same(part_)) {
      part_.copy_(dense_);
    }
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  template <typename T>
  T* data() const {
    return dense_.mutable_data_ptr<T>();
  }

 private:
  const Tensor& part_;
  const Tensor dense_;
};

template <typename T>
struct NormaliseRows {
  const T* input;
  const float *weight, *bias;
  int64_t rows, width;
  float eps;
  bool centres;
  T* output;
  float *means, *inverses;  // means: null for RMS

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = input + r * width;
      const auto count = static_cast<float>(width);
      const float mean = centres ? sum_of_row<Lanes>(width, NumberTerm<T>{row}) / count : 0;
      const float variance = sum_of_row<Lanes>(width, SquareOffTerm<T>{row, mean}) / count;
      const float inverse = 1 / __builtin_sqrtf(variance + eps);
      if (means != nullptr) {
        means[r] = mean;
      }
      inverses[r] = inverse;
      write<Lanes>(row, mean, inverse, output + r * width);
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE void write(const T* row, float mean, float inverse, T* to) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= width; i += kLanes<Lanes>) {
      Lanes y = (load_lanes<Lanes>(row + i) - mean) * inverse;
      y = weight != nullptr ? y * load_lanes<Lanes>(weight + i) : y;
      store_lanes(to + i, bias != nullptr ? y + load_lanes<Lanes>(bias + i) : y);
    }
    for (; i < width; ++i) {
      float y = (static_cast<float>(row[i]) - mean) * inverse;
      y = weight != nullptr ? y * weight[i] : y;
      to[i] = bias != nullptr ? y + bias[i] : y;
    }
  }
};

template <typename T>
struct GradientsOfRows {
  const T *gradient, *input;
  const float *weight, *means, *inverses;
  int64_t rows, width;
  T* output;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t r = 0; r < rows; ++r) {
      const T *g = gradient + r * width, *x = input + r * width;
      const float mean = means != nullptr ? means[r] : 0, inverse = inverses[r];
      LaneSums<Lanes, 2> sums;
      sums.add(width, GradientTerm<T>{g, x, weight, mean});
      const auto count = static_cast<float>(width);
      const float shared = means != nullptr ? sums.sum(0) / count : 0;
      write<Lanes>(g, x, mean, shared, sums.sum(1) * inverse * inverse / count, inverse,
                   output + r * width);
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE void write(const T* g, const T* x, float mean, float shared, float slope,
                              float inverse, T* to) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= width; i += kLanes<Lanes>) {
      Lanes weighted = load_lanes<Lanes>(g + i);
      weighted = weight != nullptr ? weighted * load_lanes<Lanes>(weight + i) : weighted;
      store_lanes(to + i,
                  (weighted - shared - (load_lanes<Lanes>(x + i) - mean) * slope) * inverse);
    }
    for (; i < width; ++i) {
      const float weighted = static_cast<float>(g[i]) * (weight != nullptr ? weight[i] : 1);
      to[i] = (weighted - shared - (static_cast<float>(x[i]) - mean) * slope) * inverse;
    }
  }
};

// Of weight and bias, from some columns of all rows. Sums of so many rows are added to the total
// at once: errors do not grow with the rows.
template <typename T>
struct GradientsOfColumns {
  static constexpr int64_t kBlock = 128;
  const T *gradient, *input;  // of the first column
  const float *means, *inverses;
  int64_t rows, stride, columns;
  float *of_weight, *of_bias, *block;  // zeros; block: of twice as many

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t begin = 0; begin < rows; begin += kBlock) {
      for (int64_t r = begin; r < std::min(rows, begin + kBlock); ++r) {
        add_row<Lanes>(gradient + r * stride, input + r * stride, means != nullptr ? means[r] : 0,
                       inverses[r]);
      }
      for (int64_t i = 0; i < columns; ++i) {
        of_weight[i] += block[i];
        of_bias[i] += block[columns + i];
        block[i] = block[columns + i] = 0;
      }
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE void add_row(const T* g, const T* x, float mean, float inverse) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>) {
      const Lanes lanes = load_lanes<Lanes>(g + i);
      const Lanes normalised = (load_lanes<Lanes>(x + i) - mean) * inverse;
      store_lanes(block + i, load_lanes<Lanes>(block + i) + lanes * normalised);
      store_lanes(block + columns + i, load_lanes<Lanes>(block + columns + i) + lanes);
    }
    for (; i < columns; ++i) {
      const auto number = static_cast<float>(g[i]);
      block[i] += number * (static_cast<float>(x[i]) - mean) * inverse;
      block[columns + i] += number;
    }
  }
};

template <size_t kForm, typename T>
void normalise(const Stack& arguments, c10::ArrayRef<Tensor> parts) {
  constexpr NormForm kAt = kNormForms[kForm];
  const Tensor& input = arguments[kAt.input].toTensor();
  const Tensor weight = floats(arguments, kAt.weight), bias = floats(arguments, kAt.bias);
  const int64_t width = width_of(kAt, arguments);
  const c10::IValue& eps = arguments[kAt.eps];
  const Written output(parts[0], input.scalar_type()), inverses(parts.back(), at::kFloat);
  std::optional<Written> means;
  if (kAt.centres()) {
    means.emplace(parts[1], at::kFloat);
  }
  with_widest_lanes(NormaliseRows<T>{
      input.const_data_ptr<T>(), data_or_null<float>(weight), data_or_null<float>(bias),
      input.numel() / width, width,
      eps.isNone() ? std::numeric_limits<float>::epsilon() : static_cast<float>(eps.toDouble()),
      kAt.centres(), output.data<T>(), means ? means->data<float>() : nullptr,
      inverses.data<float>()});
}

template <size_t kForm, typename T>
void write_rows(const Stack& arguments, c10::ArrayRef<Tensor> parts) {
  constexpr NormForm kAt = kNormForms[kForm];
  const Tensor& input = arguments[kAt.input].toTensor();
  const Tensor weight = floats(arguments, kAt.weight), means = floats(arguments, kAt.mean),
               inverses = floats(arguments, kAt.inverse);
  const int64_t width = width_of(kAt, arguments);
  const Written output(parts[0], input.scalar_type());
  with_widest_lanes(GradientsOfRows<T>{arguments[kAt.gradient].toTensor().const_data_ptr<T>(),
                                       input.const_data_ptr<T>(), data_or_null<float>(weight),
                                       data_or_null<float>(means), data_or_null<float>(inverses),
                                       input.numel() / width, width, output.data<T>()});
}

// The arguments' rows are cut to the columns; the parts are those of weight and bias that the mask
// asks for.
template <size_t kForm, typename T>
void write_columns(const Stack& arguments, c10::ArrayRef<Tensor> parts) {
  constexpr NormForm kAt = kNormForms[kForm];
  const Tensor& input = arguments[kAt.input].toTensor();
  const Tensor means = floats(arguments, kAt.mean), inverses = floats(arguments, kAt.inverse);
  const c10::List<bool> mask = arguments[kAt.mask].toBoolList();
  const int64_t columns = parts[0].numel();
  const at::TensorOptions options = inverses.options();
  const Tensor of_weight = at::zeros({columns}, options), of_bias = at::zeros({columns}, options),
               block = at::zeros({2 * columns}, options);
  with_widest_lanes(GradientsOfColumns<T>{
      arguments[kAt.gradient].toTensor().const_data_ptr<T>(), input.const_data_ptr<T>(),
      data_or_null<float>(means), data_or_null<float>(inverses), input.numel() / columns,
      width_of(kAt, arguments), columns, of_weight.mutable_data_ptr<float>(),
      of_bias.mutable_data_ptr<float>(), block.mutable_data_ptr<float>()});
  size_t next = 0;
  if (mask[1]) {
    parts[next++].copy_(of_weight.view(parts[0].sizes()));
  }
  if (mask.size() > 2 && mask[2]) {
    parts[next].copy_(of_bias.view(parts[0].sizes()));
  }
}

struct NormKernels {
  CallPiece::Kernel rows, columns;
};

template <typename T>
constexpr std::array<NormKernels, kNormForms.size()> kNormKernels = {
    NormKernels{&normalise<kLayerNorm, T>, nullptr}, NormKernels{&normalise<kRmsNorm, T>, nullptr},
    NormKernels{&write_rows<kLayerNormGradient, T>, &write_columns<kLayerNormGradient, T>},
    NormKernels{&write_rows<kRmsNormGradient, T>, &write_columns<kRmsNormGradient, T>}};

bool takes_row_norm(const NormForm& form, const Stack& arguments) {
  constexpr int64_t kWorthACall = 1 << 14;
  const Tensor& input = arguments[form.input].toTensor();
  const auto fits = [&](int i) {
    return i < 0 || (arguments[i].toTensor().is_contiguous() &&
                     arguments[i].toTensor().scalar_type() == input.scalar_type());
  };
  return has_lanes(input.scalar_type()) && fits(form.input) && fits(form.gradient) &&
         input.numel() >= kWorthACall && width_of(form, arguments) >= kMostLanes;
}

// The first dimension that has something to divide, of `count` from `first` on.
int64_t divided_dim(const Tensor& tensor, int64_t first, int64_t count) {
  int64_t dim = first;
  while (dim + 1 < first + count && tensor.size(dim) == 1) {
    ++dim;
  }
  return dim;
}

void add_rows(const NormForm& form, const Stack& arguments, CallPiece::Kernel kernel,
              int64_t threads, std::vector<CallPiece>& pieces) {
  const Tensor& input = arguments[form.input].toTensor();
  const auto dims = static_cast<int64_t>(arguments[form.shape].toIntVector().size());
  const int64_t dim = divided_dim(input, 0, input.dim() - dims), size = input.size(dim);
  const bool divides = dim < input.dim() - dims;
  for (auto [start, here] : ranges(size, divides ? threads : 1)) {
    CallPiece piece{arguments, {{0, dim, start, here}}, kernel};
    for (int i : {form.gradient, form.input, form.mean, form.inverse}) {
      if (has_tensor(arguments, i) && divides) {
        piece.arguments[i] = narrowed(arguments[i].toTensor(), dim, start, here);
      }
    }
    for (size_t result = 1; !form.is_gradient() && result < (form.centres() ? 3 : 2); ++result) {
      piece.parts.push_back({result, dim, start, divides ? here : 1});
    }
    pieces.push_back(std::move(piece));
  }
}

void add_columns(const NormForm& form, const Stack& arguments, CallPiece::Kernel kernel,
                 int64_t threads, std::vector<CallPiece>& pieces) {
  const c10::List<bool> mask = arguments[form.mask].toBoolList();
  const Tensor& input = arguments[form.input].toTensor();
  const std::vector<int64_t> shape = arguments[form.shape].toIntVector();
  const bool divides = shape.size() == 1;
  for (auto [start, here] : ranges(shape[0], divides ? threads : 1, kMostLanes)) {
    CallPiece piece{arguments, {}, kernel};
    for (int i : {form.gradient, form.input}) {
      if (divides) {
        piece.arguments[i] = narrowed(arguments[i].toTensor(), input.dim() - 1, start, here);
      }
    }
    for (size_t result = 1; result < mask.size(); ++result) {
      if (mask[result]) {
        piece.parts.push_back({result, 0, start, here});
      }
    }
    if (!piece.parts.empty()) {
      pieces.push_back(std::move(piece));
    }
  }
}

}  // namespace

std::vector<CallPiece> divide_row_norm(const c10::OperatorHandle& op, const Stack& arguments,
                                       int64_t threads) {
  const std::string& name = op.operator_name().name;
  const auto* form = std::find_if(kNormForms.begin(), kNormForms.end(),
                                  [&](const NormForm& known) { return name == known.name; });
  if (form == kNormForms.end() || !takes_row_norm(*form, arguments)) {
    return {};
  }
  const auto i = static_cast<size_t>(form - kNormForms.begin());
  NormKernels kernels = {};
  with_lane_type(arguments[form->input].toTensor().scalar_type(),
                 [&]<typename T>(std::type_identity<T>) { kernels = kNormKernels<T>[i]; });
  std::vector<CallPiece> pieces;
  if (!form->is_gradient() || arguments[form->mask].toBoolList()[0]) {
    add_rows(*form, arguments, kernels.rows, threads, pieces);
  }
  if (form->is_gradient()) {
    add_columns(*form, arguments, kernels.columns, threads, pieces);
  }
  return pieces;
}

}  // namespace torch_xla
