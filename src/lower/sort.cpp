// Sorting and selecting by rank. NaN is greater than every number, as in PyTorch.
//
// Where host memory is device memory ATen's kernels run instead: XLA's CPU sort was measured 1.5
// to 100 times slower at every size from 64 elements to 2 million, topk(50) of 8 x 32000 35 times.
#include <limits>

#include "lower/index.h"

namespace torch_xla {
namespace {

struct Sorted {
  Val values, indices;  // indices: i64
};

// Whether a comes before b; block arguments are (a, b, index of a, index of b).
Region comparator(bool descending) {
  return [descending](Builder& b, const Vals& args) -> Vals {
    Val x = args[0], y = args[1];
    Val before = b.compare(descending ? "GT" : "LT", x, y);
    if (!c10::isFloatingType(x.dtype())) {
      return {before};
    }
    Val x_nan = b.compare("NE", x, x), y_nan = b.compare("NE", y, y);
    Val by_nan = descending ? b.logical_and(x_nan, b.logical_not(y_nan))
                            : b.logical_and(y_nan, b.logical_not(x_nan));
    return {b.logical_or(before, by_nan)};
  };
}

// Always stable: without a promise ATen's sort is stable on most devices too, and equal elements
// then give equal results everywhere.
Sorted sorted(Builder& b, Val x, int64_t dim, bool descending) {
  if (x.rank() == 0) {
    return {x, b.constant(0.0, DType::Long)};
  }
  if (x.numel() == 0) {
    return {x, b.full(0.0, {DType::Long, x.dims()})};
  }
  // 32-bit positions move half as much memory.
  Val positions = b.iota({DType::Int, x.dims()}, dim);
  Vals results = b.sort({x, positions}, dim, true, comparator(descending));
  return {results[0], b.convert(results[1], DType::Long)};
}

// sort(self, dim, descending), argsort; sort.stable(self, *, stable, dim, descending) has one more
// argument in front.
template <size_t dim_argument>
Sorted sorted_arguments(LowerContext& c) {
  Val x = c.tensor(0);
  return sorted(c.b, x, c.dim(dim_argument, x.rank()), c.flag(dim_argument + 1));
}

template <size_t dim_argument>
void lower_sort(LowerContext& c) {
  Sorted s = sorted_arguments<dim_argument>(c);
  c.set(0, s.values);
  c.set(1, s.indices);
}

template <size_t dim_argument>
void lower_argsort(LowerContext& c) {
  c.set(0, sorted_arguments<dim_argument>(c).indices);
}

void lower_msort(LowerContext& c) { c.set(0, sorted(c.b, c.tensor(0), 0, false).values); }

// topk(self, k, dim, largest, sorted)
void lower_topk(LowerContext& c) {
  Val x = c.tensor(0);
  int64_t k = c.integer(1), dim = c.dim(2, x.rank());
  Sorted s = sorted(c.b, x, dim, c.flag(3));
  if (x.rank() > 0) {
    s.values = c.b.slice_dim(s.values, dim, 0, k);
    s.indices = c.b.slice_dim(s.indices, dim, 0, k);
  }
  c.set(0, s.values);
  c.set(1, s.indices);
}

// ---- one rank ---------------------------------------------------------------------------------

void set_reshaped(LowerContext& c, Val values, Val indices) {
  c.set(0, c.b.reshape(values, c.output(0).sizes));
  c.set(1, c.b.reshape(indices, c.output(1).sizes));
}

// kthvalue(self, k, dim, keepdim)
void lower_kthvalue(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  int64_t dim = c.dim(2, x.rank());
  Sorted s = sorted(b, x, dim, false);
  if (x.rank() > 0) {
    Vals starts(x.rank(), b.constant(0.0, DType::Long));
    starts[dim] = b.sub(c.number(1, DType::Long), b.constant(1.0, DType::Long));
    Dims sizes = x.dims();
    sizes[dim] = 1;
    s.values = b.dynamic_slice(s.values, starts, sizes);
    s.indices = b.dynamic_slice(s.indices, starts, sizes);
  }
  set_reshaped(c, s.values, s.indices);
}

enum class NaN { Wins, Ignored };

// Where, along a sorted dimension, the (lower) median stands; dimension `dim` has size 1.
Val median_position(Builder& b, Val x, int64_t dim, NaN nan) {
  Dims one = x.dims();
  one[dim] = 1;
  Val is_number = b.convert(b.compare("EQ", x, x), DType::Long);
  Val numbers = b.reduce(is_number, b.constant(0.0, DType::Long), {dim}, "add");
  numbers = b.reshape(numbers, one);
  if (nan == NaN::Ignored) {
    Val last = b.maximum(b.sub(numbers, b.scalar_like(numbers, 1)), b.scalar_like(numbers, 0));
    return b.div(last, b.scalar_like(last, 2));
  }
  // The first NaN stands behind all numbers.
  int64_t size = x.dim(dim);
  Val all = b.full(static_cast<double>(size), numbers.type());
  Val middle = b.full(static_cast<double>((size - 1) / 2), numbers.type());
  return b.select(b.compare("LT", numbers, all), numbers, middle);
}

Sorted median(Builder& b, Val x, int64_t dim, NaN nan) {
  Sorted s = sorted(b, x, dim, false);
  if (x.rank() == 0) {
    return s;
  }
  if (!c10::isFloatingType(x.dtype())) {
    int64_t middle = (x.dim(dim) - 1) / 2;
    return {b.slice_dim(s.values, dim, middle, middle + 1),
            b.slice_dim(s.indices, dim, middle, middle + 1)};
  }
  Val position = median_position(b, x, dim, nan);
  return {gather_along(b, s.values, dim, position), gather_along(b, s.indices, dim, position)};
}

template <NaN nan>
void lower_median(LowerContext& c) {
  Val x = c.tensor(0);
  if (x.numel() == 0) {
    bool floating = c10::isFloatingType(x.dtype());
    double empty = floating ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    return c.set(0, c.b.full(empty, {x.dtype(), {}}));
  }
  Sorted s = median(c.b, c.b.reshape(x, {x.numel()}), 0, nan);
  c.set(0, c.b.reshape(s.values, {}));
}

template <NaN nan>
void lower_median_dim(LowerContext& c) {
  Val x = c.tensor(0);
  Sorted s = median(c.b, x, c.dim(1, x.rank()), nan);
  set_reshaped(c, s.values, s.indices);
}

}  // namespace

void register_sort(LowerTable& table) {
  table.insert({
      {"aten::sort", {host_or<lower_sort<1>>}},
      {"aten::sort.stable", {host_or<lower_sort<2>>}},
      {"aten::argsort", {host_or<lower_argsort<1>>}},
      {"aten::argsort.stable", {host_or<lower_argsort<2>>}},
      {"aten::msort", {host_or<lower_msort>}},
      {"aten::topk", {host_or<lower_topk>}},
      {"aten::kthvalue", {host_or<lower_kthvalue>}},
      {"aten::median", {host_or<lower_median<NaN::Wins>>}},
      {"aten::nanmedian", {host_or<lower_median<NaN::Ignored>>}},
      {"aten::median.dim", {host_or<lower_median_dim<NaN::Wins>>}},
      {"aten::nanmedian.dim", {host_or<lower_median_dim<NaN::Ignored>>}},
  });
}

}  // namespace torch_xla
