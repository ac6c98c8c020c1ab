#include "lower/reduction.h"

#include "lower/graph_lowering.h"

namespace torch_xla {

Dims all_dims(const Val& x) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    dims.push_back(i);
  }
  return dims;
}

Val reduce_to(Builder& b, const Reduction& r, std::string_view op, Val init) {
  return r.dims.empty() ? r.x : b.reduce(r.x, init, r.dims, op);
}

bool fits_kernels(DType dtype) {
  return dtype == DType::Float || dtype == DType::BFloat16 || dtype == DType::Half;
}

std::optional<Val> matrix_for_host(LowerContext& c, Val value, int64_t columns) {
  constexpr int64_t kWorthACall = 1 << 14, kFewest = 16;
  if (!c.prefers_host() || !fits_kernels(value.dtype()) || columns < kFewest ||
      value.numel() < kWorthACall) {
    return std::nullopt;
  }
  return c.b.reshape(value, {value.numel() / columns, columns});
}

size_t count_behind(const Reduction& r) {
  size_t count = 0;
  while (count < r.dims.size() &&
         r.dims[r.dims.size() - 1 - count] == r.x.rank() - 1 - static_cast<int64_t>(count)) {
    ++count;
  }
  return count;
}

std::optional<Val> reduced_rows(LowerContext& c, Val x, size_t behind, const char* target) {
  const Ints dims(x.dims()), outside = dims.slice(0, dims.size() - behind);
  const std::optional<Val> rows =
      behind == 0 ? std::nullopt : matrix_for_host(c, x, product(dims.slice(outside.size())));
  if (!rows) {
    return std::nullopt;
  }
  const TensorType results{DType::Float, {rows->dim(0)}};
  return c.b.reshape(c.b.custom_call(target, {*rows}, {results}, "", /*may_fail=*/false)[0],
                     outside);
}

namespace {

Dims kept_sizes(const Reduction& r) {
  Dims sizes;
  for (int64_t dim : r.kept) {
    sizes.push_back(r.x.dim(dim));
  }
  return sizes;
}

// Of one matrix, or of several that lie behind each other; few rows of these are better a part of a
// loop.
bool is_along_columns(const Reduction& r) {
  constexpr int64_t kFewRows = 32;
  return !r.dims.empty() && r.dims.back() + 1 < r.x.rank() &&
         r.dims.back() - r.dims.front() + 1 == static_cast<int64_t>(r.dims.size()) &&
         (r.dims.front() == 0 || r.count >= kFewRows);
}

// Of what the target gives of rows.
std::optional<Val> sum_of_rows_on_host(LowerContext& c, const Reduction& r, const char* target) {
  const size_t behind = count_behind(r);
  std::optional<Val> sums = reduced_rows(c, r.x, behind, target);
  if (sums && behind < r.dims.size()) {
    const Reduction rest(*sums, Dims(r.dims.begin(), r.dims.end() - behind));
    return reduce_to(c.b, rest, "add", c.b.scalar_like(rest.x, 0));
  }
  return sums;
}

// In float.
std::optional<Val> sum_on_host(LowerContext& c, const Reduction& r) {
  if (r.x.numel() == 0) {
    return std::nullopt;
  }
  if (is_along_columns(r)) {
    const int64_t columns = product(Ints(r.x.dims()).slice(r.dims.back() + 1));
    if (std::optional<Val> rows = matrix_for_host(c, r.x, columns)) {
      const TensorType sums{DType::Float, {r.x.numel() / r.count}};
      const Vals found =
          c.b.custom_call(kColumnSumsTarget, {*rows}, {sums}, "", /*may_fail=*/false);
      return c.b.reshape(found[0], kept_sizes(r));
    }
  }
  return sum_of_rows_on_host(c, r, kRowSumsTarget);
}

Val mean_of(LowerContext& c, const Reduction& r) {
  return c.b.div(sum_of(c, r), c.b.scalar_like(r.x, static_cast<double>(r.count)));
}

// Of rows, then of all that are taken together: as many numbers each.
std::optional<Moments> moments_on_host(LowerContext& c, const Reduction& r) {
  Builder& b = c.b;
  if (is_along_columns(r) && r.dims.front() == 0 && r.x.numel() > 0) {
    if (std::optional<Val> matrix = matrix_for_host(c, r.x, r.x.numel() / r.count)) {
      const TensorType type{DType::Float, {matrix->dim(1)}};
      const Vals found =
          b.custom_call(kColumnMomentsTarget, {*matrix}, {type, type}, "", /*may_fail=*/false);
      return Moments{b.reshape(found[0], kept_sizes(r)), b.reshape(found[1], kept_sizes(r))};
    }
  }
  const size_t behind = count_behind(r);
  const Ints dims(r.x.dims()), outside = dims.slice(0, dims.size() - behind);
  const int64_t columns = product(dims.slice(outside.size()));
  const std::optional<Val> rows =
      behind == 0 || columns == 0 ? std::nullopt : matrix_for_host(c, r.x, columns);
  if (!rows) {
    return std::nullopt;
  }
  const TensorType type{DType::Float, {rows->dim(0)}};
  const Vals found =
      b.custom_call(kRowMomentsTarget, {*rows}, {type, type}, "", /*may_fail=*/false);
  Val means = b.reshape(found[0], outside), squares = b.reshape(found[1], outside);
  if (behind == r.dims.size()) {
    return Moments{means, squares};
  }
  const Reduction rest(means, Dims(r.dims.begin(), r.dims.end() - behind));
  Val mean = mean_of(c, rest), off = b.sub(means, rest.spread_back(b, mean));
  Val between = b.mul(b.mul(off, off), b.scalar_like(off, static_cast<double>(columns)));
  return Moments{mean, sum_of(c, Reduction(b.add(squares, between), rest.dims))};
}

}  // namespace

Val sum_of(LowerContext& c, const Reduction& r) {
  if (r.x.dtype() == DType::Float) {
    if (const std::optional<Val> sum = sum_on_host(c, r)) {
      return *sum;
    }
  }
  return reduce_to(c.b, r, "add", c.b.scalar_like(r.x, 0));
}

Val sum_of_narrow(LowerContext& c, Val given, const Reduction& r) {
  const std::optional<Val> sum =
      r.x.dtype() == DType::Float ? sum_on_host(c, Reduction(given, r.dims)) : std::nullopt;
  return sum ? *sum : sum_of(c, r);
}

Val sum_of_squares(LowerContext& c, Val given, const Reduction& r) {
  const std::optional<Val> sum =
      r.x.dtype() == DType::Float
          ? sum_of_rows_on_host(c, Reduction(given, r.dims), kRowSquaresTarget)
          : std::nullopt;
  return sum ? *sum : sum_of(c, Reduction(c.b.mul(r.x, r.x), r.dims));
}

Moments moments_of(LowerContext& c, Val given, const Reduction& r) {
  Builder& b = c.b;
  if (r.x.dtype() == DType::Float) {
    if (const std::optional<Moments> found = moments_on_host(c, Reduction(given, r.dims))) {
      return *found;
    }
  }
  Val mean = mean_of(c, r), off = b.sub(r.x, r.spread_back(b, mean));
  Val squares = c10::isComplexType(off.dtype())
                    ? b.add(b.mul(b.real(off), b.real(off)), b.mul(b.imag(off), b.imag(off)))
                    : b.mul(off, off);
  return {mean, sum_of(c, Reduction(squares, r.dims))};
}

std::optional<Val> extreme_on_host(LowerContext& c, const Reduction& r, bool largest) {
  const size_t behind = count_behind(r);
  const std::optional<Val> found =
      behind == r.dims.size()
          ? reduced_rows(c, r.x, behind, largest ? kRowLargestTarget : kRowSmallestTarget)
          : std::nullopt;
  return found ? std::optional(c.b.convert(*found, r.x.dtype())) : std::nullopt;
}

Val extreme(LowerContext& c, Val x, Dims dims, bool largest) {
  const Reduction r(x, std::move(dims));
  if (x.dtype() == DType::Bool) {
    return reduce_to(c.b, r, largest ? "or" : "and", c.b.scalar_like(x, largest ? 0 : 1));
  }
  if (const std::optional<Val> found = extreme_on_host(c, r, largest)) {
    return *found;
  }
  Val init = largest ? c.b.lowest(x.dtype()) : c.b.highest(x.dtype());
  return reduce_to(c.b, r, largest ? "maximum" : "minimum", init);
}

}  // namespace torch_xla
