#include "lower/graph_lowering.h"
#include "lower/index.h"

namespace torch_xla {
namespace {

// Positions in the flattened `x` of the elements index[i][j] of `dim`.
Val flat_positions(Builder& b, Val x, int64_t dim, Val index) {
  Dims strides = row_major_strides(x.dims());
  index = b.convert(index, DType::Long);
  Val position = b.mul(index, b.scalar_like(index, static_cast<double>(strides[dim])));
  for (int64_t d = 0; d < index.rank(); ++d) {
    if (d == dim || index.dim(d) == 1) {
      continue;
    }
    Val iota = b.iota(index.type(), d);
    position = b.add(position, b.mul(iota, b.scalar_like(iota, static_cast<double>(strides[d]))));
  }
  return position;
}

// Whether several threads write more of it than XLA's one, or have vectors for it, which XLA has
// not for extremes.
bool gains_by_kernel(Combine combine, int64_t outer, int64_t inner, bool of_each) {
  constexpr int64_t kWide = 512;  // numbers
  const bool extreme = combine == Combine::Maximum || combine == Combine::Minimum;
  return outer > 1 || (of_each ? inner >= kWide : extreme);
}

// By a kernel (host_ops/write_at.h), if there is enough to write. `index`: 1-d, of slices, or as
// the updates are.
std::optional<Val> written_by_host(LowerContext& c, Val x, int64_t dim, Val index, Val updates,
                                   Combine combine) {
  constexpr int64_t kWorthACall = 1 << 13;  // numbers
  const Ints dims(x.dims());
  const int64_t outer = product(dims.slice(0, dim)), inner = product(dims.slice(dim + 1));
  const bool of_each = index.numel() == updates.numel();
  if (!c.prefers_host() || updates.numel() < kWorthACall ||
      !is_written_by_host(combine, x.dtype()) || !gains_by_kernel(combine, outer, inner, of_each)) {
    return std::nullopt;
  }
  const Dims of_updates{outer, updates.numel() / (outer * inner), inner};
  const Val whole = c.b.convert(index, DType::Long);
  const Val written = c.b.behind(
      kWriteAtTarget, c.b.reshape(x, {outer, x.dim(dim), inner}),
      {of_each ? c.b.reshape(whole, of_updates) : whole, c.b.reshape(updates, of_updates)},
      "combine = " + std::to_string(static_cast<int>(combine)) + " : i64");
  return c.b.reshape(written, x.dims());
}

}  // namespace

Val wrap_negative(Builder& b, Val index, int64_t size) {
  Val zero = b.full(0.0, index.type());
  Val wrapped = b.add(index, b.scalar_like(index, static_cast<double>(size)));
  return b.select(b.compare("LT", index, zero), wrapped, index);
}

Val take_slices(Builder& b, Val x, int64_t dim, Val index) {
  Dims result = x.dims();
  result.erase(result.begin() + dim);
  result.insert(result.begin() + dim, index.dims().begin(), index.dims().end());
  if (product(result) == 0 || x.dim(dim) == 0) {  // no index is valid: what is read never matters
    return b.full(0.0, {x.dtype(), result});
  }
  stablehlo::GatherDims dims;
  for (int64_t d = 0; d < static_cast<int64_t>(result.size()); ++d) {
    if (d < dim || d >= dim + index.rank()) {
      dims.offset_dims.push_back(d);
    }
  }
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  dims.index_vector_dim = index.rank();
  dims.slice_sizes = x.dims();
  dims.slice_sizes[dim] = 1;
  return b.gather(x, index, dims);
}

Val gather_along(Builder& b, Val x, int64_t dim, Val index) {
  if (index.numel() == 0) {
    return b.full(0.0, {x.dtype(), index.dims()});
  }
  Val flat = b.reshape(x, {x.numel()});
  return take_slices(b, flat, 0, flat_positions(b, x, dim, index));
}

Val scatter_along(LowerContext& c, Val x, int64_t dim, Val index, Val updates, Combine combine) {
  Builder& b = c.b;
  if (index.numel() == 0 || x.numel() == 0) {
    return x;
  }
  Dims whole = x.dims();
  whole[dim] = index.dim(dim);
  if (index.dims() == whole) {
    if (auto written = written_by_host(c, x, dim, index, updates, combine)) {
      return *written;
    }
  }
  Val positions = b.reshape(flat_positions(b, x, dim, index), {index.numel()});
  Val flat = scatter_slices(c, b.reshape(x, {x.numel()}), 0, positions,
                            b.reshape(updates, {index.numel()}), combine);
  return b.reshape(flat, x.dims());
}

Val scatter_slices(LowerContext& c, Val x, int64_t dim, Val index, Val updates, Combine combine) {
  if (updates.numel() == 0 || x.numel() == 0) {
    return x;
  }
  if (auto written = written_by_host(c, x, dim, index, updates, combine)) {
    return *written;
  }
  stablehlo::ScatterDims dims;
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (d != dim) {
      dims.update_window_dims.push_back(d);
    }
  }
  dims.inserted_window_dims = {dim};
  dims.scatter_dims_to_operand_dims = {dim};
  dims.index_vector_dim = 1;
  return c.b.scatter(x, index, updates, dims, combiner(combine));
}

Region combiner(Combine combine) {
  return [combine](Builder& b, const Vals& args) -> Vals {
    Val current = args[0], update = args[1];
    bool boolean = current.dtype() == DType::Bool;
    switch (combine) {
      case Combine::Replace:
        return {update};
      case Combine::Add:
        return {boolean ? b.logical_or(current, update) : b.add(current, update)};
      case Combine::Multiply:
        return {boolean ? b.logical_and(current, update) : b.mul(current, update)};
      case Combine::Maximum:
        return {b.maximum(current, update)};
      case Combine::Minimum:
        return {b.minimum(current, update)};
    }
    return {};
  };
}

Val identity_of(Builder& b, Combine combine, DType dtype) {
  switch (combine) {
    case Combine::Multiply:
      return b.constant(1.0, dtype);
    case Combine::Maximum:
      return b.lowest(dtype);
    case Combine::Minimum:
      return b.highest(dtype);
    default:
      return b.constant(0.0, dtype);
  }
}

Val rank_among_true(Builder& b, Val mask) {
  int64_t count = mask.numel();
  Val flags = b.convert(b.convert(b.reshape(mask, {count}), DType::Bool), DType::Long);
  stablehlo::WindowDims window;
  window.size = {count};
  window.padding_low = {count - 1};
  Val so_far = b.reduce_window(flags, b.constant(0.0, DType::Long), window, "add");
  Val rank = b.maximum(b.sub(so_far, b.scalar_like(so_far, 1)), b.scalar_like(so_far, 0));
  return b.reshape(rank, mask.dims());
}

}  // namespace torch_xla
