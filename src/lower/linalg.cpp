// Cholesky factors, triangular systems, Fourier transforms. Where host memory is device memory
// ATen's kernels are called from the program: LAPACK's and MKL's, which XLA's CPU loops do not
// match. Elsewhere StableHLO's operations. Other decompositions have host kernels only.
#include "lower/reduction.h"
#include "lower/table.h"

#include <algorithm>
#include <cmath>

namespace torch_xla {
namespace {

// ---- matrices -----------------------------------------------------------------------------------

Val adjoint(Builder& b, Val x) {
  Dims permutation;
  for (int64_t d = 0; d < x.rank(); ++d) {
    permutation.push_back(d);
  }
  std::swap(permutation[x.rank() - 1], permutation[x.rank() - 2]);
  return conj({b, b.transpose(x, permutation)}).value();
}

// True on and below the diagonal of the last two dimensions.
Val lower_triangle(Builder& b, Ints dims) {
  TensorType type{DType::Int, Dims(dims)};
  int64_t rank = static_cast<int64_t>(dims.size());
  return b.compare("GE", b.iota(type, rank - 2), b.iota(type, rank - 1));
}

// The order of the first leading minor that is not positive: the first NaN of the diagonal.
Val failed_minor(Builder& b, Val factor) {
  int64_t rank = factor.rank(), size = factor.dim(rank - 1);
  Val magnitude = c10::isComplexType(factor.dtype()) ? b.real(factor) : factor;
  TensorType type{DType::Int, factor.dims()};
  Expr row(b, b.iota(type, rank - 2)), column(b, b.iota(type, rank - 1));
  Expr value(b, magnitude);
  Expr order = where(value != value && row == column, row + 1.0, static_cast<double>(size + 1));
  Val first = b.reduce(order.value(), b.highest(DType::Int), {rank - 2, rank - 1}, "minimum");
  Expr minor(b, first);
  return where(minor <= static_cast<double>(size), minor, 0.0).value();
}

// linalg_cholesky_ex(self, *, upper, check_errors): the factor and info
void lower_cholesky(LowerContext& c) {
  Builder& b = c.b;
  bool upper = c.flag(1);
  Val self = c.tensor(0);
  Val factor = b.cholesky(upper ? adjoint(b, self) : self, true);
  Expr below(b, lower_triangle(b, factor.dims()));
  Val clean = where(below, {b, factor}, 0.0).value();
  c.set(0, upper ? adjoint(b, clean) : clean);
  c.set(1, failed_minor(b, factor));
}

// `x` with the batch dimensions of `dims`.
Val expand_batch(Builder& b, Val x, Ints dims) {
  Dims wanted(dims.slice(0, dims.size() - 2));
  wanted.push_back(x.dim(x.rank() - 2));
  wanted.push_back(x.dim(x.rank() - 1));
  return b.expand(x, wanted);
}

// linalg_solve_triangular(self, B, *, upper, left, unitriangular)
void lower_solve_triangular(LowerContext& c) {
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  Val matrix = expand_batch(b, c.tensor(0), sizes), right = expand_batch(b, c.tensor(1), sizes);
  c.set(0, b.triangular_solve(matrix, right, c.flag(3), !c.flag(2), c.flag(4), "NO_TRANSPOSE"));
}

// triangular_solve(self, A, upper, transpose, unitriangular): the solution and a copy of A
void lower_triangular_solve(LowerContext& c) {
  Builder& b = c.b;
  const Dims& sizes = c.output(0).sizes;
  Val right = expand_batch(b, c.tensor(0), sizes), matrix = expand_batch(b, c.tensor(1), sizes);
  c.set(0, b.triangular_solve(matrix, right, true, !c.flag(2), c.flag(4),
                              c.flag(3) ? "TRANSPOSE" : "NO_TRANSPOSE"));
  c.set(1, matrix);
}

// ---- Fourier transforms -------------------------------------------------------------------------

// Applies `transform` to dimension `dim` moved to the end.
template <typename Transform>
Val along(Builder& b, Val x, int64_t dim, Transform transform) {
  int64_t last = x.rank() - 1;
  Dims swap;
  for (int64_t d = 0; d <= last; ++d) {
    swap.push_back(d == dim ? last : d == last ? dim : d);
  }
  return dim == last ? transform(x) : b.transpose(transform(b.transpose(x, swap)), swap);
}

// PyTorch's transforms do not divide by themselves; StableHLO's inverse does.
Val transform_complex(Builder& b, Val x, Ints dims, bool forward) {
  for (int64_t dim : dims) {
    x = along(b, x, dim, [&](Val y) {
      Val z = b.fft(y, forward ? "FFT" : "IFFT", {y.dims().back()});
      return forward ? z : b.mul(z, b.scalar_like(z, static_cast<double>(y.dims().back())));
    });
  }
  return x;
}

// Of the elements transformed together; `mode` is ATen's fft_norm_mode.
Val normalized(Builder& b, Val x, int64_t count, int64_t mode) {
  double n = static_cast<double>(count);
  return mode == 0 ? x : b.mul(x, b.scalar_like(x, mode == 1 ? 1 / std::sqrt(n) : 1 / n));
}

int64_t count_of(Ints sizes, Ints dims) {
  int64_t count = 1;
  for (int64_t dim : dims) {
    count *= sizes[dim];
  }
  return count;
}

// _fft_c2c(self, dim, normalization, forward)
void lower_fft_c2c(LowerContext& c) {
  Val x = c.tensor(0);
  Dims dims = c.dims(1, x.rank());
  Val y = transform_complex(c.b, x, dims, c.flag(3));
  c.set(0, normalized(c.b, y, count_of(x.dims(), dims), c.integer(2)));
}

// _fft_r2c(self, dim, normalization, onesided): the last of the dimensions is halved
void lower_fft_r2c(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Dims dims = c.dims(1, x.rank());
  Val y;
  if (c.flag(3)) {
    y = along(b, x, dims.back(), [&](Val z) { return b.fft(z, "RFFT", {z.dims().back()}); });
    y = transform_complex(b, y, Ints(dims).slice(0, dims.size() - 1), true);
  } else {
    y = transform_complex(b, b.convert(x, c.output(0).dtype), dims, true);
  }
  c.set(0, normalized(b, y, count_of(x.dims(), dims), c.integer(2)));
}

// _fft_c2r(self, dim, normalization, last_dim_size)
void lower_fft_c2r(LowerContext& c) {
  Builder& b = c.b;
  Val x = c.tensor(0);
  Dims dims = c.dims(1, x.rank());
  int64_t length = c.integer(3);
  x = transform_complex(b, x, Ints(dims).slice(0, dims.size() - 1), false);
  Val y = along(b, x, dims.back(), [&](Val z) {
    Val real = b.fft(z, "IRFFT", {length});
    return b.mul(real, b.scalar_like(real, static_cast<double>(length)));
  });
  c.set(0, normalized(b, y, count_of(y.dims(), dims), c.integer(2)));
}

}  // namespace

void register_linalg(LowerTable& table) {
  table["aten::linalg_cholesky_ex"] = {host_or<lower_cholesky>};
  table["aten::linalg_solve_triangular"] = {host_or<lower_solve_triangular>};
  table["aten::triangular_solve"] = {host_or<lower_triangular_solve>};
  table["aten::_fft_c2c"] = {host_or<lower_fft_c2c>};
  table["aten::_fft_r2c"] = {host_or<lower_fft_r2c>};
  table["aten::_fft_c2r"] = {host_or<lower_fft_c2r>};
}

}  // namespace torch_xla
