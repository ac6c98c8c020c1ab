#include "host_ops/max_pool.h"

#include "host_ops/window_rows.h"

namespace torch_xla {

namespace {

template <int64_t kCount>
using Places [[gnu::vector_size(kCount * sizeof(int64_t))]] = int64_t;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

template <typename T>
struct LargestOfWindows {
  const at::Tensor& input;
  const at::Tensor& values;
  const at::Tensor& places;
  const WindowAxis &rows, &columns;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    WindowRows read(rows, columns, kNothing);
    std::vector<int32_t> first, starts;
    for (int64_t w = 0; w < columns.out + kMostLanes; ++w) {
      first.push_back(static_cast<int32_t>(columns.first(w)));
      starts.push_back(static_cast<int32_t>(columns.start(w)));
    }
    for_each_plane<3>(
        {&input, &values, &places}, [&](const auto& at) __attribute__((always_inline)) {
          const bool has_nan = read.template read<Lanes>(input.const_data_ptr<T>() + at[0]);
          T* value = values.mutable_data_ptr<T>() + at[1];
          int64_t* place = places.mutable_data_ptr<int64_t>() + at[2];
          for (int64_t row = 0; row < rows.out; ++row) {
            for (int64_t w = 0; w < columns.out; w += has_nan ? 1 : kLanes<Lanes>) {
              has_nan ? write_one(read, row, w, value + w, place + w)
                      : write<Lanes>(read, row, w, first.data() + w, starts.data() + w, value + w,
                                     place + w);
            }
            value += columns.out;
            place += columns.out;
          }
        });
  }

  // Of NaNs the last is taken.
  TORCH_XLA_INLINE void write_one(WindowRows& read, int64_t row, int64_t window, T* value,
                                  int64_t* place) const {
    float largest = kNothing;
    *place = rows.first(row) * columns.in + columns.first(window);
    for (int64_t k = 0; k < rows.kernel; ++k) {
      const int64_t from = rows.start(row) + k * rows.dilation;
      for (int64_t j = 0; j < columns.kernel && from >= 0 && from < rows.in; ++j) {
        const float number = *read.at(from, j, window);
        if (number > largest || number != number) {
          largest = number;
          *place = from * columns.in + columns.start(window) + j * columns.dilation;
        }
      }
    }
    *value = static_cast<T>(largest);
  }

  // As many windows as there are lanes, without NaN. Of equal numbers the first is taken.
  template <typename Lanes>
  TORCH_XLA_INLINE void write(WindowRows& read, int64_t row, int64_t window, const int32_t* first,
                              const int32_t* starts, T* value, int64_t* place) const {
    Lanes largest = kNothing - Lanes{};
    LaneBits<Lanes> bits, start;
    std::memcpy(&bits, first, sizeof(bits));
    std::memcpy(&start, starts, sizeof(start));
    // Places are chosen as the numbers' type is, which compilers do in vectors.
    Lanes found = lanes_of<Lanes>(bits + static_cast<int32_t>(rows.first(row) * columns.in));
    for (int64_t k = 0; k < rows.kernel; ++k) {
      const int64_t from = rows.start(row) + k * rows.dilation;
      if (from < 0 || from >= rows.in) {
        continue;
      }
      for (int64_t j = 0; j < columns.kernel; ++j) {
        const Lanes number = load_lanes<Lanes>(read.at(from, j, window));
        const Lanes at =
            lanes_of<Lanes>(start + static_cast<int32_t>(from * columns.in + j * columns.dilation));
        const Lanes larger = number > largest ? number : largest;
        found = larger == largest ? found : at;
        largest = larger;
      }
    }
    const auto wide = __builtin_convertvector(bits_of(found), Places<kLanes<Lanes>>);
    const int64_t count = std::min(columns.out - window, kLanes<Lanes>);
    store_some(value, largest, count);
    std::memcpy(place, &wide, static_cast<size_t>(count) * sizeof(int64_t));
  }
};

}  // namespace

// max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
void write_max_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results) {
  constexpr size_t kKernel = 1;
  constexpr int kDilation = 4;
  const at::Tensor &input = arguments[0].toTensor(), &values = results[0];
  const WindowAxes axes(arguments, kKernel, kDilation, input, values);
  with_lane_type(input.scalar_type(), [&]<typename T>(std::type_identity<T>) {
    with_widest_lanes(LargestOfWindows<T>{input, values, results[1], axes.rows, axes.columns});
  });
}

}  // namespace torch_xla
