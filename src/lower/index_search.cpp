// Finding values: searchsorted, bucketize, isin.
#include "lower/index.h"

#include <bit>

namespace torch_xla {
namespace {

// A NaN is greater than every number, as in PyTorch: `not (x >= y)` rather than `x < y`.
Val precedes(Builder& b, Val x, Val y, bool or_equal) {
  return b.logical_not(b.compare(or_equal ? "GT" : "GE", x, y));
}

// Binary search: how many elements of each row of `sorted` precede each value. Rows are the last
// dimension of both; a 1-d `sorted` serves all values. Unrolled, one gather per halving.
Val search(Builder& b, Val sorted, Val values, bool or_equal) {
  int64_t length = sorted.dim(sorted.rank() - 1);
  TensorType index_type{DType::Long, values.dims()};
  auto number = [&](int64_t n) { return b.full(static_cast<double>(n), index_type); };
  if (values.numel() == 0 || length == 0) {
    return number(0);
  }
  Val row_start = number(0);
  if (sorted.rank() > 1) {
    int64_t rows = product(sorted.dims()) / length;
    Dims per_row = sorted.dims();
    per_row.back() = 1;
    Val starts = b.iota({DType::Long, {rows}}, 0);
    starts = b.mul(starts, b.scalar_like(starts, static_cast<double>(length)));
    row_start = b.expand(b.reshape(starts, per_row), values.dims());
  }
  Val flat = b.reshape(sorted, {sorted.numel()});
  Val found = number(0);
  for (uint64_t step = std::bit_floor(static_cast<uint64_t>(length)); step > 0; step /= 2) {
    Val next = b.add(found, number(static_cast<int64_t>(step)));
    Val last = b.add(row_start, b.minimum(next, number(length)));
    Val element = take_slices(b, flat, 0, b.sub(last, number(1)));
    Val fits = b.compare("LE", next, number(length));
    Val further = b.logical_and(fits, precedes(b, element, values, or_equal));
    found = b.select(further, next, found);
  }
  return found;
}

// Numbers compare with integer sequences as doubles, so that 2.5 falls between 2 and 3.
DType number_dtype(DType sequence) {
  return c10::isFloatingType(sequence) ? sequence : DType::Double;
}

Val value_argument(LowerContext& c, size_t i, DType sequence, bool is_number) {
  if (is_number) {
    return c.number(i, number_dtype(sequence));
  }
  Val value = c.tensor(i);
  return value.rank() == 0 ? c.tensor_as(i, number_dtype(sequence)) : value;
}

void finish_search(LowerContext& c, Val sorted, Val values, bool right) {
  Builder& b = c.b;
  DType dtype = c10::promoteTypes(sorted.dtype(), values.dtype());
  Val found = search(b, b.convert(sorted, dtype), b.convert(values, dtype), right);
  c.set(0, b.convert(found, c.output(0).dtype));
}

// searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter)
void searchsorted(LowerContext& c, bool is_number) {
  Val sorted = c.tensor(0);
  if (std::optional<Val> sorter = c.maybe_tensor(5)) {
    sorted = gather_along(c.b, sorted, sorted.rank() - 1, *sorter);
  }
  bool right = c.flag(3) || c.text_or(4, "left") == "right";
  finish_search(c, sorted, value_argument(c, 1, sorted.dtype(), is_number), right);
}

// bucketize(self, boundaries, *, out_int32, right)
void bucketize(LowerContext& c, bool is_number) {
  Val sorted = c.tensor(1);
  finish_search(c, sorted, value_argument(c, 0, sorted.dtype(), is_number), c.flag(3));
}

void lower_searchsorted(LowerContext& c) { searchsorted(c, false); }
void lower_searchsorted_scalar(LowerContext& c) { searchsorted(c, true); }
void lower_bucketize(LowerContext& c) { bucketize(c, false); }
void lower_bucketize_scalar(LowerContext& c) { bucketize(c, true); }

// ---- isin -------------------------------------------------------------------------------------

// Compares every element with every test element; above this many pairs sorting wins.
constexpr int64_t kMaxPairs = int64_t{1} << 24;

void lower_isin(LowerContext& c) {
  Builder& b = c.b;
  Val elements = c.tensor(0), tests = c.tensor(1);
  if (c.prefers_host() && elements.numel() * tests.numel() > kMaxPairs) {
    return c.call_host();
  }
  DType dtype = c10::promoteTypes(elements.dtype(), tests.dtype());
  Dims pairs = elements.dims();
  Dims map;
  for (int64_t d = 0; d < elements.rank(); ++d) {
    map.push_back(d);
  }
  pairs.push_back(tests.numel());
  Val left = b.broadcast_in_dim(b.convert(elements, dtype), pairs, map);
  Val right = b.expand(b.reshape(b.convert(tests, dtype), {tests.numel()}), pairs);
  Val found =
      b.reduce(b.compare("EQ", left, right), b.constant(0.0, DType::Bool), {elements.rank()}, "or");
  c.set(0, c.flag(3) ? b.logical_not(found) : found);
}

void lower_isin_scalar(LowerContext& c) {
  Builder& b = c.b;
  Val elements = c.tensor(0);
  DType dtype = number_dtype(elements.dtype());
  Val x = b.convert(elements, dtype);
  Val found = b.compare("EQ", x, b.expand(c.number(1, dtype), x.dims()));
  c.set(0, c.flag(3) ? b.logical_not(found) : found);
}

}  // namespace

void register_search(LowerTable& table) {
  table.insert({
      {"aten::searchsorted.Tensor", {lower_searchsorted}},
      {"aten::searchsorted.Scalar", {lower_searchsorted_scalar}},
      {"aten::bucketize.Tensor", {lower_bucketize}},
      {"aten::bucketize.Scalar", {lower_bucketize_scalar}},
      {"aten::isin.Tensor_Tensor", {lower_isin}},
      {"aten::isin.Tensor_Scalar", {lower_isin_scalar}},
  });
}

}  // namespace torch_xla
