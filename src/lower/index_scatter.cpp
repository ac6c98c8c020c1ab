// Writing by index: scatter*, index_add, index_copy, index_fill, index_reduce, put.
#include "base/error.h"
#include "lower/index.h"

namespace torch_xla {
namespace {

DType sum_dtype(DType dtype, Combine combine) {
  bool sums = combine == Combine::Add || combine == Combine::Multiply;
  return sums ? compute_dtype(dtype) : dtype;
}

struct Reduction {
  Combine combine = Combine::Replace;
  bool mean = false;
};

Reduction reduction(const std::string& name) {
  if (name == "add" || name == "sum") return {Combine::Add, false};
  if (name == "multiply" || name == "prod") return {Combine::Multiply, false};
  if (name == "amax") return {Combine::Maximum, false};
  if (name == "amin") return {Combine::Minimum, false};
  if (name == "mean") return {Combine::Add, true};
  throw Error("reduce must be one of sum, prod, mean, amax, amin, add, multiply; got '" + name +
              "'");
}

// scatter_along or scatter_slices.
using ScatterInto = Val (*)(LowerContext&, Val x, int64_t dim, Val index, Val updates, Combine);

// x reduced with updates. Without include_self the touched elements of x do not take part.
Val scatter_reduced(LowerContext& c, ScatterInto scatter, Val x, int64_t dim, Val index,
                    Val updates, Reduction reduction, bool include_self) {
  Builder& b = c.b;
  if (!include_self) {
    Val identity = b.expand(identity_of(b, reduction.combine, x.dtype()), updates.dims());
    x = scatter(c, x, dim, index, identity, Combine::Replace);
  }
  Val result = scatter(c, x, dim, index, updates, reduction.combine);
  if (!reduction.mean) {
    return result;
  }
  Val count = b.full(include_self ? 1.0 : 0.0, x.type());
  count = scatter(c, count, dim, index, b.full(1.0, updates.type()), Combine::Add);
  count = b.maximum(count, b.scalar_like(count, 1));
  if (!c10::isIntegralType(x.dtype(), false)) {
    return b.div(result, count);
  }
  // Integers round down; the division truncates.
  Val quotient = b.div(result, count);
  Val remainder = b.sub(result, b.mul(quotient, count));
  Val negative = b.compare("LT", remainder, b.full(0.0, remainder.type()));
  return b.sub(quotient, b.convert(negative, x.dtype()));
}

// ---- scatter ------------------------------------------------------------------------------------

// Whether at most one element of each line along `dim` is written, and all of x has to be written
// anyway: a choice for each element, which fuses, instead of one write after another.
bool is_choice(Builder& b, Val x, int64_t dim, Val index) {
  Dims lines = x.dims();
  lines[dim] = 1;
  return b.is_constant(x) && index.dims() == lines;
}

Val chosen_along(Builder& b, Val x, int64_t dim, Val index, Val updates, Combine combine) {
  Val position = b.iota({index.dtype(), x.dims()}, dim);
  Val chosen = b.compare("EQ", position, b.expand(index, x.dims()));
  return b.select(chosen, combiner(combine)(b, {x, b.expand(updates, x.dims())})[0], x);
}

// The index of a line where argument 2, with the sizes `lines`, is the same along all other
// dimensions: index[:, None].expand_as(source).
std::optional<Val> index_of_slices(LowerContext& c, const Val& x, int64_t dim, const Val& index,
                                   const Dims& lines) {
  const auto* ref = std::get_if<OperandRef>(&c.signature().arguments[2]);
  Dims whole = x.dims();
  whole[dim] = index.dim(dim);
  if (ref == nullptr || ref->index < 0 || whole != index.dims() || lines != index.dims()) {
    return std::nullopt;
  }
  const Window& window = c.signature().operands[static_cast<size_t>(ref->index)];
  Dims first = index.dims();
  for (int64_t d = 0; d < index.rank(); ++d) {
    if (d != dim && (window.sizes.empty() || window.strides[d] != 0)) {
      return std::nullopt;
    }
    first[d] = d == dim ? first[d] : 1;
  }
  const Val line = c.b.slice(index, Dims(first.size(), 0), first, Dims(first.size(), 1));
  return c.b.reshape(line, {index.dim(dim)});
}

// `source` is argument 3, a tensor or a number.
void scatter_elements(LowerContext& c, bool source_is_number, Reduction reduction,
                      bool include_self) {
  Builder& b = c.b;
  DType dtype = sum_dtype(c.output(0).dtype, reduction.combine);
  Val x = at_least_1d(b, c.tensor_as(0, dtype));
  int64_t dim = c.dim(1, x.rank());
  Val index = at_least_1d(b, c.tensor(2));
  if (index.numel() > 0) {  // an empty one may have fewer dimensions than x
    Val updates;
    if (source_is_number) {
      updates = b.expand(c.number(3, dtype), index.dims());
    } else {
      updates = at_least_1d(b, c.tensor_as(3, dtype));
      // The source may be larger than the index.
      updates = b.slice(updates, Dims(index.rank(), 0), index.dims(), Dims(index.rank(), 1));
    }
    index = wrap_negative(b, index, x.dim(dim));
    if (include_self && !reduction.mean && is_choice(b, x, dim, index)) {
      x = chosen_along(b, x, dim, index, updates, reduction.combine);
    } else if (auto line = index_of_slices(c, x, dim, index, updates.dims())) {
      x = scatter_reduced(c, scatter_slices, x, dim, *line, updates, reduction, include_self);
    } else {
      x = scatter_reduced(c, scatter_along, x, dim, index, updates, reduction, include_self);
    }
  }
  c.set(0, b.convert(b.reshape(x, c.output(0).sizes), c.output(0).dtype));
}

void lower_scatter_src(LowerContext& c) { scatter_elements(c, false, {}, true); }
void lower_scatter_value(LowerContext& c) { scatter_elements(c, true, {}, true); }
void lower_scatter_add(LowerContext& c) { scatter_elements(c, false, {Combine::Add}, true); }
void lower_scatter_reduce(LowerContext& c) {
  scatter_elements(c, false, reduction(c.text(4)), true);
}
void lower_scatter_value_reduce(LowerContext& c) {
  scatter_elements(c, true, reduction(c.text(4)), true);
}
void lower_scatter_reduce_two(LowerContext& c) {
  scatter_elements(c, false, reduction(c.text(4)), c.flag(5));
}

// ---- index_* ------------------------------------------------------------------------------------

struct Slices {
  Val x;
  int64_t dim;
  Val index;
};

Slices slices(LowerContext& c, DType dtype) {
  Val x = at_least_1d(c.b, c.tensor_as(0, dtype));
  int64_t dim = c.dim(1, x.rank());
  Val index = at_least_1d(c.b, c.tensor(2));
  return {x, dim, wrap_negative(c.b, index, x.dim(dim))};
}

// The slices to write; a source of lower rank (0-d for one index) is reshaped.
Val slice_updates(LowerContext& c, const Slices& s) {
  Dims dims = s.x.dims();
  dims[s.dim] = s.index.numel();
  return c.b.reshape(c.tensor_as(3, s.x.dtype()), dims);
}

void set_reshaped(LowerContext& c, Val result) {
  c.set(0, c.b.convert(c.b.reshape(result, c.output(0).sizes), c.output(0).dtype));
}

void lower_index_add(LowerContext& c) {
  Slices s = slices(c, sum_dtype(c.output(0).dtype, Combine::Add));
  Val updates = slice_updates(c, s);
  std::optional<Number> alpha = c.literal(4);
  if (!alpha || alpha->to_complex() != 1.0) {
    bool boolean = updates.dtype() == DType::Bool;
    Val factor = c.number(4, updates.dtype());
    updates = boolean ? c.b.logical_and(updates, c.b.expand(factor, updates.dims()))
                      : c.b.mul(updates, factor);
  }
  set_reshaped(c, scatter_slices(c, s.x, s.dim, s.index, updates, Combine::Add));
}

void lower_index_copy(LowerContext& c) {
  Slices s = slices(c, c.output(0).dtype);
  set_reshaped(c, scatter_slices(c, s.x, s.dim, s.index, slice_updates(c, s), Combine::Replace));
}

void index_fill(LowerContext& c, bool value_is_number) {
  Slices s = slices(c, c.output(0).dtype);
  Val value = value_is_number ? c.number(3, s.x.dtype()) : c.tensor_as(3, s.x.dtype());
  Dims dims = s.x.dims();
  dims[s.dim] = s.index.numel();
  Val updates = c.b.expand(c.b.reshape(value, {}), dims);
  set_reshaped(c, scatter_slices(c, s.x, s.dim, s.index, updates, Combine::Replace));
}

void lower_index_fill_scalar(LowerContext& c) { index_fill(c, true); }
void lower_index_fill_tensor(LowerContext& c) { index_fill(c, false); }

void lower_index_reduce(LowerContext& c) {
  Reduction how = reduction(c.text(4));
  Slices s = slices(c, sum_dtype(c.output(0).dtype, how.combine));
  Val updates = slice_updates(c, s);
  if (updates.numel() == 0) {
    return set_reshaped(c, s.x);
  }
  set_reshaped(c, scatter_reduced(c, scatter_slices, s.x, s.dim, s.index, updates, how, c.flag(5)));
}

// put(self, index, source, accumulate): self as if it were 1-d.
void lower_put(LowerContext& c) {
  Builder& b = c.b;
  Combine combine = c.flag(3) ? Combine::Add : Combine::Replace;
  Val x = c.tensor_as(0, sum_dtype(c.output(0).dtype, combine));
  Val index = c.tensor(1);
  index = wrap_negative(b, b.reshape(index, {index.numel()}), x.numel());
  Val updates = b.reshape(c.tensor_as(2, x.dtype()), {index.numel()});
  set_reshaped(c, scatter_slices(c, b.reshape(x, {x.numel()}), 0, index, updates, combine));
}

}  // namespace

void register_scatter(LowerTable& table) {
  table.insert({
      {"aten::scatter.src", {lower_scatter_src}},
      {"aten::scatter.value", {lower_scatter_value}},
      {"aten::scatter.reduce", {lower_scatter_reduce}},
      {"aten::scatter.value_reduce", {lower_scatter_value_reduce}},
      {"aten::scatter_add", {lower_scatter_add}},
      {"aten::scatter_reduce.two", {lower_scatter_reduce_two}},
      {"aten::index_add", {lower_index_add}},
      {"aten::index_copy", {lower_index_copy}},
      {"aten::index_fill.int_Scalar", {lower_index_fill_scalar}},
      {"aten::index_fill.int_Tensor", {lower_index_fill_tensor}},
      {"aten::index_reduce", {lower_index_reduce}},
      {"aten::put", {lower_put}},
  });
}

}  // namespace torch_xla
