// Padding: constant, reflected, replicated, and the gradients of the last two. Pad lists start at
// the last dimension: (left, right, top, bottom, ...). Negative amounts crop.
#include <algorithm>

#include "lower/expr.h"
#include "lower/shape.h"

namespace torch_xla {
namespace {

// XLA-CPU asks of each number whether it lies inside.
void lower_constant_pad_nd(LowerContext& c) {
  Dims amounts = c.integers(1);
  const bool crops = std::any_of(amounts.begin(), amounts.end(), [](int64_t n) { return n < 0; });
  if (!crops && c.prefers_host() && is_worth_a_call(c)) {
    return c.call_host();
  }
  Val x = c.tensor(0);
  Dims low(x.rank(), 0), high(x.rank(), 0), interior(x.rank(), 0);
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    low[x.rank() - 1 - i] = amounts[2 * i];
    high[x.rank() - 1 - i] = amounts[2 * i + 1];
  }
  c.set(0, c.b.pad(x, c.number(2, x.dtype()), low, high, interior));
}

// Pads (or, for gradients, undoes) one dimension.
using PadDimension = Val (*)(Builder&, Val x, int64_t dim, int64_t low, int64_t high);

Val crop(Builder& b, Val x, int64_t dim, int64_t low, int64_t high) {
  return b.slice_dim(x, dim, low, x.dim(dim) - high);
}

Val reflect(Builder& b, Val x, int64_t dim, int64_t low, int64_t high) {
  int64_t size = x.dim(dim);
  Vals parts;
  if (low > 0) {
    parts.push_back(b.reverse(b.slice_dim(x, dim, 1, low + 1), {dim}));
  }
  parts.push_back(x);
  if (high > 0) {
    parts.push_back(b.reverse(b.slice_dim(x, dim, size - 1 - high, size - 1), {dim}));
  }
  Val padded = parts.size() == 1 ? x : b.concatenate(parts, dim);
  return crop(b, padded, dim, std::max<int64_t>(-low, 0), std::max<int64_t>(-high, 0));
}

Val replicate(Builder& b, Val x, int64_t dim, int64_t low, int64_t high) {
  int64_t size = x.dim(dim);
  auto edge = [&](int64_t position, int64_t count) {
    Dims dims = x.dims();
    dims[dim] = count;
    return b.expand(b.slice_dim(x, dim, position, position + 1), dims);
  };
  Vals parts;
  if (low > 0) {
    parts.push_back(edge(0, low));
  }
  parts.push_back(x);
  if (high > 0) {
    parts.push_back(edge(size - 1, high));
  }
  Val padded = parts.size() == 1 ? x : b.concatenate(parts, dim);
  return crop(b, padded, dim, std::max<int64_t>(-low, 0), std::max<int64_t>(-high, 0));
}

// The part of a gradient that belongs to the unpadded dimension; cropped elements get 0.
Val middle(Builder& b, Val grad, int64_t dim, int64_t low, int64_t high) {
  Dims before(grad.rank(), 0), after(grad.rank(), 0), interior(grad.rank(), 0);
  before[dim] = -low;
  after[dim] = -high;
  return b.pad(grad, b.scalar_like(grad, 0), before, after, interior);
}

Val reflect_backward(Builder& b, Val grad, int64_t dim, int64_t low, int64_t high) {
  int64_t padded = grad.dim(dim), size = padded - low - high;
  Val sum = middle(b, grad, dim, low, high);
  if (low > 0) {
    Val part = b.reverse(b.slice_dim(grad, dim, 0, low), {dim});
    sum = b.add(sum, place_strided(b, part, dim, {1, low, 1}, size));
  }
  if (high > 0) {
    Val part = b.reverse(b.slice_dim(grad, dim, padded - high, padded), {dim});
    sum = b.add(sum, place_strided(b, part, dim, {size - 1 - high, high, 1}, size));
  }
  return sum;
}

Val replicate_backward(Builder& b, Val grad, int64_t dim, int64_t low, int64_t high) {
  int64_t padded = grad.dim(dim), size = padded - low - high;
  Dims edge = grad.dims();
  edge[dim] = 1;
  auto edge_sum = [&](int64_t start, int64_t limit) {
    Val part = b.slice_dim(grad, dim, start, limit);
    return b.reshape(b.reduce(part, b.scalar_like(part, 0), {dim}, "add"), edge);
  };
  Val sum = middle(b, grad, dim, low, high);
  if (low > 0) {
    sum = b.add(sum, place_strided(b, edge_sum(0, low), dim, {0, 1, 1}, size));
  }
  if (high > 0) {
    Val part = edge_sum(padded - high, padded);
    sum = b.add(sum, place_strided(b, part, dim, {size - 1, 1, 1}, size));
  }
  return sum;
}

template <PadDimension pad_dimension>
void lower_pad(LowerContext& c) {
  Val x = c.tensor(0);
  Dims amounts = c.integers(1);
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    int64_t dim = x.rank() - 1 - static_cast<int64_t>(i);
    x = pad_dimension(c.b, x, dim, amounts[2 * i], amounts[2 * i + 1]);
  }
  c.set(0, x);
}

// (grad_output, self, padding)
template <PadDimension unpad_dimension>
void lower_pad_backward(LowerContext& c) {
  DType dtype = c.output(0).dtype;
  Val grad = c.tensor_as(0, compute_dtype(dtype));
  Dims amounts = c.integers(2);
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    int64_t dim = grad.rank() - 1 - static_cast<int64_t>(i);
    grad = unpad_dimension(c.b, grad, dim, amounts[2 * i], amounts[2 * i + 1]);
  }
  c.set(0, c.b.convert(grad, dtype));
}

}  // namespace

void register_pad(LowerTable& table) {
  table["aten::constant_pad_nd"] = {lower_constant_pad_nd};
  for (std::string rank : {"1d", "2d", "3d"}) {
    table["aten::reflection_pad" + rank] = {large_floats_on_host<lower_pad<reflect>>};
    table["aten::reflection_pad" + rank + "_backward"] = {lower_pad_backward<reflect_backward>};
    table["aten::replication_pad" + rank] = {large_floats_on_host<lower_pad<replicate>>};
    table["aten::replication_pad" + rank + "_backward"] = {lower_pad_backward<replicate_backward>};
  }
}

}  // namespace torch_xla
