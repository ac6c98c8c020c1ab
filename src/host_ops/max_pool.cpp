#include "host_ops/max_pool.h"

#include "host_ops/lanes.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace torch_xla {

namespace {

// Along one dimension: window w reads in[w * stride - padding + k * dilation] for each k < kernel.
struct Axis {
  int64_t in, out, kernel, stride, padding, dilation;

  int64_t start(int64_t w) const { return w * stride - padding; }
  // What the first of a window's places would be that is not before the image.
  int64_t first(int64_t w) const {
    const int64_t before = std::max<int64_t>(-start(w), 0);
    return start(w) + (before + dilation - 1) / dilation * dilation;
  }
};

// max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
enum Argument : size_t { kSelf, kKernel, kStride, kPadding, kDilation, kCeil };

Axis axis_of(const torch::jit::Stack& arguments, size_t axis, int64_t in, int64_t out) {
  auto number = [&](Argument i) {
    const std::vector<int64_t> numbers = arguments[i].toIntVector();
    return numbers.size() == 1 ? numbers[0] : numbers[axis];
  };
  const bool has_stride = !arguments[kStride].toIntVector().empty();
  return {in,
          out,
          number(kKernel),
          number(has_stride ? kStride : kKernel),
          number(kPadding),
          number(kDilation)};
}

template <int64_t kCount>
using Places [[gnu::vector_size(kCount * sizeof(int64_t))]] = int64_t;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The rows of a plane, each with its padding, in as many parts as the windows' steps are wide: of
// every so many numbers one, so that what consecutive windows read is consecutive.
class Rows {
 public:
  Rows(const Axis& rows, const Axis& columns)
      : axis_(columns),
        length_(columns.out + (columns.kernel - 1) * columns.dilation / columns.stride +
                kMostLanes),
        numbers_(static_cast<size_t>(rows.in * columns.stride * length_), kNothing),
        whole_(static_cast<size_t>(columns.in + kMostLanes)) {}

  // Whether there is a NaN.
  template <typename Lanes, typename T>
  TORCH_XLA_INLINE bool read(const T* plane, int64_t count) {
    bool any = false;
    for (int64_t row = 0; row < count; ++row) {
      const float* whole = floats<Lanes>(plane + row * axis_.in);
      any |= has_nan<Lanes>(whole);
      for (int64_t part = 0; part < axis_.stride; ++part) {
        float* to = numbers_.data() + (row * axis_.stride + part) * length_;
        axis_.stride == 1   ? take<1>(whole, part, to)
        : axis_.stride == 2 ? take<2>(whole, part, to)
                            : take<0>(whole, part, to);
      }
    }
    return any;
  }

  // What the windows from `window` on read as their number `k` of a row.
  TORCH_XLA_INLINE const float* at(int64_t row, int64_t k, int64_t window) const {
    const int64_t place = k * axis_.dilation;
    return numbers_.data() + (row * axis_.stride + place % axis_.stride) * length_ +
           place / axis_.stride + window;
  }

 private:
  template <typename Lanes>
  TORCH_XLA_INLINE const float* floats(const float* row) {
    return row;
  }
  template <typename Lanes, typename T>
  TORCH_XLA_INLINE const float* floats(const T* row) {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= axis_.in; i += kLanes<Lanes>) {
      store_lanes(whole_.data() + i, load_lanes<Lanes>(row + i));
    }
    for (; i < axis_.in; ++i) {
      whole_[static_cast<size_t>(i)] = static_cast<float>(row[i]);
    }
    return whole_.data();
  }

  template <typename Lanes>
  TORCH_XLA_INLINE bool has_nan(const float* row) const {
    LaneBits<Lanes> any{};
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= axis_.in; i += kLanes<Lanes>) {
      const Lanes lanes = load_lanes<Lanes>(row + i);
      any |= lanes == lanes ? LaneBits<Lanes>{} : 1 - LaneBits<Lanes>{};
    }
    bool found = has_bits(any);
    for (; i < axis_.in; ++i) {
      found |= row[i] != row[i];
    }
    return found;
  }

  // Padding stays as it is.
  template <int64_t kStep>
  TORCH_XLA_INLINE void take(const float* row, int64_t part, float* to) const {
    const int64_t step = kStep > 0 ? kStep : axis_.stride, from = part - axis_.padding;
    const int64_t begin = from < 0 ? (-from + step - 1) / step : 0;
    const int64_t end = std::min(length_, (axis_.in - from + step - 1) / step);
    for (int64_t i = begin; i < end; ++i) {
      to[i] = row[i * step + from];
    }
  }

  const Axis& axis_;
  const int64_t length_;
  std::vector<float> numbers_, whole_;
};

template <typename T>
struct Windows {
  const at::Tensor& input;
  const at::Tensor& values;
  const at::Tensor& places;
  Axis rows, columns;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    Rows read(rows, columns);
    std::vector<int32_t> first, starts;
    for (int64_t w = 0; w < columns.out + kMostLanes; ++w) {
      first.push_back(static_cast<int32_t>(columns.first(w)));
      starts.push_back(static_cast<int32_t>(columns.start(w)));
    }
    const bool has_images = input.dim() == 4;
    for (int64_t n = 0; n < (has_images ? input.size(0) : 1); ++n) {
      for (int64_t c = 0; c < input.size(-3); ++c) {
        auto plane = [&](const at::Tensor& tensor) {
          return (has_images ? n * tensor.stride(0) : 0) + c * tensor.stride(-3);
        };
        const bool has_nan =
            read.template read<Lanes>(input.const_data_ptr<T>() + plane(input), rows.in);
        T* value = values.mutable_data_ptr<T>() + plane(values);
        int64_t* place = places.mutable_data_ptr<int64_t>() + plane(places);
        for (int64_t row = 0; row < rows.out; ++row) {
          for (int64_t w = 0; w < columns.out; w += has_nan ? 1 : kLanes<Lanes>) {
            const int64_t at = row * columns.out + w;
            has_nan ? write_one(read, row, w, value + at, place + at)
                    : write<Lanes>(read, row, w, first.data() + w, starts.data() + w, value + at,
                                   place + at);
          }
        }
      }
    }
  }

  // Of NaNs the last is taken.
  TORCH_XLA_INLINE void write_one(const Rows& read, int64_t row, int64_t window, T* value,
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
  TORCH_XLA_INLINE void write(const Rows& read, int64_t row, int64_t window, const int32_t* first,
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
    if (const int64_t count = columns.out - window; count >= kLanes<Lanes>) {
      store_lanes(value, largest);
      std::memcpy(place, &wide, sizeof(wide));
    } else {
      T numbers[kMostLanes];
      store_lanes(numbers, largest);
      std::copy_n(numbers, count, value);
      std::memcpy(place, &wide, static_cast<size_t>(count) * sizeof(int64_t));
    }
  }
};

}  // namespace

bool takes_max_pool(const torch::jit::Stack& arguments) {
  constexpr int64_t kMostPixels = std::numeric_limits<int32_t>::max() / 2;
  const at::Tensor& input = arguments[kSelf].toTensor();
  return has_lanes(input.scalar_type()) && input.is_contiguous() && input.numel() > 0 &&
         (input.dim() == 3 || input.dim() == 4) && input.size(-1) * input.size(-2) <= kMostPixels;
}

void write_max_pool(const torch::jit::Stack& arguments, c10::ArrayRef<at::Tensor> results) {
  const at::Tensor &input = arguments[kSelf].toTensor(), &values = results[0];
  const Axis rows = axis_of(arguments, 0, input.size(-2), values.size(-2));
  const Axis columns = axis_of(arguments, 1, input.size(-1), values.size(-1));
  with_lane_type(input.scalar_type(), [&]<typename T>(std::type_identity<T>) {
    with_widest_lanes(Windows<T>{input, values, results[1], rows, columns});
  });
}

bool call_max_pool(torch::jit::Stack& stack) {
  constexpr int64_t kFew = 1 << 12, kWorthAThread = 1 << 14;  // numbers
  const at::Tensor input = stack[kSelf].toTensor();
  if (input.numel() < kFew || !takes_max_pool(stack)) {
    return false;
  }
  // PyTorch says what is wrong with the arguments, or which sizes the results have.
  const at::Tensor sizes = std::get<0>(at::max_pool2d_with_indices(
      at::empty(input.sizes(), input.options().device(at::kMeta)), stack[kKernel].toIntVector(),
      stack[kStride].toIntVector(), stack[kPadding].toIntVector(), stack[kDilation].toIntVector(),
      stack[kCeil].toBool()));
  const at::Tensor values = at::empty(sizes.sizes(), input.options());
  const at::Tensor places = at::empty(sizes.sizes(), input.options().dtype(at::kLong));
  const int64_t pixels = input.size(-1) * input.size(-2), planes = input.numel() / pixels;
  auto flat = [&](const at::Tensor& tensor) {
    return tensor.view({planes, tensor.size(-2), tensor.size(-1)});
  };
  at::parallel_for(0, planes, kWorthAThread / pixels + 1, [&](int64_t begin, int64_t end) {
    torch::jit::Stack part = stack;
    part[kSelf] = narrowed(flat(input), 0, begin, end - begin);
    write_max_pool(part, {narrowed(flat(values), 0, begin, end - begin),
                          narrowed(flat(places), 0, begin, end - begin)});
  });
  stack.assign({values, places});
  return true;
}

}  // namespace torch_xla
