// The *_copy forms of views that only relabel, reorder or expand dimensions. Slices and diagonals
// are in shape_strided.cpp.
#include "lower/shape.h"

namespace torch_xla {
namespace {

void lower_identity(LowerContext& c) { c.set(0, c.tensor(0)); }

// view, squeeze, unsqueeze: the result's sizes say everything.
void lower_reshape(LowerContext& c) { c.set(0, c.b.reshape(c.tensor(0), c.output(0).sizes)); }

void lower_expand(LowerContext& c) { c.set(0, c.b.expand(c.tensor(0), c.output(0).sizes)); }

void lower_permute(LowerContext& c) {
  Val x = c.tensor(0);
  Dims permutation = c.integers(1);
  for (int64_t& dim : permutation) {
    dim = wrapped_dim(dim, x.rank());
  }
  c.set(0, c.b.transpose(x, permutation));
}

Val swapped(Builder& b, Val x, int64_t dim0, int64_t dim1) {
  Dims permutation;
  for (int64_t d = 0; d < x.rank(); ++d) {
    permutation.push_back(d == dim0 ? dim1 : d == dim1 ? dim0 : d);
  }
  return x.rank() < 2 ? x : b.transpose(x, permutation);
}

void lower_transpose(LowerContext& c) {
  Val x = c.tensor(0);
  c.set(0, swapped(c.b, x, c.dim(1, x.rank()), c.dim(2, x.rank())));
}

void lower_t(LowerContext& c) { c.set(0, swapped(c.b, c.tensor(0), 0, 1)); }

// split, split_with_sizes, unbind: consecutive parts of a dimension, in the outputs' sizes.
void set_consecutive_parts(LowerContext& c, int64_t dim, bool keeps_dim) {
  Val x = c.tensor(0);
  int64_t start = 0;
  for (size_t i = 0; i < c.output_count(); ++i) {
    const Dims& sizes = c.output(i).sizes;
    int64_t count = keeps_dim ? sizes[dim] : 1;
    c.set(i, c.b.reshape(c.b.slice_dim(x, dim, start, start + count), sizes));
    start += count;
  }
}

void lower_split(LowerContext& c) { set_consecutive_parts(c, c.dim(2, c.tensor(0).rank()), true); }
void lower_unbind(LowerContext& c) {
  set_consecutive_parts(c, c.dim(1, c.tensor(0).rank()), false);
}

void lower_conj(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  bool complex = c10::isComplexType(x.dtype());
  c.set(0, complex ? b.complex(b.real(x), b.unary("negate", b.imag(x))) : x);
}

void lower_neg(LowerContext& c) { c.set(0, c.b.unary("negate", c.tensor(0))); }

void lower_view_as_real(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Dims column = x.dims();
  column.push_back(1);
  c.set(0, b.concatenate({b.reshape(b.real(x), column), b.reshape(b.imag(x), column)}, x.rank()));
}

void lower_view_as_complex(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  const Dims& sizes = c.output(0).sizes;
  int64_t last = x.rank() - 1;
  c.set(0, b.complex(b.reshape(b.slice_dim(x, last, 0, 1), sizes),
                     b.reshape(b.slice_dim(x, last, 1, 2), sizes)));
}

// unfold_copy(self, dimension, size, step): window positions in `dimension`, elements last.
void lower_unfold(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  if (x.rank() == 0) {
    return c.set(0, b.reshape(x, c.output(0).sizes));
  }
  int64_t dim = c.dim(1, x.rank()), size = c.integer(2), step = c.integer(3);
  Dims element = c.output(0).sizes;
  int64_t windows = element[dim];
  element.back() = 1;
  Vals elements;
  for (int64_t i = 0; i < size; ++i) {
    elements.push_back(b.reshape(read_strided(b, x, dim, {i, windows, step}), element));
  }
  c.set(0, elements.empty() ? b.full(0.0, {x.dtype(), c.output(0).sizes})
                            : b.concatenate(elements, x.rank()));
}

}  // namespace

void register_copies(LowerTable& table) {
  for (const char* name : {"alias_copy", "detach_copy", "lift_fresh_copy"}) {
    table[std::string("aten::") + name] = {lower_identity};
  }
  for (const char* name : {"view_copy", "_reshape_copy", "_reshape_alias_copy", "squeeze_copy",
                           "squeeze_copy.dim", "squeeze_copy.dims", "unsqueeze_copy"}) {
    table[std::string("aten::") + name] = {lower_reshape};
  }
  table.insert({
      {"aten::expand_copy", {lower_expand}},
      {"aten::permute_copy", {lower_permute}},
      {"aten::transpose_copy.int", {lower_transpose}},
      {"aten::t_copy", {lower_t}},
      {"aten::split_copy.Tensor", {lower_split}},
      {"aten::split_with_sizes_copy", {lower_split}},
      {"aten::unbind_copy.int", {lower_unbind}},
      {"aten::_conj_copy", {lower_conj}},
      {"aten::_neg_view_copy", {lower_neg}},
      {"aten::view_as_real_copy", {lower_view_as_real}},
      {"aten::view_as_complex_copy", {lower_view_as_complex}},
      {"aten::unfold_copy", {lower_unfold}},
  });
}

}  // namespace torch_xla
