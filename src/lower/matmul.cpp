// Matrix products. Operands are 2-D, or 3-D with one batch dimension: PyTorch has folded the rest.
#include "base/processor.h"
#include "ir/few_rows.h"
#include "lower/activation.h"
#include "lower/reduction.h"

namespace torch_xla {

namespace {

// Integer products accumulate in the dtype itself; 16-bit floats give 16-bit results.
Val dot(LowerContext& c, Val x, Val y, stablehlo::DotDims dims) {
  DType dtype = c.output(0).dtype;
  if (dtype == DType::Bool) {
    Val sum =
        c.b.dot_general(c.b.convert(x, DType::Int), c.b.convert(y, DType::Int), dims, DType::Int);
    return c.b.convert(sum, DType::Bool);
  }
  DType result = c10::isReducedFloatingType(dtype) ? DType::Float : dtype;
  return c.b.dot_general(x, y, dims, result);
}

bool is_large(const Window& matrix) {
  constexpr int64_t kLarge = 1 << 20;
  const size_t rank = matrix.sizes.size();
  return matrix.sizes[rank - 2] * matrix.sizes[rank - 1] >= kLarge;
}

bool lies_transposed(const Window& matrix) {
  const size_t rank = matrix.sizes.size();
  return matrix.strides[rank - 2] == 1 && matrix.strides[rank - 1] > 1;
}

int64_t rows(const Window& matrix) { return matrix.sizes[matrix.sizes.size() - 2]; }

// A few rows times a large matrix that lies transposed (a layer's weights): XLA-CPU would copy the
// matrix at each run, which takes up to ten times as long as the product.
bool copies_the_matrix(LowerContext& c, size_t first, size_t second, int64_t few) {
  const Window *x = c.window(first), *y = c.window(second);
  return x != nullptr && y != nullptr && rows(*x) <= few && is_large(*y) && lies_transposed(*y);
}

int64_t multiplications(LowerContext& c, size_t first, size_t second) {
  const Window *x = c.window(first), *y = c.window(second);
  return x != nullptr && y != nullptr ? x->numel() * y->sizes.back() : 0;
}

// A kernel of ours reads the matrix as fast as memory gives it.
bool is_of_few_on_host(LowerContext& c, size_t first, size_t second) {
  const Window *x = c.window(first), *y = c.window(second);
  return c.prefers_host() && x != nullptr && y != nullptr && x->dtype == y->dtype &&
         is_of_few(x->dtype, Factor::of(x->sizes, x->strides), Factor::of(y->sizes, y->strides));
}

// MKL's and oneDNN's kernels, divided among XLA's threads, are the faster ones but for what is
// small ("Products" in docs/performance.md).
bool better_on_host(LowerContext& c, size_t first, size_t second) {
  constexpr int64_t kWorthwhile = 1 << 18, kWorthwhileBFloat16 = 1 << 22;
  constexpr int64_t kFewOfBFloat16 = 256, kFewOfHalf = 16;  // PyTorch's kernel takes its time a row
  const Window* x = c.window(first);
  if (!c.prefers_host() || x == nullptr || x->dtype != c.output(0).dtype) {
    return false;
  }
  if (is_of_few_on_host(c, first, second)) {
    return true;
  }
  switch (x->dtype) {
    case DType::BFloat16:
      return copies_the_matrix(c, first, second, kFewOfBFloat16) ||
             (processor::multiplies_bfloat16() &&
              multiplications(c, first, second) >= kWorthwhileBFloat16);
    case DType::Half:
      return copies_the_matrix(c, first, second, kFewOfHalf);
    case DType::Float:
    case DType::Double:
    case DType::ComplexFloat:
    case DType::ComplexDouble:
      return multiplications(c, first, second) >= kWorthwhile;
    default:
      return false;
  }
}

// Weights that PyTorch expanded to the batch of their input.
bool is_same_in_each_batch(LowerContext& c, size_t i) {
  const Window* matrices = c.window(i);
  return matrices != nullptr && matrices->sizes.size() == 3 && matrices->sizes[0] > 1 &&
         matrices->strides[0] == 0;
}

// The product of two arguments: of matrices, or of as many in each batch.
Val matrix_product(LowerContext& c, size_t first, size_t second) {
  Val x = c.tensor(first), y = c.tensor(second);
  const bool batched = x.rank() == 3;
  if (batched && is_same_in_each_batch(c, second)) {  // XLA would multiply each batch on its own
    const Dims matrix = {1, y.dim(1), y.dim(2)};
    Val once = c.b.reshape(c.b.slice(y, {0, 0, 0}, matrix, {1, 1, 1}), {y.dim(1), y.dim(2)});
    return dot(c, x, once, {{}, {}, {2}, {0}});
  }
  const Dims batch = batched ? Dims{0} : Dims{};
  const int64_t row = batched ? 1 : 0, column = row + 1;
  return dot(c, x, y, {batch, batch, {column}, {row}});
}

Val inner_product(LowerContext& c, Val x, Val y) { return dot(c, x, y, {{}, {}, {0}, {0}}); }
Val matrix_vector(LowerContext& c, Val x, Val y) { return dot(c, x, y, {{}, {}, {1}, {0}}); }

bool is_literal(LowerContext& c, size_t i, double value) {
  std::optional<Number> literal = c.literal(i);
  return literal && literal->to_complex() == value;
}

// beta * self, which is 0 for a beta of 0 whatever self holds.
Expr scaled(LowerContext& c, Expr self, size_t beta) {
  if (is_literal(c, beta, 1)) {
    return self;
  }
  Expr factor{c.b, c.number(beta, self.value().dtype())};
  return c.literal(beta) ? self * factor : where(factor == 0.0, self.constant(0), self * factor);
}

// beta * self + alpha * product; self is ignored, NaN included, when beta is 0.
void add_product(LowerContext& c, Val product, size_t beta, size_t alpha) {
  Expr result{c.b, product};
  DType dtype = product.dtype();
  if (!is_literal(c, alpha, 1)) {
    result = result * Expr{c.b, c.number(alpha, dtype)};
  }
  if (!is_literal(c, beta, 0)) {
    result = scaled(c, {c.b, c.tensor_as(0, dtype)}, beta) + result;
  }
  finish(c, result);
}

void lower_product(LowerContext& c) {
  if (better_on_host(c, 0, 1)) {
    c.call_host();
  } else {
    c.set(0, matrix_product(c, 0, 1));
  }
}

void lower_added_product(LowerContext& c) {
  if (better_on_host(c, 1, 2)) {
    c.call_host();
  } else {
    add_product(c, matrix_product(c, 1, 2), 3, 4);
  }
}

void lower_mv(LowerContext& c) {
  if (is_of_few_on_host(c, 0, 1)) {
    c.call_host();
  } else {
    c.set(0, matrix_vector(c, c.tensor(0), c.tensor(1)));
  }
}

void lower_dot(LowerContext& c) { c.set(0, inner_product(c, c.tensor(0), c.tensor(1))); }

void lower_vdot(LowerContext& c) {
  c.set(0, inner_product(c, conj({c.b, c.tensor(0)}).value(), c.tensor(1)));
}

void lower_addmv(LowerContext& c) {
  if (is_of_few_on_host(c, 1, 2)) {
    c.call_host();
    return;
  }
  add_product(c, matrix_vector(c, c.tensor(1), c.tensor(2)), 3, 4);
}

void lower_addbmm(LowerContext& c) {
  Val x = c.tensor(1);
  Val y = c.tensor(2);
  add_product(c, dot(c, x, y, {{}, {}, {0, 2}, {0, 1}}), 3, 4);
}

void lower_addr(LowerContext& c) {
  DType dtype = compute_dtype(c.output(0).dtype);
  const Dims& sizes = c.output(0).sizes;
  Val column = c.b.broadcast_in_dim(c.tensor_as(1, dtype), sizes, {0});
  Val row = c.b.broadcast_in_dim(c.tensor_as(2, dtype), sizes, {1});
  add_product(c, c.b.mul(column, row), 3, 4);
}

// [groups, length]: which positions belong to which group, by where the groups end.
Val members(LowerContext& c, Val ends, int64_t length) {
  const int64_t groups = ends.dim(0);
  const TensorType type{DType::Long, {groups, length}};
  ends = c.b.convert(ends, DType::Long);
  Val starts =
      c.b.slice_dim(c.b.pad(ends, c.b.constant(0.0, DType::Long), {1}, {0}, {0}), 0, 0, groups);
  Val position = c.b.iota(type, 1);
  return c.b.logical_and(c.b.compare("GE", position, c.b.broadcast_in_dim(starts, type.dims, {0})),
                         c.b.compare("LT", position, c.b.broadcast_in_dim(ends, type.dims, {0})));
}

// `x` with a dimension of groups in front, and zeros where a position along `dim` is of another.
Val in_groups(LowerContext& c, Val x, Val members, int64_t dim) {
  const int64_t groups = members.dim(0);
  const bool has_groups = x.rank() == 3;
  const Dims dims = has_groups ? x.dims() : Dims{groups, x.dim(0), x.dim(1)};
  Val spread = has_groups ? x : c.b.broadcast_in_dim(x, dims, {1, 2});
  return c.b.select(c.b.broadcast_in_dim(members, dims, {0, dim}), spread,
                    c.b.full(0.0, {x.dtype(), dims}));
}

// grouped_mm(Tensor x, Tensor y, Tensor? ends, Tensor? bias, ScalarType? dtype). Without the host's
// kernel each group is a product of all rows: no size may depend on where the groups end.
void lower_grouped_mm(LowerContext& c) {
  if (c.prefers_host() || !c.is_none(3)) {
    c.call_host();
    return;
  }
  const stablehlo::DotDims batched{{0}, {0}, {2}, {1}};
  const bool rows = c.window(0)->sizes.size() == 2, columns = c.window(1)->sizes.size() == 2;
  Val x = c.tensor(0), y = c.tensor(1);
  if (rows && columns) {  // the groups divide what is summed over
    Val group = members(c, c.tensor(2), x.dim(1));
    x = in_groups(c, x, group, 2);
    y = c.b.broadcast_in_dim(y, {group.dim(0), y.dim(0), y.dim(1)}, {1, 2});
  } else if (rows) {
    x = in_groups(c, x, members(c, c.tensor(2), x.dim(0)), 1);
  } else if (columns) {
    y = in_groups(c, y, members(c, c.tensor(2), y.dim(1)), 2);
  }
  Expr product{c.b, dot(c, x, y, batched)};
  finish(c, rows != columns ? sum(product, {0}) : product);
}

}  // namespace

void register_matmul(LowerTable& table) {
  table["aten::mm"] = {lower_product};
  table["aten::bmm"] = {lower_product};
  table["aten::mv"] = {lower_mv};
  table["aten::dot"] = {lower_dot};
  table["aten::vdot"] = {lower_vdot};
  table["aten::addmm"] = {lower_added_product};
  table["aten::baddbmm"] = {lower_added_product};
  table["aten::addbmm"] = {lower_addbmm};
  table["aten::addmv"] = {lower_addmv};
  table["aten::addr"] = {lower_addr};
  table["torch_xla::grouped_mm"] = {lower_grouped_mm};
}

}  // namespace torch_xla
