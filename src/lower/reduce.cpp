// Reductions, cumulative operators.
#include "lower/activation.h"
#include "lower/graph_lowering.h"
#include "lower/pixel_rows.h"
#include "lower/reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace torch_xla {

namespace {

// keepdim only changes the sizes: the output's are authoritative.
void set_reduced(LowerContext& c, size_t i, Val value) {
  c.set(i, c.b.reshape(value, c.output(i).sizes));
}

// dim argument at `i`, or every dimension where the overload has none. An empty list means every
// dimension to some operators and none to others: the output's sizes tell.
Dims dims_argument(LowerContext& c, const Val& x, int argument) {
  if (argument < 0) {
    return all_dims(x);
  }
  size_t i = static_cast<size_t>(argument);
  bool none = !c.is_none(i) && c.integers(i).empty() && c.output(0).sizes == x.dims();
  return none ? Dims{} : c.dims(i, x.rank());
}

// ---- sums ---------------------------------------------------------------------------------------

void reduce_sum(LowerContext& c, int dim_argument, bool mean) {
  const DType dtype = c.output(0).dtype;
  Val given = c.tensor(0);
  if (c10::isReducedFloatingType(dtype) && given.dtype() != dtype) {
    given = c.b.rounded(given, dtype);  // `dtype` is the summands'
  }
  const Dims dims = turn_to_memory(c, 0, given, dims_argument(c, given, dim_argument));
  const Reduction r(c.b.convert(given, compute_dtype(dtype)), dims);
  Val total = sum_of_narrow(c, given, r);
  if (mean) {
    total = c.b.div(total, c.b.scalar_like(total, static_cast<double>(r.count)));
  }
  set_reduced(c, 0, total);
}

void lower_sum(LowerContext& c) { reduce_sum(c, -1, false); }
void lower_sum_dim(LowerContext& c) { reduce_sum(c, 1, false); }
void lower_mean(LowerContext& c) { reduce_sum(c, -1, true); }
void lower_mean_dim(LowerContext& c) { reduce_sum(c, 1, true); }

void lower_nansum(LowerContext& c) {
  Val x = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  x = c.b.select(c.b.compare("NE", x, x), c.b.full(0.0, x.type()), x);
  set_reduced(c, 0, sum_of(c, Reduction(x, dims_argument(c, x, 1))));
}

void reduce_product(LowerContext& c, int dim_argument) {
  Val x = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  Reduction r(x, dims_argument(c, x, dim_argument));
  set_reduced(
      c, 0,
      reduce_to(c.b, r, x.dtype() == DType::Bool ? "and" : "multiply", c.b.scalar_like(x, 1)));
}
void lower_prod(LowerContext& c) { reduce_product(c, -1); }
void lower_prod_dim(LowerContext& c) { reduce_product(c, 1); }

void lower_count_nonzero(LowerContext& c) {
  Val x = c.b.convert(c.tensor_as(0, DType::Bool), DType::Long);
  set_reduced(c, 0, sum_of(c, Reduction(x, dims_argument(c, x, 1))));
}

// ---- extremes -----------------------------------------------------------------------------------

// As `extreme`, but NaN wins over every number: the plugin's own maximum loses it when vectorised.
// A partitioned reduction ends with one between devices, which knows no other function than that.
Val extreme_or_nan(LowerContext& c, Val x, Dims dims, bool largest) {
  if (!c10::isFloatingType(x.dtype()) || dims.empty()) {
    return extreme(c, x, std::move(dims), largest);
  }
  if (c.b.is_partitioned()) {
    Val is_nan = c.b.compare("NE", x, x);
    Val result = extreme(c, c.b.select(is_nan, c.b.full(0.0, x.type()), x), dims, largest);
    Val any_nan = extreme(c, is_nan, std::move(dims), true);
    double nan = std::numeric_limits<double>::quiet_NaN();
    return c.b.select(any_nan, c.b.full(nan, result.type()), result);
  }
  Reduction r(x, std::move(dims));
  if (const std::optional<Val> found = extreme_on_host(c, r, largest)) {
    return *found;
  }
  const DType wide = compute_dtype(x.dtype());  // XLA would widen and round at each step
  Val init = largest ? c.b.lowest(wide) : c.b.highest(wide);
  Val found = c.b.reduce({c.b.convert(x, wide)}, {init}, r.dims, [&](Builder& b, const Vals& a) {
    Val better = b.compare(largest ? "GT" : "LT", a[0], a[1]);
    Val take_left = b.logical_or(better, b.compare("NE", a[0], a[0]));
    return Vals{b.select(take_left, a[0], a[1])};
  })[0];
  return c.b.convert(found, x.dtype());
}

template <bool kLargest>
void lower_amax(LowerContext& c) {
  Val x = c.tensor(0);
  set_reduced(c, 0, extreme_or_nan(c, x, dims_argument(c, x, 1), kLargest));
}

template <bool kLargest>
void lower_max_all(LowerContext& c) {
  Val x = c.tensor(0);
  set_reduced(c, 0, extreme_or_nan(c, x, all_dims(x), kLargest));
}

void lower_aminmax(LowerContext& c) {
  Val x = c.tensor(0);
  Dims dims = c.is_none(1) ? all_dims(x) : Dims{c.dim(1, x.rank())};
  if (x.rank() == 0) {
    dims.clear();
  }
  set_reduced(c, 0, extreme_or_nan(c, x, dims, false));
  set_reduced(c, 1, extreme_or_nan(c, x, dims, true));
}

struct Extreme {
  Val value, index;  // the first index of the value; NaN is the extreme of all
};

std::optional<Extreme> extreme_of_rows_with_index(LowerContext& c, Val x, bool largest) {
  const std::optional<Val> rows = matrix_for_host(c, x, x.dim(x.rank() - 1));
  if (!rows || rows->dim(1) > std::numeric_limits<int32_t>::max()) {
    return std::nullopt;
  }
  const Vals found = c.b.custom_call(largest ? kRowLargestTarget : kRowSmallestTarget, {*rows},
                                     {{DType::Float, {rows->dim(0)}}, {DType::Int, {rows->dim(0)}}},
                                     "", /*may_fail=*/false);
  const Ints outside = Ints(x.dims()).slice(0, x.dims().size() - 1);
  return Extreme{c.b.reshape(found[0], outside),
                 c.b.convert(c.b.reshape(found[1], outside), DType::Long)};
}

// Two passes, one for the value and one for its place: XLA vectorises both, but not a reduction of
// pairs.
Extreme extreme_with_index(LowerContext& c, Val x, int64_t dim, bool largest) {
  Builder& b = c.b;
  if (dim == x.rank() - 1) {
    if (const std::optional<Extreme> found = extreme_of_rows_with_index(c, x, largest)) {
      return *found;
    }
  }
  x = b.convert(x, x.dtype() == DType::Bool ? DType::Byte : compute_dtype(x.dtype()));
  Val value = extreme_or_nan(c, x, {dim}, largest);
  Reduction r(x, {dim});
  Val here = b.compare("EQ", x, r.spread_back(b, value));
  if (c10::isFloatingType(x.dtype())) {
    here = b.logical_or(here, b.compare("NE", x, x));  // only present where the extreme is NaN
  }
  DType dtype = r.count > std::numeric_limits<int32_t>::max() ? DType::Long : DType::Int;
  Val index = b.iota({dtype, x.dims()}, dim);
  Val none = b.highest(dtype);
  Val first = b.reduce(b.select(here, index, b.expand(none, x.dims())), none, {dim}, "minimum");
  return {value, b.convert(first, DType::Long)};
}

template <bool kLargest>
void lower_max_dim(LowerContext& c) {
  Val x = c.tensor(0);
  if (x.rank() == 0) {
    c.set(0, x);
    c.set(1, c.b.constant(0.0, DType::Long));
    return;
  }
  Extreme extreme = extreme_with_index(c, x, c.dim(1, x.rank()), kLargest);
  set_reduced(c, 0, extreme.value);
  set_reduced(c, 1, extreme.index);
}

template <bool kLargest>
void lower_argmax(LowerContext& c) {
  Val x = c.tensor(0);
  if (x.rank() == 0) {
    set_reduced(c, 0, c.b.constant(0.0, DType::Long));
    return;
  }
  int64_t dim = 0;
  if (c.is_none(1)) {
    x = c.b.reshape(x, {x.numel()});
  } else {
    dim = c.dim(1, x.rank());
  }
  set_reduced(c, 0, extreme_with_index(c, x, dim, kLargest).index);
}

template <bool kAny>
void reduce_truth(LowerContext& c, int dim_argument) {
  Val x = c.tensor_as(0, DType::Bool);
  Reduction r(x, dims_argument(c, x, dim_argument));
  set_reduced(c, 0, reduce_to(c.b, r, kAny ? "or" : "and", c.b.scalar_like(x, kAny ? 0 : 1)));
}
template <bool kAny>
void lower_truth_all(LowerContext& c) {
  reduce_truth<kAny>(c, -1);
}
template <bool kAny>
void lower_truth_dim(LowerContext& c) {
  reduce_truth<kAny>(c, 1);
}

// ---- moments and norms --------------------------------------------------------------------------

// var.correction(self, dim?, *, correction, keepdim)
template <bool kRoot, bool kMean>
void lower_variance(LowerContext& c) {
  DType dtype = compute_dtype(c.tensor(0).dtype());
  Val x = c.tensor_as(0, dtype);
  double correction = c.is_none(2) ? 1.0 : c.static_number(2).to_double();
  const Reduction r(x, dims_argument(c, x, 1));
  const Moments m = moments_of(c, c.tensor(0), r);
  const double degrees = std::max(0.0, static_cast<double>(r.count) - correction);
  Val variance = c.b.div(m.squares, c.b.scalar_like(m.squares, degrees));
  set_reduced(c, 0, kRoot ? c.b.unary("sqrt", variance) : variance);
  if (kMean) {
    set_reduced(c, 1, m.mean);
  }
}

void lower_logsumexp(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  Dims dims = dims_argument(c, x, 1);
  if (x.numel() == 0 || c10::isComplexType(x.dtype())) {
    set_reduced(c, 0, b.unary("log", sum_of(c, Reduction(b.unary("exponential", x), dims))));
    return;
  }
  Reduction r(x, dims);
  Val high = extreme(c, x, dims, true);
  Val finite = b.is_finite(high);
  Val shift = b.select(finite, high, b.full(0.0, high.type()));
  Val powers = b.unary("exponential", b.sub(x, r.spread_back(b, shift)));
  set_reduced(c, 0, b.add(b.unary("log", sum_of(c, Reduction(powers, dims))), shift));
}

// The order is argument 1, and where it is an input of the program none that has a case of its own
// (record/moving.h).
void reduce_norm(LowerContext& c, int dim_argument) {
  constexpr double kAnother = 3;
  const std::optional<Number> literal = c.literal(1);
  const double order = c.is_none(1) ? 2 : literal ? literal->to_double() : kAnother;
  Builder& b = c.b;
  DType dtype = compute_dtype(c.output(0).dtype);
  Val x = c.tensor(0);
  Val size = c10::isComplexType(x.dtype()) ? x : b.convert(x, dtype);
  size = b.convert(b.unary("abs", size), dtype);
  Dims dims = dims_argument(c, x, dim_argument);
  auto sum = [&](Val terms) { return sum_of(c, Reduction(terms, dims)); };
  if (std::isinf(order)) {
    set_reduced(c, 0, extreme_or_nan(c, size, dims, order > 0));
  } else if (order == 0) {
    set_reduced(c, 0, sum(b.convert(b.compare("NE", size, b.scalar_like(size, 0)), dtype)));
  } else if (order == 1) {
    set_reduced(c, 0, sum(size));
  } else if (order == 2) {
    const Val given = c10::isComplexType(x.dtype()) ? size : x;
    set_reduced(c, 0, b.unary("sqrt", sum_of_squares(c, given, Reduction(size, dims))));
  } else {
    const auto power = [&](Val x, Val exponent) {
      return b.binary("power", x, b.expand(b.convert(exponent, dtype), x.dims()));
    };
    const Expr exponent = number(c, 1, DType::Double);
    const Val total = sum(power(size, exponent.value()));
    set_reduced(c, 0, power(total, (1.0 / exponent).value()));
  }
}

// linalg_vector_norm(self, ord, dim?, keepdim, *, dtype?)
void lower_vector_norm(LowerContext& c) { reduce_norm(c, 2); }
// norm(self, p?), with or without (dim, keepdim)
void lower_norm(LowerContext& c) { reduce_norm(c, -1); }
void lower_norm_dim(LowerContext& c) { reduce_norm(c, 2); }

// ---- cumulative ---------------------------------------------------------------------------------

// A window over all former elements, which XLA computes in blocks.
template <bool kProduct>
void lower_cumulative(LowerContext& c) {
  Val x = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  if (x.rank() == 0 || x.numel() == 0) {
    c.set(0, x);
    return;
  }
  int64_t dim = c.dim(1, x.rank());
  stablehlo::WindowDims window;
  window.size = Dims(x.rank(), 1);
  window.padding_low = Dims(x.rank(), 0);
  window.size[dim] = x.dim(dim);
  window.padding_low[dim] = x.dim(dim) - 1;
  c.set(0, c.b.reduce_window(x, c.b.scalar_like(x, kProduct ? 1 : 0), window,
                             kProduct ? "multiply" : "add"));
}

}  // namespace

void register_reduce(LowerTable& table) {
  auto set = [&](const char* name, LowerFunction function, uint32_t flags = kNone) {
    table[std::string("aten::") + name] = {function, flags};
  };
  set("sum", lower_sum);
  set("sum.dim_IntList", lower_sum_dim);
  set("mean", lower_mean);
  set("mean.dim", lower_mean_dim);
  set("nansum", lower_nansum);
  set("prod", large_on_host<lower_prod>);
  set("prod.dim_int", large_on_host<lower_prod_dim>);
  set("count_nonzero.dim_IntList", lower_count_nonzero);
  set("amax", lower_amax<true>);
  set("amin", lower_amax<false>);
  set("max", lower_max_all<true>);
  set("min", lower_max_all<false>);
  set("aminmax", lower_aminmax);
  set("max.dim", lower_max_dim<true>);
  set("min.dim", lower_max_dim<false>);
  set("argmax", lower_argmax<true>);
  set("argmin", lower_argmax<false>);
  set("any", lower_truth_all<true>);
  set("any.dim", lower_truth_dim<true>);
  set("any.dims", lower_truth_dim<true>);
  set("all", lower_truth_all<false>);
  set("all.dim", lower_truth_dim<false>);
  set("all.dims", lower_truth_dim<false>);
  set("var.correction", lower_variance<false, false>);
  set("std.correction", lower_variance<true, false>);
  set("var_mean.correction", lower_variance<false, true>);
  set("std_mean.correction", lower_variance<true, true>);
  set("logsumexp", lower_logsumexp);
  set("linalg_vector_norm", lower_vector_norm, kStaticNumbers);
  set("norm.Scalar", lower_norm, kStaticNumbers);
  set("norm.ScalarOpt_dtype", lower_norm, kStaticNumbers);
  set("norm.ScalarOpt_dim", lower_norm_dim, kStaticNumbers);
  set("norm.ScalarOpt_dim_dtype", lower_norm_dim, kStaticNumbers);
  set("cumsum", large_on_host<lower_cumulative<false>>);
  set("cumprod", large_on_host<lower_cumulative<true>>);
}

}  // namespace torch_xla
