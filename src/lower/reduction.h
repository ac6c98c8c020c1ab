// Reductions shared by the files whose operators reduce: norms, losses, softmax, gradients.
#pragma once

#include "lower/expr.h"

#include <algorithm>
#include <optional>

namespace torch_xla {

// One reduction: what is reduced, over which dimensions, and how its result is laid out.
struct Reduction {
  Val x;
  Dims dims;  // reduced, ascending
  Dims kept;  // the others
  int64_t count = 1;

  Reduction(Val value, Dims reduced) : x(value), dims(std::move(reduced)) {
    std::sort(dims.begin(), dims.end());
    for (int64_t i = 0; i < x.rank(); ++i) {
      if (!std::binary_search(dims.begin(), dims.end(), i)) {
        kept.push_back(i);
      } else {
        count *= x.dim(i);
      }
    }
  }
  // The reduced value back in x's sizes.
  Val spread_back(Builder& b, Val value) const { return b.broadcast_in_dim(value, x.dims(), kept); }
};

Dims all_dims(const Val& x);

// `r.x` if nothing is reduced.
Val reduce_to(Builder& b, const Reduction& r, std::string_view op, Val init);

// By kernels of ours where those are faster than XLA-CPU.
Val sum_of(LowerContext& c, const Reduction& r);
// `given` are the numbers of `r` before they were widened.
Val sum_of_narrow(LowerContext& c, Val given, const Reduction& r);
Val sum_of_squares(LowerContext& c, Val given, const Reduction& r);

// What a reduction takes together: its mean, and the sum of the squares of what lies off it.
struct Moments {
  Val mean, squares;
};
// `given` are the numbers of `r` before they were widened.
Moments moments_of(LowerContext& c, Val given, const Reduction& r);

// Of numbers without NaN.
Val extreme(LowerContext& c, Val x, Dims dims, bool largest);
// The same where a kernel of ours is faster, and NaN wins over every number.
std::optional<Val> extreme_on_host(LowerContext& c, const Reduction& r, bool largest);

// What kernels of our own take.
bool fits_kernels(DType dtype);
// `value` as a matrix of so many columns, where a kernel of ours (host_ops/rows.h) looks at it
// faster than XLA-CPU.
std::optional<Val> matrix_for_host(LowerContext& c, Val value, int64_t columns);
// How many of the reduced dimensions are the last ones.
size_t count_behind(const Reduction& r);
// The rows of `x`, which are its `behind` last dimensions, as one number each.
std::optional<Val> reduced_rows(LowerContext& c, Val x, size_t behind, const char* target);

// Sum over `dims`, which disappear.
inline Expr sum(Expr x, Ints dims) {
  Builder& b = x.b();
  return {b, b.reduce(x.value(), b.scalar_like(x.value(), 0), dims, "add")};
}

// Inverse of the above: `x` broadcast to `dims`, its dimension i becoming `kept[i]`.
inline Expr spread(Expr x, Ints dims, Ints kept) {
  return {x.b(), x.b().broadcast_in_dim(x.value(), dims, kept)};
}

inline Expr reshape(Expr x, Ints dims) { return {x.b(), x.b().reshape(x.value(), dims)}; }
inline Expr convert(Expr x, DType dtype) { return {x.b(), x.b().convert(x.value(), dtype)}; }
inline Expr sqrt(Expr x) { return {x.b(), x.b().unary("sqrt", x.value())}; }
inline Expr rsqrt(Expr x) { return {x.b(), x.b().unary("rsqrt", x.value())}; }
inline Expr square(Expr x) { return x * x; }

}  // namespace torch_xla
