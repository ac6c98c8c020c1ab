#include "host_ops/avg_pool.h"

#include "host_ops/window_rows.h"

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

// Reads one tensor and writes the other: images, and their averages.
struct Averaging {
  const at::Tensor &from, &to;
  const WindowAxis &rows, &columns;
  const Divisors& divisors;
};

template <typename T>
struct AveragesOfWindows : Averaging {
  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    WindowRows read(rows, columns, 0);
    for_each_plane<2>(
        {&from, &to}, [&](const auto& at) __attribute__((always_inline)) {
          read.template read<Lanes>(from.const_data_ptr<T>() + at[0]);
          T* average = to.mutable_data_ptr<T>() + at[1];
          for (int64_t row = 0; row < rows.out; ++row, average += columns.out) {
            for (int64_t w = 0; w < columns.out; w += kLanes<Lanes>) {
              store_some(average + w, sum<Lanes>(read, row, w) / divisors.of<Lanes>(row, w),
                         columns.out - w);
            }
          }
        });
  }

  template <typename Lanes>
  TORCH_XLA_INLINE Lanes sum(WindowRows& read, int64_t row, int64_t window) const {
    Lanes sum{};
    for (int64_t k = 0; k < rows.kernel; ++k) {
      const int64_t at = rows.start(row) + k;
      for (int64_t j = 0; j < columns.kernel && at >= 0 && at < rows.in; ++j) {
        sum += load_lanes<Lanes>(read.at(at, j, window));
      }
    }
    return sum;
  }
};

template <typename T>
struct GradientOfAverages : Averaging {
  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    WindowRows sums(rows, columns, 0);
    std::vector<float> shares(static_cast<size_t>(columns.out + kMostLanes));
    for_each_plane<2>(
        {&from, &to}, [&](const auto& at) __attribute__((always_inline)) {
          sums.clear();
          const T* gradient = from.const_data_ptr<T>() + at[0];
          for (int64_t row = 0; row < rows.out; ++row, gradient += columns.out) {
            std::copy_n(gradient, columns.out, shares.begin());
            for (int64_t w = 0; w < columns.out; w += kLanes<Lanes>) {
              store_lanes(shares.data() + w,
                          load_lanes<Lanes>(shares.data() + w) / divisors.of<Lanes>(row, w));
            }
            add<Lanes>(sums, row, shares.data());
          }
          sums.template write<Lanes>(to.mutable_data_ptr<T>() + at[1]);
        });
  }

  // Each number gets its windows' shares in the order of the windows.
  template <typename Lanes>
  TORCH_XLA_INLINE void add(WindowRows& sums, int64_t row, const float* shares) const {
    for (int64_t k = 0; k < rows.kernel; ++k) {
      const int64_t at = rows.start(row) + k;
      for (int64_t j = columns.kernel - 1; j >= 0 && at >= 0 && at < rows.in; --j) {
        for (int64_t w = 0; w < columns.out; w += kLanes<Lanes>) {
          float* sum = sums.at(at, j, w);
          store_lanes(sum, load_lanes<Lanes>(sum) + load_lanes<Lanes>(shares + w));
        }
      }
    }
  }
};

// The arguments from `kernel` on are kernel_size, stride, padding, ceil_mode, count_include_pad and
// divisor_override.
template <template <typename> typename Body>
void write_averages(const torch::jit::Stack& arguments, size_t kernel, const at::Tensor& images,
                    const at::Tensor& averages, const at::Tensor& from, const at::Tensor& to) {
  const WindowAxes axes(arguments, kernel, WindowAxes::kNoDilation, images, averages);
  const Divisors divisors(arguments, kernel + 4, axes.rows, axes.columns);
  with_lane_type(from.scalar_type(), [&]<typename T>(std::type_identity<T>) {
    with_widest_lanes(Body<T>{{from, to, axes.rows, axes.columns, divisors}});
  });
}

}  // namespace

void write_avg_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results) {
  const at::Tensor &images = arguments[0].toTensor(), &averages = results[0];
  write_averages<AveragesOfWindows>(arguments, 1, images, averages, images, averages);
}

void write_avg_pool_gradient(const torch::jit::Stack& arguments,
                             c10::ArrayRef<at::Tensor> results) {
  const at::Tensor &averages = arguments[0].toTensor(), &images = results[0];
  write_averages<GradientOfAverages>(arguments, 2, images, averages, averages, images);
}

}  // namespace torch_xla
