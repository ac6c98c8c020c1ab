// Joining, repeating and reordering: cat, stack, repeat, flip, roll, tril, triu, trace, cross.
#include "lower/shape.h"

#include "lower/expr.h"

namespace torch_xla {
namespace {

// Where XLA-CPU makes a part of other loops of it, it asks for each number which part it is of.
constexpr size_t kManyParts = 4;

// PyTorch ignores 1-d tensors without elements here, whatever the others' rank.
void lower_cat(LowerContext& c) {
  const OutputSpec& output = c.output(0);
  const Vals given = c.tensors(0);
  if (given.size() >= kManyParts && c.prefers_host() && is_worth_a_call(c)) {
    return c.call_host();
  }
  Vals parts;
  for (Val part : given) {
    bool ignored = part.rank() == 1 && part.numel() == 0;
    if (!ignored) {
      parts.push_back(c.b.convert(part, output.dtype));
    }
  }
  if (parts.empty()) {
    return c.set(0, c.b.full(0.0, {output.dtype, output.sizes}));
  }
  int64_t dim = c.dim(1, static_cast<int64_t>(output.sizes.size()));
  c.set(0, parts.size() == 1 ? parts[0] : c.b.concatenate(parts, dim));
}

void lower_stack(LowerContext& c) {
  const OutputSpec& output = c.output(0);
  int64_t dim = c.dim(1, static_cast<int64_t>(output.sizes.size()));
  Dims with_dim = output.sizes;
  with_dim[dim] = 1;
  Vals parts;
  for (Val part : c.tensors(0)) {
    parts.push_back(c.b.reshape(c.b.convert(part, output.dtype), with_dim));
  }
  c.set(0, parts.size() == 1 ? parts[0] : c.b.concatenate(parts, dim));
}

void lower_repeat(LowerContext& c) {
  Val x = c.tensor(0);
  Dims repeats = c.integers(1);
  // Each dimension becomes (repeat, size), which one broadcast fills.
  Dims pairs, map;
  int64_t added = static_cast<int64_t>(repeats.size()) - x.rank();
  for (int64_t d = 0; d < static_cast<int64_t>(repeats.size()); ++d) {
    pairs.push_back(repeats[d]);
    if (d >= added) {
      map.push_back(static_cast<int64_t>(pairs.size()));
      pairs.push_back(x.dim(d - added));
    }
  }
  c.set(0, c.b.reshape(c.b.broadcast_in_dim(x, pairs, map), c.output(0).sizes));
}

void lower_flip(LowerContext& c) {
  Val x = c.tensor(0);
  Dims dims = c.integers(1);
  for (int64_t& dim : dims) {
    dim = wrapped_dim(dim, x.rank());
  }
  c.set(0, dims.empty() || x.rank() == 0 ? x : c.b.reverse(x, dims));
}

Val rolled(Builder& b, Val x, int64_t dim, int64_t shift) {
  int64_t size = x.dim(dim);
  if (size == 0) {
    return x;
  }
  int64_t start = ((-shift) % size + size) % size;
  if (start == 0) {
    return x;
  }
  return b.concatenate({b.slice_dim(x, dim, start, size), b.slice_dim(x, dim, 0, start)}, dim);
}

// By what only the program knows: as a part of x beside itself.
Val rolled(Builder& b, Val x, int64_t dim, Val shift) {
  const int64_t size = x.dim(dim);
  if (size == 0) {
    return x;
  }
  const Val modulus = b.scalar_like(shift, static_cast<double>(size));
  const Val within = b.binary("remainder", shift, modulus);  // of shift's sign
  const Val start = b.binary("remainder", b.sub(modulus, within), modulus);
  return read_strided(b, b.concatenate({x, x}, dim), dim, {0, size, 1, start});
}

// roll(self, shifts, dims); without dims as if flat
void roll_parts(LowerContext& c) {
  const Dims dims = c.integers(2);
  const Val all = c.tensor(0);
  Val x = dims.empty() ? c.b.reshape(all, {all.numel()}) : all;
  auto roll = [&](const auto& shifts) {
    for (size_t i = 0; i < shifts.size(); ++i) {
      x = rolled(c.b, x, dims.empty() ? 0 : wrapped_dim(dims[i], x.rank()), shifts[i]);
    }
  };
  if (const std::optional<Dims> shifts = c.literals(1)) {
    roll(*shifts);
  } else {
    roll(c.numbers(1, DType::Long));
  }
  c.set(0, c.b.reshape(x, all.dims()));
}

void lower_roll(LowerContext& c) {
  is_taken_by_number(c.output(0).dtype) ? large_on_host<roll_parts>(c) : roll_parts(c);
}

// The elements on the side `direction` (LE, GE) of a diagonal: column - row <= diagonal.
void keep_triangle(LowerContext& c, std::string_view direction) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  TensorType index{DType::Long, x.dims()};
  Val row = b.iota(index, x.rank() - 2), column = b.iota(index, x.rank() - 1);
  Val limit = b.add(row, b.expand(c.number(1, DType::Long), row.dims()));
  c.set(0, b.select(b.compare(direction, column, limit), x, b.full(0.0, x.type())));
}

void lower_tril(LowerContext& c) { keep_triangle(c, "LE"); }
void lower_triu(LowerContext& c) { keep_triangle(c, "GE"); }

void lower_trace(LowerContext& c) {
  Builder& b = c.b;
  DType dtype = c.output(0).dtype;
  DType sum_dtype = compute_dtype(dtype);
  Val x = c.tensor_as(0, sum_dtype);
  Stride diagonal = diagonal_stride(x.dim(0), x.dim(1), 0);
  Val elements = read_strided(b, b.reshape(x, {x.numel()}), 0, diagonal);
  c.set(0, b.convert(b.reduce(elements, b.constant(0.0, sum_dtype), {0}, "add"), dtype));
}

void lower_linalg_cross(LowerContext& c) {
  Builder& b = c.b;
  const OutputSpec& output = c.output(0);
  int64_t dim = c.dim(2, static_cast<int64_t>(output.sizes.size()));
  Val x = b.expand(c.tensor_as(0, output.dtype), output.sizes);
  Val y = b.expand(c.tensor_as(1, output.dtype), output.sizes);
  Val forward = b.mul(rolled(b, x, dim, -1), rolled(b, y, dim, 1));
  Val backward = b.mul(rolled(b, x, dim, 1), rolled(b, y, dim, -1));
  c.set(0, b.sub(forward, backward));
}

}  // namespace

void register_shape(LowerTable& table) {
  table.insert({
      {"aten::cat", {lower_cat}},
      {"aten::stack", {lower_stack}},
      {"aten::_stack", {lower_stack}},
      {"aten::repeat", {lower_repeat}},
      {"aten::flip", {lower_flip}},
      {"aten::roll", {lower_roll}},
      {"aten::tril", {lower_tril}},
      {"aten::triu", {lower_triu}},
      {"aten::trace", {lower_trace}},
      {"aten::linalg_cross", {lower_linalg_cross}},
  });
  register_pad(table);
  register_copies(table);
  register_strided(table);
  register_image(table);
}

}  // namespace torch_xla
