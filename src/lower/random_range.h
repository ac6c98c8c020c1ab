// How far random numbers reach, for programs and for the interpreter alike. Pure functions.
#pragma once

#include "ir/types.h"

#include <cstdint>
#include <limits>

namespace torch_xla {

// Digits that a float counts with.
inline int significant_bits(DType dtype) {
  switch (dtype) {
    case DType::Double:
      return 53;
    case DType::Half:
      return 11;
    case DType::BFloat16:
      return 8;
    default:
      return 24;
  }
}

// One more than the largest whole number of a dtype; of a float, than the last it can count to. 0
// means 2^64.
inline uint64_t end_of_whole_numbers(DType dtype) {
  if (c10::isFloatingType(dtype)) {
    return (uint64_t{1} << significant_bits(dtype)) + 1;
  }
  if (dtype == DType::Bool) {
    return 2;
  }
  const int sign = c10::isSignedType(dtype) ? 1 : 0;
  const int bits = static_cast<int>(8 * c10::elementSize(dtype)) - sign;
  return bits >= 64 ? 0 : uint64_t{1} << bits;
}

// Where numbers from `low` on end, if nobody says: from the lowest of all on, at the negative ones.
inline uint64_t end_of_numbers_from(int64_t low, DType dtype) {
  return low == std::numeric_limits<int64_t>::lowest() ? uint64_t{1} << 63
                                                       : end_of_whole_numbers(dtype);
}

}  // namespace torch_xla
