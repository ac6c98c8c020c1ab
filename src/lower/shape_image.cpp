// Rearranging images: pixel and channel shuffles, im2col and col2im.
#include "lower/shape.h"

namespace torch_xla {
namespace {

// x as [batch..., a, b, c, d] with its trailing dimensions split as given.
Val with_trailing(Builder& b, Val x, int64_t leading, Dims trailing) {
  Dims dims(x.dims().begin(), x.dims().begin() + leading);
  dims.append(trailing.begin(), trailing.end());
  return b.reshape(x, dims);
}

// Permutes the trailing dimensions only.
Val transpose_trailing(Builder& b, Val x, int64_t leading, Dims permutation) {
  Dims full;
  for (int64_t d = 0; d < leading; ++d) {
    full.push_back(d);
  }
  for (int64_t d : permutation) {
    full.push_back(leading + d);
  }
  return b.transpose(x, full);
}

void lower_pixel_shuffle(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  int64_t r = c.integer(1), leading = x.rank() - 3;
  int64_t channels = x.dim(leading) / (r * r), height = x.dim(leading + 1),
          width = x.dim(leading + 2);
  x = with_trailing(b, x, leading, {channels, r, r, height, width});
  x = transpose_trailing(b, x, leading, {0, 3, 1, 4, 2});
  c.set(0, b.reshape(x, c.output(0).sizes));
}

void lower_pixel_unshuffle(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  int64_t r = c.integer(1), leading = x.rank() - 3;
  int64_t channels = x.dim(leading), height = x.dim(leading + 1) / r,
          width = x.dim(leading + 2) / r;
  x = with_trailing(b, x, leading, {channels, height, r, width, r});
  x = transpose_trailing(b, x, leading, {0, 2, 4, 1, 3});
  c.set(0, b.reshape(x, c.output(0).sizes));
}

void lower_channel_shuffle(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  int64_t groups = c.integer(1);
  Dims split{groups, x.dim(1) / groups};
  split.append(x.dims().begin() + 2, x.dims().end());
  Val grouped = with_trailing(b, x, 1, split);
  Dims permutation{1, 0};
  for (int64_t d = 2; d < static_cast<int64_t>(split.size()); ++d) {
    permutation.push_back(d);
  }
  c.set(0, b.reshape(transpose_trailing(b, grouped, 1, permutation), x.dims()));
}

// ---- im2col and its inverse -----------------------------------------------------------------

// Where the kernel's element (i, j) reads in one padded dimension.
Stride kernel_stride(int64_t position, int64_t dilation, int64_t blocks, int64_t stride) {
  return {position * dilation, blocks, stride};
}

struct Unfold {
  Dims kernel, dilation, padding, stride;
  int64_t blocks(int64_t d, int64_t size) const {
    return (size + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
  }
};

Unfold unfold_arguments(LowerContext& c, size_t first) {
  return {c.integers(first), c.integers(first + 1), c.integers(first + 2), c.integers(first + 3)};
}

// [.., C, H, W] -> [.., C * kernel, blocks]
void lower_im2col(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Unfold u = unfold_arguments(c, 1);
  int64_t h = x.rank() - 2, w = x.rank() - 1;
  int64_t rows = u.blocks(0, x.dim(h)), columns = u.blocks(1, x.dim(w));
  Dims margin(x.rank(), 0), none(x.rank(), 0);
  margin[h] = u.padding[0];
  margin[w] = u.padding[1];
  x = b.pad(x, b.scalar_like(x, 0), margin, margin, none);
  Vals elements;
  for (int64_t i = 0; i < u.kernel[0]; ++i) {
    Val lines = read_strided(b, x, h, kernel_stride(i, u.dilation[0], rows, u.stride[0]));
    for (int64_t j = 0; j < u.kernel[1]; ++j) {
      Val element =
          read_strided(b, lines, w, kernel_stride(j, u.dilation[1], columns, u.stride[1]));
      elements.push_back(with_trailing(b, element, h, {1, rows * columns}));
    }
  }
  Val stacked = elements.size() == 1 ? elements[0] : b.concatenate(elements, h);
  c.set(0, b.reshape(stacked, c.output(0).sizes));
}

// [.., C * kernel, blocks] -> [.., C, H, W], summing where blocks overlap
void lower_col2im(LowerContext& c) {
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  Unfold u = unfold_arguments(c, 2);
  int64_t rank = static_cast<int64_t>(sizes.size()), h = rank - 2, w = rank - 1;
  int64_t rows = u.blocks(0, sizes[h]), columns = u.blocks(1, sizes[w]);
  Dims split(sizes.begin(), sizes.end() - 2);
  split.push_back(u.kernel[0] * u.kernel[1]);
  split.push_back(rows);
  split.push_back(columns);
  Val x = b.reshape(c.tensor(0), split);
  Dims block(sizes.begin(), sizes.end() - 2);
  block.push_back(rows);
  block.push_back(columns);

  Dims padded = sizes;
  padded[h] += 2 * u.padding[0];
  padded[w] += 2 * u.padding[1];
  Val sum = b.full(0.0, {x.dtype(), padded});
  for (int64_t i = 0; i < u.kernel[0]; ++i) {
    for (int64_t j = 0; j < u.kernel[1]; ++j) {
      int64_t position = i * u.kernel[1] + j;
      Val part = b.reshape(b.slice_dim(x, h, position, position + 1), block);
      part =
          place_strided(b, part, h, kernel_stride(i, u.dilation[0], rows, u.stride[0]), padded[h]);
      part = place_strided(b, part, w, kernel_stride(j, u.dilation[1], columns, u.stride[1]),
                           padded[w]);
      sum = b.add(sum, part);
    }
  }
  sum = b.slice_dim(sum, h, u.padding[0], u.padding[0] + sizes[h]);
  c.set(0, b.slice_dim(sum, w, u.padding[1], u.padding[1] + sizes[w]));
}

}  // namespace

void register_image(LowerTable& table) {
  table.insert({
      {"aten::pixel_shuffle", {lower_pixel_shuffle}},
      {"aten::pixel_unshuffle", {lower_pixel_unshuffle}},
      {"aten::channel_shuffle", {lower_channel_shuffle}},
      {"aten::native_channel_shuffle", {lower_channel_shuffle}},
      {"aten::im2col", {lower_im2col}},
      {"aten::col2im", {lower_col2im}},
  });
}

}  // namespace torch_xla
