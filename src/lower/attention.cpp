// PyTorch's flash attention for the CPU, whose kernel is called where it can be. Elsewhere the same
// by matrix products. Queries [batch, heads, length, size]; keys and values may have fewer heads,
// each for a group of consecutive queries: these are [batch, heads, group, length, size] here.
#include "lower/expr.h"
#include "lower/table.h"

#include <cmath>
#include <limits>

namespace torch_xla {

namespace {

constexpr size_t kQuery = 0, kKey = 1, kValue = 2;

struct Attention {
  Expr query, key, value;
  Dims sizes;  // of the scores
  Expr scale, scores;
};

Val by_group(Builder& b, Val x, int64_t heads) {
  Dims dims{x.dim(0), heads, x.dim(1) / heads};
  dims.insert(dims.end(), x.dims().begin() + 2, x.dims().end());
  return b.reshape(x, dims);
}

Val without_groups(Builder& b, Val x) {
  Dims dims{x.dim(0), x.dim(1) * x.dim(2)};
  dims.insert(dims.end(), x.dims().begin() + 3, x.dims().end());
  return b.reshape(x, dims);
}

Expr contracted(Expr x, Expr y, Dims x_contract, Dims y_contract) {
  return {x.b(), x.b().dot_general(x.value(), y.value(),
                                   {{0, 1}, {0, 1}, std::move(x_contract), std::move(y_contract)},
                                   x.value().dtype())};
}

Expr sum_of_rows(Expr x) {
  Builder& b = x.b();
  const DType dtype = x.value().dtype();
  return {b, b.reduce(x.value(), b.constant(0.0, dtype), {x.value().rank() - 1}, "add")};
}

Expr per_row(Expr x, const Dims& dims) {
  return {x.b(), x.b().broadcast_in_dim(x.value(), dims, {0, 1, 2, 3})};
}

// Positions behind the query's are not seen.
Expr hide_later(Expr scores) {
  Builder& b = scores.b();
  const TensorType positions{DType::Long, scores.value().dims()};
  const Expr row{b, b.iota(positions, 3)}, column{b, b.iota(positions, 4)};
  return where(column <= row, scores, -std::numeric_limits<double>::infinity());
}

// Computed in 32 bits at least, as the kernel does.
Attention attention(LowerContext& c, size_t first, size_t causal) {
  Builder& b = c.b;
  const DType dtype = c.window(first)->dtype == DType::Double ? DType::Double : DType::Float;
  const Val keys = c.tensor_as(first + kKey, dtype), queries = c.tensor_as(first + kQuery, dtype);
  const int64_t heads = keys.dim(1);
  const Expr query{b, by_group(b, queries, heads)}, key{b, keys};
  const Expr value{b, c.tensor_as(first + kValue, dtype)};
  const Dims sizes{queries.dim(0), heads, queries.dim(1) / heads, queries.dim(2), keys.dim(2)};
  const size_t mask = causal + 1, factor = causal + 2;
  const Expr scale{b, c.is_none(factor)
                          ? b.constant(1.0 / std::sqrt(static_cast<double>(keys.dim(3))), dtype)
                          : c.number(factor, dtype)};
  Expr scores = contracted(query, key, {4}, {3}) * scale;
  if (!c.is_none(mask)) {
    const Val added = b.expand(c.tensor_as(mask, dtype),
                               {queries.dim(0), queries.dim(1), queries.dim(2), keys.dim(2)});
    scores = scores + Expr{b, by_group(b, added, heads)};
  }
  return {query, key, value, sizes, scale, c.flag(causal) ? hide_later(scores) : scores};
}

// Queries that see nothing give zeros.
void lower_forward(LowerContext& c) {
  constexpr size_t kCausal = 4;
  const Attention a = attention(c, kQuery, kCausal);
  Builder& b = c.b;
  const Val lowest = b.lowest(a.scores.value().dtype());
  const Expr highest{b, b.reduce(a.scores.value(), lowest, {4}, "maximum")};
  const Expr none = highest == -std::numeric_limits<double>::infinity();
  const Expr shift = where(none, 0.0, highest);
  const Expr weights = exp(a.scores - per_row(shift, a.sizes));
  const Expr sum = where(none, 1.0, sum_of_rows(weights));
  const Expr result = contracted(weights / per_row(sum, a.sizes), a.value, {4}, {2});
  c.set(0, b.convert(without_groups(b, result.value()), c.output(0).dtype));
  c.set(1, without_groups(b, (shift + log(sum)).value()));
}

void lower_backward(LowerContext& c) {
  constexpr size_t kResult = 4, kLogSumExp = 5, kCausal = 7;
  const Attention a = attention(c, 1 + kQuery, kCausal);
  Builder& b = c.b;
  const DType dtype = a.scores.value().dtype();
  auto grouped = [&](size_t i) { return Expr{b, by_group(b, c.tensor_as(i, dtype), a.sizes[1])}; };
  const Expr grad = grouped(0);
  const Expr weights = exp(a.scores - per_row(grouped(kLogSumExp), a.sizes));
  const Expr shared = sum_of_rows(grad * grouped(kResult));
  const Expr of_scores =
      weights * (contracted(grad, a.value, {4}, {3}) - per_row(shared, a.sizes)) * a.scale;
  const Val of_query = contracted(of_scores, a.key, {4}, {2}).value();
  const Val results[] = {without_groups(b, of_query),
                         contracted(of_scores, a.query, {2, 3}, {2, 3}).value(),
                         contracted(weights, grad, {2, 3}, {2, 3}).value()};
  for (size_t i = 0; i < std::size(results); ++i) {
    c.set(i, b.convert(results[i], c.output(i).dtype));
  }
}

}  // namespace

void register_attention(LowerTable& table) {
  table["aten::_scaled_dot_product_flash_attention_for_cpu"] = {host_or<lower_forward>};
  table["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] = {host_or<lower_backward>};
}

}  // namespace torch_xla
