// Reading by index: index, gather, index_select, take, embedding. Advanced indexing:
// index_advanced.cpp; writing: index_scatter.cpp; searching: index_search.cpp.
#include "lower/index.h"

namespace torch_xla {
namespace {

void lower_index_select(LowerContext& c) {
  Val x = at_least_1d(c.b, c.tensor(0));
  int64_t dim = c.dim(1, x.rank());
  Val index = at_least_1d(c.b, c.tensor(2));
  Val result = take_slices(c.b, x, dim, wrap_negative(c.b, index, x.dim(dim)));
  c.set(0, c.b.reshape(result, c.output(0).sizes));
}

void lower_gather(LowerContext& c) {
  Val x = at_least_1d(c.b, c.tensor(0));
  int64_t dim = c.dim(1, x.rank());
  Val index = at_least_1d(c.b, c.tensor(2));
  Val result = gather_along(c.b, x, dim, wrap_negative(c.b, index, x.dim(dim)));
  c.set(0, c.b.reshape(result, c.output(0).sizes));
}

void lower_take(LowerContext& c) {
  Val x = c.tensor(0);
  Val index = wrap_negative(c.b, c.tensor(1), x.numel());
  c.set(0, take_slices(c.b, c.b.reshape(x, {x.numel()}), 0, index));
}

void lower_embedding(LowerContext& c) { c.set(0, take_slices(c.b, c.tensor(0), 0, c.tensor(1))); }

void lower_embedding_dense_backward(LowerContext& c) {
  Builder& b = c.b;
  int64_t rows = c.integer(2), padding = c.integer(3);
  DType dtype = c.output(0).dtype;
  DType sum_dtype = compute_dtype(dtype);
  Val index = c.tensor_as(1, DType::Long);
  int64_t count = index.numel();
  index = b.reshape(index, {count});
  if (padding >= 0) {
    // Out of range: dropped.
    Val is_padding = b.compare("EQ", index, b.full(static_cast<double>(padding), index.type()));
    index = b.select(is_padding, b.full(static_cast<double>(rows), index.type()), index);
  }
  int64_t width = c.output(0).sizes[1];
  Val grad = b.reshape(c.tensor_as(0, sum_dtype), {count, width});
  if (c.flag(4)) {
    Val uses = scatter_slices(c, b.full(0.0, {sum_dtype, {rows}}), 0, index,
                              b.full(1.0, {sum_dtype, {count}}), Combine::Add);
    Val per_row = b.reshape(take_slices(b, uses, 0, index), {count, 1});
    grad = b.div(grad, per_row);
  }
  Val zero = b.full(0.0, {sum_dtype, c.output(0).sizes});
  c.set(0, b.convert(scatter_slices(c, zero, 0, index, grad, Combine::Add), dtype));
}

}  // namespace

void register_index(LowerTable& table) {
  table.insert({
      {"aten::index_select", {lower_index_select}},
      {"aten::gather", {lower_gather}},
      {"aten::take", {lower_take}},
      {"aten::embedding", {lower_embedding}},
      {"aten::embedding_dense_backward", {lower_embedding_dense_backward}},
  });
  register_advanced_index(table);
  register_scatter(table);
  register_search(table);
}

}  // namespace torch_xla
