// Indexing helpers shared by the lowering files. Indices are integers; negative ones count from
// the end unless a comment says otherwise. Those out of range are clamped when reading and dropped
// when writing, as StableHLO defines it.
#pragma once

#include "lower/combine.h"
#include "lower/expr.h"
#include "lower/table.h"

namespace torch_xla {

// A scalar is indexed like a tensor of one element.
inline Val at_least_1d(Builder& b, Val x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

Val wrap_negative(Builder& b, Val index, int64_t size);

// x[..., index, ...]: the sizes of `index` take the place of dimension `dim`. No wrapping.
Val take_slices(Builder& b, Val x, int64_t dim, Val index);
// torch.gather: result[i][j] = x[i][index[i][j]] for dim 1. No wrapping.
Val gather_along(Builder& b, Val x, int64_t dim, Val index);
// The inverse: x with x[i][index[i][j]] combined with updates[i][j]. No wrapping.
Val scatter_along(LowerContext& c, Val x, int64_t dim, Val index, Val updates, Combine combine);
// x with slice index[k] of `dim` combined with slice k of updates. `index` is 1-d. No wrapping.
Val scatter_slices(LowerContext& c, Val x, int64_t dim, Val index, Val updates, Combine combine);

Region combiner(Combine combine);
// The value that `combine` leaves every other value unchanged with; not for Replace.
Val identity_of(Builder& b, Combine combine, DType dtype);

// For each true element of a mask, how many true ones precede it in row-major order; i64. Within
// [0, count) elsewhere.
Val rank_among_true(Builder& b, Val mask);

void register_advanced_index(LowerTable& table);  // parts of register_index
void register_scatter(LowerTable& table);
void register_search(LowerTable& table);

}  // namespace torch_xla
