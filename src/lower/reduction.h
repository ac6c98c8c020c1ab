// Sums and broadcasts shared by the files whose operators reduce: norms, pooling, gradients.
#pragma once

#include "lower/expr.h"

namespace torch_xla {

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
