// Shared by the shape*.cpp files: strided reading and writing along one dimension.
#pragma once

#include "lower/context.h"
#include "lower/table.h"

namespace torch_xla {

// Along rows XLA-CPU loads what lies inside a part by masks; numbers that the processor does not
// load so, it takes one by one, with all that is computed of them.
bool is_taken_by_number(DType dtype);
int64_t wrapped_dim(int64_t dim, int64_t rank);

// Positions start, start + step, ... of a dimension; `count` of them. With `input` (0-d i64) only
// the program knows where they start.
struct Stride {
  int64_t start = 0, count = 0, step = 1;
  Val input = {};

  int64_t span() const { return count == 0 ? 0 : (count - 1) * step + 1; }
};

Val read_strided(Builder& b, Val x, int64_t dim, Stride stride);
// x with `source` written there. Without x: with zeros elsewhere, in a dimension of `size`.
Val write_strided(Builder& b, Val x, Val source, int64_t dim, Stride stride);
Val place_strided(Builder& b, Val source, int64_t dim, Stride stride, int64_t size);

// A diagonal of the two last dimensions, when these are flattened into one.
Stride diagonal_stride(int64_t rows, int64_t columns, int64_t offset);
// x with dimensions dim1 and dim2 moved last, in this order; and back.
Val matrices_last(Builder& b, Val x, int64_t dim1, int64_t dim2);
Val matrices_back(Builder& b, Val x, int64_t dim1, int64_t dim2);

void register_pad(LowerTable& table);  // parts of register_shape
void register_copies(LowerTable& table);
void register_strided(LowerTable& table);
void register_image(LowerTable& table);

}  // namespace torch_xla
