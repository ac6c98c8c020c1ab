// Shared by the pool*.cpp files. Pooling and resizing work on the last dimensions of a tensor, the
// spatial ones; batch and channels before them are left alone.
#pragma once

#include "lower/activation.h"
#include "lower/reduction.h"

namespace torch_xla {

// The elements of dimension `dim` at `indices`, and the adjoint, which adds every element of `x` to
// the position it was taken from, in a dimension of `size`. Indices that repeat or regroup a
// dimension evenly, as the usual sizes give, are a broadcast and a sum.
Val take(Builder& b, Val x, int64_t dim, const std::vector<int64_t>& indices);
Val put_back(LowerContext& c, Val x, int64_t dim, const std::vector<int64_t>& indices,
             int64_t size);

// Reduces pairs (value, position) to the largest value and its position: the first of equal ones;
// NaN counts as largest, the last one wins.
Region pick_largest(DType dtype);
// Positions of a plane of `spatial` sizes counted in row-major order, in the dimensions of `x`.
Val plane_positions(Builder& b, Val x, Ints spatial);
// Larger than any position: what padding carries.
Val no_position(Builder& b);

// Gradient planes scattered to the recorded positions: max pooling, backward.
Val scatter_to_positions(LowerContext& c, Val grad, Val positions, Ints sizes, int64_t spatial);

void register_adaptive_pool(LowerTable& table);  // parts of register_pool
void register_resize(LowerTable& table);

}  // namespace torch_xla
