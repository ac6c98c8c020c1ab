// Advanced indexing, x[i, :, j] and x[i, :, j] = v: one gather or one scatter. A boolean mask in a
// write becomes a select, so that it never needs to know how many elements are true; one beside
// other indices becomes indices, of which those that there are not write nowhere.
#include "lower/index.h"

#include <algorithm>

namespace torch_xla {
namespace {

bool is_mask(Val index) { return index.dtype() == DType::Bool || index.dtype() == DType::Byte; }

using Indices = std::vector<std::optional<Val>>;

bool has_mask(const Indices& indices) {
  for (const std::optional<Val>& index : indices) {
    if (index && is_mask(*index)) {
      return true;
    }
  }
  return false;
}

Dims common_sizes(const Vals& indices) {
  Dims result;
  for (const Val& index : indices) {
    while (static_cast<int64_t>(result.size()) < index.rank()) {
      result.insert(result.begin(), 1);
    }
    size_t shift = result.size() - index.rank();
    for (int64_t d = 0; d < index.rank(); ++d) {
      if (index.dim(d) != 1) {
        result[shift + d] = index.dim(d);
      }
    }
  }
  return result;
}

// Integer indices for some dimensions of x, and where their common sizes stand in x[indices].
struct AdvancedIndex {
  Dims indexed;   // dimensions of x, ascending
  Dims sizes;     // the common sizes of the indices
  int64_t place;  // the first dimension of x[indices] that they take
  Dims kept;      // dimensions of x[indices] that come from x
  Dims result;    // sizes of x[indices]
  Val start;      // `sizes` plus, for several indices, a last dimension of one per index
  Vals indices;   // one per indexed dimension, of `sizes`

  // Whether the indices stand side by side: then they are one index of all these dimensions.
  bool is_joint() const {
    return indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  }
};

AdvancedIndex advanced_index(Builder& b, const Dims& x, const Indices& indices) {
  AdvancedIndex a;
  Vals wrapped;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d]) {
      a.indexed.push_back(static_cast<int64_t>(d));
      wrapped.push_back(wrap_negative(b, b.convert(*indices[d], DType::Long), x[d]));
    }
  }
  a.sizes = common_sizes(wrapped);
  // Indices side by side keep their place; separated ones move to the front.
  a.place = a.is_joint() ? a.indexed.front() : 0;

  int64_t rank = static_cast<int64_t>(x.size()), next_indexed = 0;
  for (int64_t d = 0; d < rank; ++d) {
    if (next_indexed < static_cast<int64_t>(a.indexed.size()) && a.indexed[next_indexed] == d) {
      ++next_indexed;
    } else {
      a.result.push_back(x[d]);
    }
  }
  a.result.insert(a.result.begin() + a.place, a.sizes.begin(), a.sizes.end());
  int64_t places = static_cast<int64_t>(a.sizes.size());
  for (int64_t d = 0; d < static_cast<int64_t>(a.result.size()); ++d) {
    if (d < a.place || d >= a.place + places) {
      a.kept.push_back(d);
    }
  }

  for (const Val& index : wrapped) {
    a.indices.push_back(b.expand(index, a.sizes));
  }
  if (wrapped.size() == 1) {
    a.start = wrapped[0];
    return a;
  }
  Dims column = a.sizes;
  column.push_back(1);
  Vals columns;
  for (const Val& index : a.indices) {
    columns.push_back(b.reshape(index, column));
  }
  a.start = b.concatenate(columns, places);
  return a;
}

void lower_index(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Indices indices = c.maybe_tensors(1);
  if (has_mask(indices)) {
    return c.call_host();
  }
  if (product(c.output(0).sizes) == 0) {
    return c.set(0, b.full(0.0, {x.dtype(), c.output(0).sizes}));
  }
  AdvancedIndex a = advanced_index(b, x.dims(), indices);
  stablehlo::GatherDims dims;
  dims.offset_dims = a.kept;
  dims.collapsed_slice_dims = a.indexed;
  dims.start_index_map = a.indexed;
  dims.index_vector_dim = static_cast<int64_t>(a.sizes.size());
  dims.slice_sizes = x.dims();
  for (int64_t d : a.indexed) {
    dims.slice_sizes[d] = 1;
  }
  c.set(0, b.gather(x, a.start, dims));
}

// `values` as a tensor of at most `rank` dimensions: PyTorch ignores leading ones of an assigned
// value.
Val without_leading_ones(Builder& b, Val values, int64_t rank) {
  Dims dims = values.dims();
  while (static_cast<int64_t>(dims.size()) > rank && dims[0] == 1) {
    dims.erase(dims.begin());
  }
  return b.reshape(values, dims);
}

// For x[:, mask] = values with the mask over dimensions [first, first + mask.rank()): what each
// element of x would be set to. Values either have one slice for all true elements, or one each,
// in order.
Val values_under_mask(Builder& b, Val x, Val mask, int64_t first, Val values) {
  int64_t after = x.rank() - first - mask.rank();
  values = without_leading_ones(b, values, first + 1 + after);
  int64_t slices_dim = values.rank() - after - 1;
  if (slices_dim < 0) {
    return b.expand(values, x.dims());
  }
  if (values.dim(slices_dim) == 1) {
    Dims dims = values.dims();
    dims.erase(dims.begin() + slices_dim);
    dims.insert(dims.begin() + slices_dim, mask.rank(), 1);
    return b.expand(b.reshape(values, dims), x.dims());
  }
  return b.expand(take_slices(b, values, slices_dim, rank_among_true(b, mask)), x.dims());
}

Val mask_over(Builder& b, Val mask, int64_t first, const Dims& dims) {
  Dims map;
  for (int64_t d = 0; d < mask.rank(); ++d) {
    map.push_back(first + d);
  }
  return b.broadcast_in_dim(b.convert(mask, DType::Bool), dims, map);
}

Val add_or_replace(Builder& b, Val x, Val values, bool accumulate) {
  return accumulate ? combiner(Combine::Add)(b, {x, values})[0] : values;
}

bool is_alone(const Indices& indices) {
  return std::count_if(indices.begin(), indices.end(),
                       [](const std::optional<Val>& index) { return index.has_value(); }) == 1;
}

void lower_index_put_mask(LowerContext& c, Val x, const Indices& indices, bool accumulate) {
  Builder& b = c.b;
  auto position = std::find_if(indices.begin(), indices.end(),
                               [](const std::optional<Val>& index) { return index.has_value(); });
  int64_t first = position - indices.begin();
  Val mask = **position;
  Val values = values_under_mask(b, x, mask, first, c.tensor_as(2, x.dtype()));
  values = add_or_replace(b, x, values, accumulate);
  c.set(0, b.select(mask_over(b, mask, first, x.dims()), values, x));
}

// Where the true elements of a mask are, as one index of `length` elements for each of its
// dimensions. If only one is true it is repeated, as an index of one element is; what is left of
// the length lies outside of x.
void add_positions(LowerContext& c, Val mask, int64_t length, Indices& indices) {
  Builder& b = c.b;
  auto number = [&](int64_t value, Val like) {
    return b.full(static_cast<double>(value), like.type());
  };
  int64_t count = mask.numel();
  Val flat = b.convert(b.reshape(mask, {count}), DType::Bool);
  Val ranks = rank_among_true(b, flat);
  Val slots = b.select(flat, ranks, number(length, ranks));
  Val found = b.full(static_cast<double>(count), {DType::Long, {length}});
  Val places = b.iota({DType::Long, {count}}, 0);
  found = scatter_slices(c, found, 0, slots, places, Combine::Replace);
  Val trues = b.reduce(b.convert(flat, DType::Long), b.constant(0.0, DType::Long), {0}, "add");
  Val repeated = b.expand(b.slice_dim(found, 0, 0, 1), {length});
  found = b.select(b.compare("EQ", trues, number(1, trues)), repeated, found);
  int64_t stride = count;
  for (int64_t d = 0; d < mask.rank(); ++d) {
    stride /= mask.dim(d);
    Val index = b.div(found, number(stride, found));
    indices.push_back(d == 0 ? index : b.binary("remainder", index, number(mask.dim(d), index)));
  }
}

Indices with_masks_of(LowerContext& c, const Indices& indices, int64_t length) {
  Indices result;
  for (const std::optional<Val>& index : indices) {
    if (index && is_mask(*index)) {
      add_positions(c, *index, length, result);
    } else {
      result.push_back(index);
    }
  }
  return result;
}

// Masks as indices. How many elements are true is what the other indices or the values say, if
// they have more than one; else there may be as many as the mask has.
Indices without_masks(LowerContext& c, Val x, const Indices& indices, Val values) {
  Vals others;
  int64_t most = 1;
  for (const std::optional<Val>& index : indices) {
    if (index && is_mask(*index)) {
      most = std::max(most, index->numel());
    } else if (index) {
      others.push_back(*index);
    }
  }
  Dims sizes = common_sizes(others);
  if (!sizes.empty() && sizes.back() != 1) {
    return with_masks_of(c, indices, std::max<int64_t>(sizes.back(), 1));
  }
  Indices result = with_masks_of(c, indices, most);
  AdvancedIndex a = advanced_index(c.b, x.dims(), result);
  int64_t after = static_cast<int64_t>(a.result.size() - a.sizes.size()) - a.place;
  int64_t given = values.rank() > after ? values.dim(values.rank() - 1 - after) : 1;
  return given > 1 ? with_masks_of(c, indices, given) : result;
}

// Of the indexed dimensions as one, which has `size` elements: at its end where an index is out of
// range.
Val joint_index(Builder& b, const Dims& x, const AdvancedIndex& a, int64_t size) {
  if (a.indices.size() == 1) {
    return a.indices[0];
  }
  std::optional<Val> joint, within;
  for (size_t i = 0; i < a.indices.size(); ++i) {
    const Val index = a.indices[i];
    const Val length = b.scalar_like(index, static_cast<double>(x[a.indexed[i]]));
    const Val fits = b.logical_and(b.compare("GE", index, b.full(0.0, index.type())),
                                   b.compare("LT", index, length));
    joint = joint ? b.add(b.mul(*joint, length), index) : index;
    within = within ? b.logical_and(*within, fits) : fits;
  }
  return b.select(*within, *joint, b.full(static_cast<double>(size), joint->type()));
}

Val put_jointly(LowerContext& c, Val x, const AdvancedIndex& a, Val values, Combine combine) {
  const Ints dims(x.dims());
  const int64_t first = a.indexed.front(), count = product(a.sizes);
  const Ints before = dims.slice(0, first), after = dims.slice(a.indexed.back() + 1);
  const int64_t size = x.numel() / (product(before) * product(after));
  const auto joined = [&](int64_t length) {
    Dims result(before.begin(), before.end());
    result.push_back(length);
    result.insert(result.end(), after.begin(), after.end());
    return result;
  };
  const Val index = c.b.reshape(joint_index(c.b, x.dims(), a, size), {count});
  const Val put = scatter_slices(c, c.b.reshape(x, joined(size)), first, index,
                                 c.b.reshape(values, joined(count)), combine);
  return c.b.reshape(put, x.dims());
}

// index_put(self, indices, values, accumulate)
void lower_index_put(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Indices indices = c.maybe_tensors(1);
  bool accumulate = c.flag(3);
  if (x.numel() == 0) {
    return c.set(0, x);
  }
  if (has_mask(indices)) {
    if (is_alone(indices)) {
      return lower_index_put_mask(c, x, indices, accumulate);
    }
    if (c.prefers_host()) {
      return c.call_host();  // which sees whether as many are true as the others say
    }
    indices = without_masks(c, x, indices, c.tensor(2));
  }
  AdvancedIndex a = advanced_index(b, x.dims(), indices);
  if (product(a.result) == 0) {
    return c.set(0, x);
  }
  // Sums of 16-bit floats are rounded once.
  DType dtype = accumulate ? compute_dtype(x.dtype()) : x.dtype();
  Val values = without_leading_ones(b, c.tensor_as(2, dtype), a.result.size());
  const Combine combine = accumulate ? Combine::Add : Combine::Replace;
  if (a.is_joint() && c.prefers_host()) {
    const Val put = put_jointly(c, b.convert(x, dtype), a, b.expand(values, a.result), combine);
    return c.set(0, b.convert(put, x.dtype()));
  }
  stablehlo::ScatterDims dims;
  dims.update_window_dims = a.kept;
  dims.inserted_window_dims = a.indexed;
  dims.scatter_dims_to_operand_dims = a.indexed;
  dims.index_vector_dim = static_cast<int64_t>(a.sizes.size());
  Val result =
      b.scatter(b.convert(x, dtype), a.start, b.expand(values, a.result), dims, combiner(combine));
  c.set(0, b.convert(result, x.dtype()));
}

void lower_masked_scatter(LowerContext& c) {
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  Val x = b.expand(c.tensor(0), sizes), source = c.tensor(2);
  if (x.numel() == 0 || source.numel() == 0) {
    return c.set(0, x);
  }
  Val mask = b.expand(c.tensor_as(1, DType::Bool), sizes);
  Val values = take_slices(b, b.reshape(source, {source.numel()}), 0, rank_among_true(b, mask));
  c.set(0, b.select(mask, values, x));
}

}  // namespace

void register_advanced_index(LowerTable& table) {
  table.insert({
      {"aten::index.Tensor", {lower_index}},
      {"aten::_unsafe_index.Tensor", {lower_index}},
      {"aten::index_put", {lower_index_put}},
      {"aten::_unsafe_index_put", {lower_index_put}},
      {"aten::_index_put_impl", {lower_index_put}},
      {"aten::masked_scatter", {lower_masked_scatter}},
  });
}

}  // namespace torch_xla
