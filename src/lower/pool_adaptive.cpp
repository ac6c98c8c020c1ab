// Adaptive pooling: window o of a dimension covers [floor(o * in / out), ceil((o + 1) * in / out)).
// All windows are laid out side by side, as long as the longest of them; shorter ones repeat their
// last element, which a maximum does not notice and an average masks.
#include "lower/index.h"
#include "lower/pool.h"

#include <algorithm>

namespace torch_xla {

namespace {

// [0, repeats), each `repeats` times in a row: nearest-neighbour resizing by a whole factor. 0: no.
int64_t whole_repeats(const std::vector<int64_t>& indices, int64_t size) {
  int64_t count = static_cast<int64_t>(indices.size());
  if (size == 0 || count == 0 || count % size != 0) {
    return 0;
  }
  int64_t repeats = count / size;
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] != i / repeats) {
      return 0;
    }
  }
  return repeats;
}

}  // namespace

Val take(Builder& b, Val x, int64_t dim, const std::vector<int64_t>& indices) {
  int64_t repeats = whole_repeats(indices, x.dim(dim));
  if (repeats == 0) {
    return take_slices(b, x, dim, b.ints(indices));
  }
  if (repeats == 1) {
    return x;
  }
  Dims split = x.dims(), merged = x.dims(), map;
  split.insert(split.begin() + dim + 1, repeats);
  merged[dim] *= repeats;
  for (int64_t d = 0; d < x.rank(); ++d) {
    map.push_back(d <= dim ? d : d + 1);
  }
  return b.reshape(b.broadcast_in_dim(x, split, map), merged);
}

Val put_back(LowerContext& c, Val x, int64_t dim, const std::vector<int64_t>& indices,
             int64_t size) {
  Builder& b = c.b;
  int64_t repeats = whole_repeats(indices, size);
  Dims sizes = x.dims();
  sizes[dim] = size;
  if (repeats == 0) {
    Val zeros = b.full(0.0, {x.dtype(), sizes});
    return scatter_slices(c, zeros, dim, b.ints(indices), x, Combine::Add);
  }
  if (repeats == 1) {
    return x;
  }
  Dims split = sizes;
  split.insert(split.begin() + dim + 1, repeats);
  return sum(reshape({b, x}, split), {dim + 1}).value();
}

namespace {

// The windows of one dimension.
struct Windows {
  int64_t count, length;  // the longest length
  std::vector<int64_t> indices, lengths;
};

Windows windows_of(int64_t in, int64_t out) {
  Windows w{out, 0, {}, {}};
  auto start = [&](int64_t o) { return o * in / out; };
  auto end = [&](int64_t o) { return ((o + 1) * in + out - 1) / out; };
  for (int64_t o = 0; o < out; ++o) {
    w.lengths.push_back(end(o) - start(o));
    w.length = std::max(w.length, w.lengths.back());
  }
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t j = 0; j < w.length; ++j) {
      w.indices.push_back(std::min(start(o) + j, end(o) - 1));
    }
  }
  return w;
}

// Sizes [batch..., H, W] pooled to [batch..., h, w] as [batch..., h, window rows, w, window
// columns].
struct Layout {
  Dims sizes, batch, pooled;
  std::vector<Windows> windows;

  int64_t batch_rank() const { return static_cast<int64_t>(batch.size()); }
  Dims window_dims() const {
    Dims dims;
    for (size_t d = 0; d < windows.size(); ++d) {
      dims.push_back(batch_rank() + 2 * static_cast<int64_t>(d) + 1);
    }
    return dims;
  }
  Dims split() const {
    Dims dims = batch;
    for (const Windows& w : windows) {
      dims.push_back(w.count);
      dims.push_back(w.length);
    }
    return dims;
  }
};

Layout layout_of(Ints sizes, Ints pooled, int64_t spatial) {
  int64_t batch = static_cast<int64_t>(sizes.size()) - spatial;
  Layout layout{Dims(sizes), Dims(sizes.slice(0, batch)), Dims(pooled), {}};
  for (int64_t d = batch; d < static_cast<int64_t>(sizes.size()); ++d) {
    layout.windows.push_back(windows_of(sizes[d], pooled[d]));
  }
  return layout;
}

Val lay_out(Builder& b, Val x, const Layout& layout) {
  for (size_t d = 0; d < layout.windows.size(); ++d) {
    x = take(b, x, layout.batch_rank() + static_cast<int64_t>(d), layout.windows[d].indices);
  }
  return b.reshape(x, layout.split());
}

// Whether an element belongs to its window, or repeats the last one; nullopt if all belong.
std::optional<Expr> belongs(Builder& b, const Layout& layout) {
  std::optional<Expr> result;
  for (size_t d = 0; d < layout.windows.size(); ++d) {
    const Windows& w = layout.windows[d];
    if (std::all_of(w.lengths.begin(), w.lengths.end(),
                    [&](int64_t length) { return length == w.length; })) {
      continue;
    }
    int64_t at = layout.batch_rank() + 2 * static_cast<int64_t>(d);
    Expr position(b, b.iota({DType::Long, {w.count, w.length}}, 1));
    Expr inside = position < spread({b, b.ints(w.lengths)}, {w.count, w.length}, {0});
    inside = spread(inside, layout.split(), {at, at + 1});
    result = result ? *result && inside : inside;
  }
  return result;
}

// Elements per window, in the pooled sizes.
Expr counts(Builder& b, const Layout& layout, DType dtype) {
  std::optional<Expr> result;
  for (size_t d = 0; d < layout.windows.size(); ++d) {
    Expr factor(b, b.convert(b.ints(layout.windows[d].lengths), dtype));
    factor = spread(factor, layout.pooled, {layout.batch_rank() + static_cast<int64_t>(d)});
    result = result ? *result * factor : factor;
  }
  return *result;
}

// Laid out, windows of several lengths take more memory than what is pooled. Those of one length,
// and those of one element each, are none.
bool is_better_called(const LowerContext& c, Ints sizes, Ints pooled, int64_t spatial) {
  bool even = true;
  for (size_t d = sizes.size() - static_cast<size_t>(spatial); d < sizes.size(); ++d) {
    even = even && (sizes[d] == 0 || pooled[d] == 0 || sizes[d] % pooled[d] == 0 ||
                    pooled[d] % sizes[d] == 0);
  }
  return !even && c.prefers_host() && is_worth_a_call(c);
}

// _adaptive_avg_pool2d, _adaptive_avg_pool3d(self, output_size)
template <int64_t spatial>
void lower_adaptive_avg_pool(LowerContext& c) {
  Builder& b = c.b;
  DType compute = compute_dtype(c.output(0).dtype);
  Val x = c.tensor_as(0, compute);
  if (is_better_called(c, x.dims(), c.output(0).sizes, spatial)) {
    return c.call_host();
  }
  Layout layout = layout_of(x.dims(), c.output(0).sizes, spatial);
  Expr laid_out(b, lay_out(b, x, layout));
  if (auto inside = belongs(b, layout)) {
    laid_out = where(*inside, laid_out, 0.0);
  }
  finish(c, sum(laid_out, layout.window_dims()) / counts(b, layout, compute));
}

// _adaptive_avg_pool2d_backward, _adaptive_avg_pool3d_backward(grad_output, self)
template <int64_t spatial>
void lower_adaptive_avg_pool_backward(LowerContext& c) {
  Builder& b = c.b;
  DType compute = compute_dtype(c.output(0).dtype);
  Expr grad(b, c.tensor_as(0, compute));
  if (is_better_called(c, c.output(0).sizes, grad.value().dims(), spatial)) {
    return c.call_host();
  }
  Layout layout = layout_of(c.output(0).sizes, grad.value().dims(), spatial);
  Dims split = layout.split(), kept, merged = layout.batch;
  for (int64_t d = 0; d < layout.batch_rank(); ++d) {
    kept.push_back(d);
  }
  for (const Windows& w : layout.windows) {
    kept.push_back(layout.batch_rank() +
                   2 * static_cast<int64_t>(kept.size() - layout.batch_rank()));
    merged.push_back(w.count * w.length);
  }
  Expr spread_grad = spread(grad / counts(b, layout, compute), split, kept);
  if (auto inside = belongs(b, layout)) {
    spread_grad = where(*inside, spread_grad, 0.0);
  }
  Val result = b.reshape(spread_grad.value(), merged);
  for (size_t d = 0; d < layout.windows.size(); ++d) {
    int64_t dim = layout.batch_rank() + static_cast<int64_t>(d);
    result = put_back(c, result, dim, layout.windows[d].indices, layout.sizes[dim]);
  }
  finish(c, {b, result});
}

// adaptive_max_pool2d, adaptive_max_pool3d(self, output_size)
template <int64_t spatial>
void lower_adaptive_max_pool(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Layout layout = layout_of(x.dims(), c.output(0).sizes, spatial);
  Val positions = plane_positions(b, x, Ints(layout.sizes).slice(layout.batch_rank()));
  Vals results = b.reduce({lay_out(b, x, layout), lay_out(b, positions, layout)},
                          {b.lowest(x.dtype()), no_position(b)}, layout.window_dims(),
                          pick_largest(x.dtype()));
  c.set(0, results[0]);
  c.set(1, b.convert(results[1], DType::Long));
}

// adaptive_max_pool2d_backward, adaptive_max_pool3d_backward(grad_output, self, indices)
template <int64_t spatial>
void lower_adaptive_max_pool_backward(LowerContext& c) {
  DType compute = compute_dtype(c.output(0).dtype);
  c.set(0,
        scatter_to_positions(c, c.tensor_as(0, compute), c.tensor(2), c.output(0).sizes, spatial));
}

}  // namespace

void register_adaptive_pool(LowerTable& table) {
  table["aten::_adaptive_avg_pool2d"] = {lower_adaptive_avg_pool<2>};
  table["aten::_adaptive_avg_pool3d"] = {lower_adaptive_avg_pool<3>};
  table["aten::_adaptive_avg_pool2d_backward"] = {lower_adaptive_avg_pool_backward<2>};
  table["aten::_adaptive_avg_pool3d_backward"] = {lower_adaptive_avg_pool_backward<3>};
  table["aten::adaptive_max_pool2d"] = {large_on_host<lower_adaptive_max_pool<2>>};
  table["aten::adaptive_max_pool3d"] = {large_on_host<lower_adaptive_max_pool<3>>};
  table["aten::adaptive_max_pool2d_backward"] = {
      large_on_host<lower_adaptive_max_pool_backward<2>>};
  table["aten::adaptive_max_pool3d_backward"] = {
      large_on_host<lower_adaptive_max_pool_backward<3>>};
}

}  // namespace torch_xla
