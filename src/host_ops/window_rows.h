// Windows over the rows of images, as kernels of ours for pools see them: several windows of a row
// at a time. For host_ops/*_pool.cpp; not thread-safe, each thread has its own.
#pragma once

#include "host_ops/lanes.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace torch_xla {

// Along one dimension: window w reads in[w * stride - padding + k * dilation] for each k < kernel.
struct WindowAxis {
  int64_t in, out, kernel, stride, padding, dilation;

  int64_t start(int64_t w) const { return w * stride - padding; }
  // What the first of a window's places would be that is not before the image.
  int64_t first(int64_t w) const {
    const int64_t before = std::max<int64_t>(-start(w), 0);
    return start(w) + (before + dilation - 1) / dilation * dilation;
  }
};

// Those of a pool of PyTorch's. Its arguments from `kernel` on are the kernel's sizes, the steps
// and the padding, each for both dimensions or for each.
struct WindowAxes {
  static constexpr int kNoDilation = -1;

  WindowAxes(const torch::jit::Stack& arguments, size_t kernel, int dilation,
             const at::Tensor& images, const at::Tensor& pooled) {
    auto axis = [&](int64_t dim) -> WindowAxis {
      auto number = [&](size_t i) {
        const std::vector<int64_t> numbers = arguments[i].toIntVector();
        return dim == -1 ? numbers.back() : numbers.front();
      };
      const bool has_steps = !arguments[kernel + 1].toIntVector().empty();
      return {
          images.size(dim),   pooled.size(dim),
          number(kernel),     number(has_steps ? kernel + 1 : kernel),
          number(kernel + 2), dilation == kNoDilation ? 1 : number(static_cast<size_t>(dilation))};
    };
    rows = axis(-2);
    columns = axis(-1);
  }

  WindowAxis rows, columns;
};

// The rows of a plane, each with its padding, in as many parts as the windows' steps are wide: of
// every so many numbers one, so that what consecutive windows read is consecutive.
class WindowRows {
 public:
  WindowRows(const WindowAxis& rows, const WindowAxis& columns, float padding)
      : columns_(columns),
        rows_(rows.in),
        length_(columns.out + (columns.kernel - 1) * columns.dilation / columns.stride +
                kMostLanes),
        numbers_(static_cast<size_t>(rows.in * columns.stride * length_), padding),
        whole_(static_cast<size_t>(columns.in + kMostLanes)) {}

  // Whether there is a NaN.
  template <typename Lanes, typename T>
  TORCH_XLA_INLINE bool read(const T* plane) {
    bool any = false;
    for (int64_t row = 0; row < rows_; ++row) {
      const float* whole = floats<Lanes>(plane + row * columns_.in);
      any |= has_nan<Lanes>(whole);
      for (int64_t part = 0; part < columns_.stride; ++part) {
        with_step([&]<int64_t kStep>(std::integral_constant<int64_t, kStep>)
                      __attribute__((always_inline)) { take<kStep>(whole, part, row); });
      }
    }
    return any;
  }

  template <typename Lanes, typename T>
  TORCH_XLA_INLINE void write(T* plane) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t part = 0; part < columns_.stride; ++part) {
        with_step([&]<int64_t kStep>(std::integral_constant<int64_t, kStep>)
                      __attribute__((always_inline)) { give<kStep>(part, row); });
      }
      T* to = plane + row * columns_.in;
      int64_t i = 0;
      for (; i + kLanes<Lanes> <= columns_.in; i += kLanes<Lanes>) {
        store_lanes(to + i, load_lanes<Lanes>(whole_.data() + i));
      }
      for (; i < columns_.in; ++i) {
        to[i] = static_cast<T>(whole_[static_cast<size_t>(i)]);
      }
    }
  }

  void clear() { std::fill(numbers_.begin(), numbers_.end(), 0.0f); }

  // What the windows from `window` on read as their number `k` of a row. There are as many as the
  // windows and kMostLanes more.
  TORCH_XLA_INLINE float* at(int64_t row, int64_t k, int64_t window) {
    const int64_t place = k * columns_.dilation;
    return numbers_.data() + (row * columns_.stride + place % columns_.stride) * length_ +
           place / columns_.stride + window;
  }

 private:
  template <typename Lanes>
  TORCH_XLA_INLINE const float* floats(const float* row) {
    return row;
  }
  template <typename Lanes, typename T>
  TORCH_XLA_INLINE const float* floats(const T* row) {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= columns_.in; i += kLanes<Lanes>) {
      store_lanes(whole_.data() + i, load_lanes<Lanes>(row + i));
    }
    for (; i < columns_.in; ++i) {
      whole_[static_cast<size_t>(i)] = static_cast<float>(row[i]);
    }
    return whole_.data();
  }

  template <typename Lanes>
  TORCH_XLA_INLINE bool has_nan(const float* row) const {
    LaneBits<Lanes> any{};
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= columns_.in; i += kLanes<Lanes>) {
      const Lanes lanes = load_lanes<Lanes>(row + i);
      any |= lanes == lanes ? LaneBits<Lanes>{} : 1 - LaneBits<Lanes>{};
    }
    bool found = has_bits(any);
    for (; i < columns_.in; ++i) {
      found |= row[i] != row[i];
    }
    return found;
  }

  // Compilers have vectors for steps that they know.
  template <typename Run>
  TORCH_XLA_INLINE void with_step(const Run& run) const {
    columns_.stride == 1   ? run(std::integral_constant<int64_t, 1>())
    : columns_.stride == 2 ? run(std::integral_constant<int64_t, 2>())
                           : run(std::integral_constant<int64_t, 0>());
  }

  // The numbers of a row that are in a part, number i at i * step + from.
  struct Part {
    float* numbers;
    int64_t step, from, begin, end;
  };
  template <int64_t kStep>
  TORCH_XLA_INLINE Part part_of(int64_t part, int64_t row) {
    const int64_t step = kStep > 0 ? kStep : columns_.stride, from = part - columns_.padding;
    return {numbers_.data() + (row * columns_.stride + part) * length_, step, from,
            from < 0 ? (-from + step - 1) / step : 0,
            std::min(length_, (columns_.in - from + step - 1) / step)};
  }
  template <int64_t kStep>
  TORCH_XLA_INLINE void take(const float* whole, int64_t part, int64_t row) {
    const Part to = part_of<kStep>(part, row);
    for (int64_t i = to.begin; i < to.end; ++i) {
      to.numbers[i] = whole[i * (kStep > 0 ? kStep : to.step) + to.from];
    }
  }
  // What no window reads stays zero.
  template <int64_t kStep>
  TORCH_XLA_INLINE void give(int64_t part, int64_t row) {
    const Part from = part_of<kStep>(part, row);
    for (int64_t i = from.begin; i < from.end; ++i) {
      whole_[static_cast<size_t>(i * (kStep > 0 ? kStep : from.step) + from.from)] =
          from.numbers[i];
    }
  }

  const WindowAxis& columns_;
  const int64_t rows_, length_;
  std::vector<float> numbers_, whole_;
};

// All lanes, or the first `count` if these are fewer.
template <typename Lanes, typename T>
TORCH_XLA_INLINE void store_some(T* to, Lanes lanes, int64_t count) {
  if (count >= kLanes<Lanes>) {
    return store_lanes(to, lanes);
  }
  T numbers[kMostLanes];
  store_lanes(numbers, lanes);
  std::copy_n(numbers, count, to);
}

// Calls with the offset of each plane in each of the tensors, which have as many images and
// channels and are dense in their last two dimensions.
template <size_t kCount, typename Run>
TORCH_XLA_INLINE void for_each_plane(const std::array<const at::Tensor*, kCount>& tensors,
                                     const Run& run) {
  const at::Tensor& first = *tensors[0];
  const bool has_images = first.dim() == 4;
  for (int64_t n = 0; n < (has_images ? first.size(0) : 1); ++n) {
    for (int64_t c = 0; c < first.size(-3); ++c) {
      std::array<int64_t, kCount> offsets;
      for (size_t i = 0; i < kCount; ++i) {
        offsets[i] = (has_images ? n * tensors[i]->stride(0) : 0) + c * tensors[i]->stride(-3);
      }
      run(offsets);
    }
  }
}

}  // namespace torch_xla
