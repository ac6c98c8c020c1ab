#include "host_ops/avg_pool.h"

#include "host_ops/window_rows.h"

#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/empty.h>

namespace torch_xla {

namespace {

// How many numbers each window averages: a product of one factor for each dimension, or one number
// for all.
class Divisors {
 public:
  // The arguments from `i` on are count_include_pad and divisor_override.
  Divisors(const torch::jit::Stack& arguments, size_t i, const WindowAxis& rows,
           const WindowAxis& columns)
      : rows_(counts(rows, arguments[i].toBool())),
        columns_(counts(columns, arguments[i].toBool())) {
    if (!arguments[i + 1].isNone()) {
      std::fill(rows_.begin(), rows_.end(), static_cast<float>(arguments[i + 1].toInt()));
      std::fill(columns_.begin(), columns_.end(), 1.0f);
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE Lanes of(int64_t row, int64_t window) const {
    return load_lanes<Lanes>(columns_.data() + window) * rows_[static_cast<size_t>(row)];
  }

 private:
  static std::vector<float> counts(const WindowAxis& axis, bool with_padding) {
    std::vector<float> counts(static_cast<size_t>(axis.out + kMostLanes), 1.0f);
    for (int64_t w = 0; w < axis.out; ++w) {
      const int64_t start = axis.start(w);
      const int64_t end = std::min(start + axis.kernel, axis.in + axis.padding);
      const int64_t inside = std::min(end, axis.in) - std::max<int64_t>(start, 0);
      counts[static_cast<size_t>(w)] =
          static_cast<float>(std::max<int64_t>(with_padding ? end - start : inside, 1));
    }
    return counts;
  }

  std::vector<float> rows_, columns_;
};

template <typename T>
struct AveragesOfWindows {
  const at::Tensor& input;
  const at::Tensor& result;
  const WindowAxis &rows, &columns;
  const Divisors& divisors;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    WindowRows read(rows, columns, 0);
    for_each_plane<2>(
        {&input, &result}, [&](const auto& at) __attribute__((always_inline)) {
          read.template read<Lanes>(input.const_data_ptr<T>() + at[0]);
          T* to = result.mutable_data_ptr<T>() + at[1];
          for (int64_t row = 0; row < rows.out; ++row, to += columns.out) {
            for (int64_t w = 0; w < columns.out; w += kLanes<Lanes>) {
              const Lanes average = sum<Lanes>(read, row, w) / divisors.of<Lanes>(row, w);
              store_some(to + w, average, columns.out - w);
            }
          }
        });
  }

  template <typename Lanes>
  TORCH_XLA_INLINE Lanes sum(WindowRows& read, int64_t row, int64_t window) const {
    Lanes sum{};
    for (int64_t k = 0; k < rows.kernel; ++k) {
      const int64_t from = rows.start(row) + k;
      for (int64_t j = 0; j < columns.kernel && from >= 0 && from < rows.in; ++j) {
        sum += load_lanes<Lanes>(read.at(from, j, window));
      }
    }
    return sum;
  }
};

template <typename T>
struct GradientOfAverages {
  const at::Tensor& gradient;
  const at::Tensor& result;
  const WindowAxis &rows, &columns;
  const Divisors& divisors;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    WindowRows sums(rows, columns, 0);
    std::vector<float> shares(static_cast<size_t>(columns.out + kMostLanes));
    for_each_plane<2>(
        {&gradient, &result}, [&](const auto& at) __attribute__((always_inline)) {
          sums.clear();
          const T* from = gradient.const_data_ptr<T>() + at[0];
          for (int64_t row = 0; row < rows.out; ++row, from += columns.out) {
            std::copy_n(from, columns.out, shares.begin());
            for (int64_t w = 0; w < columns.out; w += kLanes<Lanes>) {
              store_lanes(shares.data() + w,
                          load_lanes<Lanes>(shares.data() + w) / divisors.of<Lanes>(row, w));
            }
            add<Lanes>(sums, row, shares.data());
          }
          sums.template write<Lanes>(result.mutable_data_ptr<T>() + at[1]);
        });
  }

  // Each number gets its windows' shares in the order of the windows.
  template <typename Lanes>
  TORCH_XLA_INLINE void add(WindowRows& sums, int64_t row, const float* shares) const {
    for (int64_t k = 0; k < rows.kernel; ++k) {
      const int64_t to = rows.start(row) + k;
      for (int64_t j = columns.kernel - 1; j >= 0 && to >= 0 && to < rows.in; --j) {
        for (int64_t w = 0; w < columns.out; w += kLanes<Lanes>) {
          float* sum = sums.at(to, j, w);
          store_lanes(sum, load_lanes<Lanes>(sum) + load_lanes<Lanes>(shares + w));
        }
      }
    }
  }
};

// avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
// whose gradient has grad_output before these.
enum AvgPoolArgument : uint8_t {
  kAvgSelf,
  kAvgKernel,
  kAvgStride,
  kAvgPadding,
  kAvgCeil,
  kAvgCounted,
  kAvgDivisor
};

template <template <typename> typename Body>
void write_windows(const torch::jit::Stack& arguments, size_t first, const at::Tensor& image,
                   const at::Tensor& pooled, const at::Tensor& from, const at::Tensor& to) {
  auto axis = [&](size_t dim) {
    const int64_t at = static_cast<int64_t>(dim) - 2;
    return window_axis(arguments, first + kAvgKernel, -1, dim, image.size(at), pooled.size(at));
  };
  const WindowAxis rows = axis(0), columns = axis(1);
  const Divisors divisors(arguments, first + kAvgCounted, rows, columns);
  with_lane_type(from.scalar_type(), [&]<typename T>(std::type_identity<T>) {
    with_widest_lanes(Body<T>{from, to, rows, columns, divisors});
  });
}

std::optional<int64_t> divisor_of(const c10::IValue& argument) {
  return argument.isNone() ? std::nullopt : std::optional(argument.toInt());
}

}  // namespace

bool takes_avg_pool(const torch::jit::Stack& arguments) {
  return has_window_rows(arguments[kAvgSelf].toTensor());
}

void write_avg_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results) {
  const at::Tensor& input = arguments[kAvgSelf].toTensor();
  write_windows<AveragesOfWindows>(arguments, 0, input, results[0], input, results[0]);
}

bool call_avg_pool(torch::jit::Stack& stack) {
  const at::Tensor input = stack[kAvgSelf].toTensor();
  if (input.numel() < kFewForWindows || !takes_avg_pool(stack)) {
    return false;
  }
  // PyTorch says what is wrong with the arguments, or which sizes the result has.
  const at::Tensor like = at::avg_pool2d(
      input.to(at::kMeta), stack[kAvgKernel].toIntVector(), stack[kAvgStride].toIntVector(),
      stack[kAvgPadding].toIntVector(), stack[kAvgCeil].toBool(), stack[kAvgCounted].toBool(),
      divisor_of(stack[kAvgDivisor]));
  const at::Tensor result = at::empty(like.sizes(), input.options());
  run_on_planes({input, result}, [&](c10::ArrayRef<at::Tensor> parts) {
    write_windows<AveragesOfWindows>(stack, 0, parts[0], parts[1], parts[0], parts[1]);
  });
  stack.assign(1, result);
  return true;
}

bool takes_avg_pool_gradient(const torch::jit::Stack& arguments) {
  const at::Tensor &gradient = arguments[0].toTensor(), &input = arguments[1].toTensor();
  return has_window_rows(gradient) && has_window_rows(input) && gradient.dim() == input.dim() &&
         gradient.scalar_type() == input.scalar_type();
}

void write_avg_pool_gradient(const torch::jit::Stack& arguments,
                             c10::ArrayRef<at::Tensor> results) {
  const at::Tensor& gradient = arguments[0].toTensor();
  write_windows<GradientOfAverages>(arguments, 1, results[0], gradient, gradient, results[0]);
}

bool call_avg_pool_gradient(torch::jit::Stack& stack) {
  const at::Tensor gradient = stack[0].toTensor(), input = stack[1].toTensor();
  if (input.numel() < kFewForWindows || !takes_avg_pool_gradient(stack)) {
    return false;
  }
  at::avg_pool2d_backward(gradient.to(at::kMeta), input.to(at::kMeta),
                          stack[1 + kAvgKernel].toIntVector(), stack[1 + kAvgStride].toIntVector(),
                          stack[1 + kAvgPadding].toIntVector(), stack[1 + kAvgCeil].toBool(),
                          stack[1 + kAvgCounted].toBool(), divisor_of(stack[1 + kAvgDivisor]));
  const at::Tensor result = at::empty(input.sizes(), input.options());
  run_on_planes({gradient, result}, [&](c10::ArrayRef<at::Tensor> parts) {
    write_windows<GradientOfAverages>(stack, 1, parts[1], parts[0], parts[0], parts[1]);
  });
  stack.assign(1, result);
  return true;
}

}  // namespace torch_xla
