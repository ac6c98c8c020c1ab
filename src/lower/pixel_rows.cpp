#include "lower/pixel_rows.h"

#include "lower/reduction.h"

#include <algorithm>

namespace torch_xla {

bool has_channels_last(Ints strides) {
  return strides.size() > 2 && strides[1] == 1 && strides.back() > 1;
}

bool has_channels_last(LowerContext& c, size_t i) {
  const Window* window = c.window(i);
  return window != nullptr && has_channels_last(window->strides);
}

Val with_channels_last(Builder& b, Val image) {
  Dims order = all_dims(image);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return b.transpose(image, order);
}

Val with_channels_second(Builder& b, Val image) {
  Dims order = all_dims(image);
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return b.transpose(image, order);
}

Val rows_of_pixels(Builder& b, Val image) {
  const int64_t channels = image.dim(1);
  return b.reshape(with_channels_last(b, image), {image.numel() / channels, channels});
}

Val image_of_rows(Builder& b, Val rows, Ints sizes) {
  Dims turned(sizes.begin(), sizes.end());
  std::rotate(turned.begin() + 1, turned.begin() + 2, turned.end());
  return with_channels_second(b, b.reshape(rows, turned));
}

Dims turn_to_memory(LowerContext& c, size_t i, Val& x, Dims dims) {
  const Window* window = c.window(i);
  if (window == nullptr || dims.empty()) {
    return dims;
  }
  Dims order = all_dims(x), turned, kept;
  std::stable_sort(order.begin(), order.end(), [&](int64_t one, int64_t other) {
    return window->strides[one] > window->strides[other];
  });
  for (size_t d = 0; d < order.size(); ++d) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), order[d]) != dims.end();
    (is_reduced ? turned : kept).push_back(is_reduced ? static_cast<int64_t>(d) : order[d]);
  }
  if (!std::is_sorted(kept.begin(), kept.end())) {
    return dims;
  }
  x = c.b.transpose(x, order);
  return turned;
}

}  // namespace torch_xla
