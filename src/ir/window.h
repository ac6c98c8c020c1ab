// How windows lie in their storages, and where they begin. Plain functions, safe from any thread.
#pragma once

#include "ir/signature.h"

#include <optional>

namespace torch_xla {

// A window's elements in memory: `count` of them, or of the runs inside, `stride` apart.
struct Run {
  int64_t count = 1;
  int64_t stride = 1;
};
using Runs = c10::SmallVector<Run, 6>;

// Outermost first. Dimensions that continue each other are one run; those that do not move in
// memory (of one element, or expanded) are none.
Runs runs_of(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides);

// Elements from the window's first to its last, both included; 0 for an empty window.
int64_t span_of(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides);

// The strides of runs cut the storage into rows, and these into rows. Does a run of a window that
// begins at `offset` go on in the next row, or overlap with it?
bool crosses_rows(const Runs& runs, int64_t offset);

// The digits of a position in memory, outermost first, and the range of each that a window meets.
struct Digit {
  int64_t size = 1;
  int64_t unit = 1;  // elements between neighbours
  int64_t span = 1;  // of the window's range
};
using Digits = c10::SmallVector<Digit, 6>;

// A frame's dimensions as digits, if a window at `offset` is a (stepped) range of each.
std::optional<Digits> digits_in_frame(const Runs& runs, int64_t offset,
                                      c10::ArrayRef<int64_t> frame);

// Makes numbers of the places where operands begin that could begin elsewhere (extent > 0): they
// follow the numbers of the arguments, in the order of the operands. Returns their values.
c10::SmallVector<Number, 2> number_starts(Signature& signature);

// The window of an operand where it begins, for a node with these numbers.
Window window_of_operand(const Signature& signature, size_t operand, c10::ArrayRef<Number> numbers);

}  // namespace torch_xla
