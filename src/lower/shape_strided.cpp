// Strided reading and writing along one dimension, and the operators that are no more than that:
// slice_scatter, select_backward, diag_embed, ...
#include <algorithm>

#include "base/processor.h"
#include "lower/shape.h"

namespace torch_xla {

bool is_taken_by_number(DType dtype) {
  return c10::elementSize(dtype) < 4 && !processor::loads_16_bits_by_mask();
}

int64_t wrapped_dim(int64_t dim, int64_t rank) {
  return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim;
}

namespace {

// The part of x from the first position to the last, and the positions in it.
struct Part {
  Vals starts;
  Dims sizes;
  Stride inside;
};

Part part_of(Builder& b, Ints sizes, int64_t dim, const Stride& s) {
  Part part{
      Vals(sizes.size(), b.constant(0.0, DType::Long)), Dims(sizes), {0, s.count, s.step, {}}};
  part.starts[dim] = s.input ? s.input : b.constant(static_cast<double>(s.start), DType::Long);
  part.sizes[dim] = s.span();
  return part;
}

}  // namespace

Val read_strided(Builder& b, Val x, int64_t dim, Stride s) {
  if (s.input) {
    Part part = part_of(b, x.dims(), dim, s);
    return read_strided(b, b.dynamic_slice(x, part.starts, part.sizes), dim, part.inside);
  }
  return b.slice_dim(x, dim, s.start, s.start + s.span(), s.step);
}

Val place_strided(Builder& b, Val source, int64_t dim, Stride s, int64_t size) {
  if (s.input) {
    Dims sizes = source.dims();
    sizes[dim] = size;
    return write_strided(b, b.full(0.0, {source.dtype(), sizes}), source, dim, s);
  }
  Dims low(source.rank(), 0), high(source.rank(), 0), interior(source.rank(), 0);
  low[dim] = s.start;
  high[dim] = size - s.start - s.span();
  interior[dim] = s.step - 1;
  return b.pad(source, b.scalar_like(source, 0), low, high, interior);
}

Val write_strided(Builder& b, Val x, Val source, int64_t dim, Stride s) {
  if (source.numel() == 0) {
    return x;
  }
  if (s.step == 1 || s.input) {
    Part part = part_of(b, x.dims(), dim, s);
    if (s.step > 1) {
      Val before = b.dynamic_slice(x, part.starts, part.sizes);
      source = write_strided(b, before, source, dim, part.inside);
    }
    return b.dynamic_update_slice(x, source, part.starts);
  }
  Val written = b.full(1.0, {DType::Bool, source.dims()});
  int64_t size = x.dim(dim);
  return b.select(place_strided(b, written, dim, s, size), place_strided(b, source, dim, s, size),
                  x);
}

Stride diagonal_stride(int64_t rows, int64_t columns, int64_t offset) {
  int64_t count = offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns);
  if (count <= 0) {
    return {0, 0, columns + 1};
  }
  return {offset >= 0 ? offset : -offset * columns, count, columns + 1};
}

namespace {

Dims matrices_last_permutation(int64_t rank, int64_t dim1, int64_t dim2) {
  Dims permutation;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != dim1 && d != dim2) {
      permutation.push_back(d);
    }
  }
  permutation.push_back(dim1);
  permutation.push_back(dim2);
  return permutation;
}

}  // namespace

Val matrices_last(Builder& b, Val x, int64_t dim1, int64_t dim2) {
  return b.transpose(x, matrices_last_permutation(x.rank(), dim1, dim2));
}

Val matrices_back(Builder& b, Val x, int64_t dim1, int64_t dim2) {
  Dims permutation = matrices_last_permutation(x.rank(), dim1, dim2);
  Dims inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) {
    inverse[permutation[i]] = static_cast<int64_t>(i);
  }
  return b.transpose(x, inverse);
}

namespace {

// `count` positions from where argument i says: the recorder has counted it from 0 (kSlice).
Stride begun_at(LowerContext& c, size_t i, int64_t count, int64_t step = 1) {
  std::optional<Number> start = c.literal(i);
  return {start ? start->to_int() : 0, count, step, start ? Val() : c.number(i, DType::Long)};
}

// ---- views into new tensors -----------------------------------------------------------------

void lower_slice_copy(LowerContext& c) {
  Val x = c.tensor(0);
  int64_t dim = c.dim(1, x.rank());
  c.set(0, read_strided(c.b, x, dim, begun_at(c, 2, c.output(0).sizes[dim], c.integer(4))));
}

void lower_select_copy(LowerContext& c) {
  Val x = c.tensor(0);
  int64_t dim = c.dim(1, x.rank());
  Val row = read_strided(c.b, x, dim, begun_at(c, 2, 1));
  c.set(0, c.b.reshape(row, c.output(0).sizes));
}

void lower_narrow_copy(LowerContext& c) {
  Val x = c.tensor(0);
  int64_t dim = c.dim(1, x.rank());
  c.set(0, read_strided(c.b, x, dim, begun_at(c, 2, c.output(0).sizes[dim])));
}

// A diagonal is a strided slice of the flattened matrix.
Val flattened_matrices(Builder& b, Val x) {
  Dims dims(x.dims().begin(), x.dims().end() - 2);
  dims.push_back(x.dim(x.rank() - 2) * x.dim(x.rank() - 1));
  return b.reshape(x, dims);
}

void lower_diagonal_copy(LowerContext& c) {
  Val x = c.tensor(0);
  int64_t dim1 = c.dim(2, x.rank()), dim2 = c.dim(3, x.rank());
  Stride diagonal = diagonal_stride(x.dim(dim1), x.dim(dim2), c.integer(1));
  Val flat = flattened_matrices(c.b, matrices_last(c.b, x, dim1, dim2));
  c.set(0, read_strided(c.b, flat, flat.rank() - 1, diagonal));
}

// ---- writing such a view --------------------------------------------------------------------

void lower_slice_scatter(LowerContext& c) {
  Val x = c.tensor(0);
  int64_t dim = c.dim(2, x.rank());
  Val source = c.tensor_as(1, x.dtype());
  c.set(0, write_strided(c.b, x, source, dim, begun_at(c, 3, source.dim(dim), c.integer(5))));
}

void lower_select_scatter(LowerContext& c) {
  Val x = c.tensor(0);
  int64_t dim = c.dim(2, x.rank());
  Dims row = x.dims();
  row[dim] = 1;
  Val source = c.b.reshape(c.tensor_as(1, x.dtype()), row);
  c.set(0, write_strided(c.b, x, source, dim, begun_at(c, 3, 1)));
}

void lower_diagonal_scatter(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  int64_t dim1 = c.dim(3, x.rank()), dim2 = c.dim(4, x.rank());
  Stride diagonal = diagonal_stride(x.dim(dim1), x.dim(dim2), c.integer(2));
  Val matrices = matrices_last(b, x, dim1, dim2);
  Val flat = flattened_matrices(b, matrices);
  flat = write_strided(b, flat, c.tensor_as(1, x.dtype()), flat.rank() - 1, diagonal);
  c.set(0, matrices_back(b, b.reshape(flat, matrices.dims()), dim1, dim2));
}

// ---- gradients: the same with zeros around ----------------------------------------------------

bool is_better_placed_on_host(LowerContext& c, int64_t dim) {
  const OutputSpec& output = c.output(0);
  return is_taken_by_number(output.dtype) && dim + 1 == static_cast<int64_t>(output.sizes.size()) &&
         c.prefers_host() && is_worth_a_call(c);
}

void lower_slice_backward(LowerContext& c) {
  const Dims& sizes = c.output(0).sizes;
  int64_t dim = c.dim(2, static_cast<int64_t>(sizes.size()));
  if (is_better_placed_on_host(c, dim)) {
    return c.call_host();
  }
  Val grad = c.tensor(0);
  Stride stride = begun_at(c, 3, grad.dim(dim), c.integer(5));
  c.set(0, place_strided(c.b, grad, dim, stride, sizes[dim]));
}

void lower_select_backward(LowerContext& c) {
  const Dims& sizes = c.output(0).sizes;
  int64_t dim = c.dim(2, static_cast<int64_t>(sizes.size()));
  Dims row = sizes;
  row[dim] = 1;
  Val grad = c.b.reshape(c.tensor(0), row);
  c.set(0, place_strided(c.b, grad, dim, begun_at(c, 3, 1), sizes[dim]));
}

// `diagonal` [..., count] as the diagonal of zero matrices of `sizes` in dimensions dim1, dim2.
Val diagonal_matrices(Builder& b, Val diagonal, const Dims& sizes, int64_t offset, int64_t dim1,
                      int64_t dim2) {
  int64_t rows = sizes[dim1], columns = sizes[dim2];
  Stride stride = diagonal_stride(rows, columns, offset);
  Val flat = place_strided(b, diagonal, diagonal.rank() - 1, stride, rows * columns);
  Dims matrices(diagonal.dims().begin(), diagonal.dims().end() - 1);
  matrices.push_back(rows);
  matrices.push_back(columns);
  return matrices_back(b, b.reshape(flat, matrices), dim1, dim2);
}

void lower_diagonal_backward(LowerContext& c) {
  const Dims& sizes = c.output(0).sizes;
  int64_t rank = static_cast<int64_t>(sizes.size());
  c.set(0,
        diagonal_matrices(c.b, c.tensor(0), sizes, c.integer(2), c.dim(3, rank), c.dim(4, rank)));
}

void lower_diag_embed(LowerContext& c) {
  const Dims& sizes = c.output(0).sizes;
  int64_t rank = static_cast<int64_t>(sizes.size()), offset = c.integer(1);
  int64_t dim1 = c.dim(2, rank), dim2 = c.dim(3, rank);
  c.set(0, diagonal_matrices(c.b, c.tensor(0), sizes, offset, dim1, dim2));
}

// unfold_backward(grad_in, input_sizes, dim, size, step). The windows are `size` long and `step`
// apart: cut into pieces of one step, the pieces j of all windows tile the dimension, j steps in.
void lower_unfold_backward(LowerContext& c) {
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  if (sizes.empty()) {
    return c.set(0, b.reshape(c.tensor(0), {}));
  }
  int64_t dim = c.dim(2, static_cast<int64_t>(sizes.size()));
  int64_t size = c.integer(3), step = c.integer(4);
  int64_t pieces = (size + step - 1) / step;
  Val grad = c.tensor(0);
  int64_t last = grad.rank() - 1, windows = grad.dim(dim);
  grad = place_strided(b, grad, last, {0, size, 1}, pieces * step);

  Dims permutation;  // the window's elements right behind its dimension
  for (int64_t d = 0; d < last; ++d) {
    permutation.push_back(d);
    if (d == dim) {
      permutation.push_back(last);
    }
  }
  grad = b.transpose(grad, permutation);
  Dims tiled = sizes;
  tiled[dim] = windows * step;
  Val sum = b.full(0.0, {grad.dtype(), sizes});
  for (int64_t j = 0; j < pieces; ++j) {
    Val piece = b.reshape(b.slice_dim(grad, dim + 1, j * step, (j + 1) * step), tiled);
    sum = b.add(sum, place_strided(b, piece, dim, {j * step, tiled[dim], 1}, sizes[dim]));
  }
  c.set(0, sum);
}

}  // namespace

void register_strided(LowerTable& table) {
  table.insert({
      {"aten::slice_copy.Tensor", {lower_slice_copy, kSlice}},
      {"aten::select_copy.int", {lower_select_copy, kSlice}},
      {"aten::narrow_copy", {lower_narrow_copy, kSlice}},
      {"aten::diagonal_copy", {lower_diagonal_copy}},
      {"aten::slice_scatter", {lower_slice_scatter, kSlice}},
      {"aten::select_scatter", {lower_select_scatter, kSlice}},
      {"aten::diagonal_scatter", {lower_diagonal_scatter}},
      {"aten::slice_backward", {lower_slice_backward, kSlice}},
      {"aten::select_backward", {lower_select_backward, kSlice}},
      {"aten::diagonal_backward", {lower_diagonal_backward}},
      {"aten::diag_embed", {lower_diag_embed}},
      {"aten::unfold_backward", {lower_unfold_backward}},
  });
}

}  // namespace torch_xla
