// Sums over the numbers of rows, for kernels that run with the widest lanes. Stateless.
#pragma once

#include "host_ops/lanes.h"

#include <algorithm>
#include <array>

namespace torch_xla {

// Adds what a term says of each number, row by row: `term.add(i, sums)` of as many as there are
// lanes from the i-th on, `term.add_one(i, sums)` of a single one. Chains do not wait for each
// other, and those of a block are added to the total at once: errors do not grow with the row.
template <typename Lanes, size_t kSums>
class LaneSums {
 public:
  template <typename Term>
  TORCH_XLA_INLINE void add(int64_t width, const Term& term) {
    for (int64_t i = add_whole(width, term); i < width; ++i) {
      term.add_one(i, rest_.data());
    }
  }

  // Returns where the whole lanes end.
  template <typename Term>
  TORCH_XLA_INLINE int64_t add_whole(int64_t width, const Term& term) {
    int64_t i = 0;
    while (i + kLanes<Lanes> <= width) {
      i = add_block(i, std::min(width, i + kBlock), term);
    }
    return i;
  }

  TORCH_XLA_INLINE float sum(size_t s) const { return across<Summed>(totals_[s]) + rest_[s]; }

 private:
  static constexpr int64_t kChains = 4, kBlock = 16 * kChains * kLanes<Lanes>;

  // Returns where it ends: less than a lane before `end`.
  template <typename Term>
  TORCH_XLA_INLINE int64_t add_block(int64_t i, int64_t end, const Term& term) {
    Lanes chains[kChains][kSums] = {};
    for (; i + kChains * kLanes<Lanes> <= end; i += kChains * kLanes<Lanes>) {
      for (int64_t k = 0; k < kChains; ++k) {
        term.add(i + k * kLanes<Lanes>, chains[k]);
      }
    }
    for (; i + kLanes<Lanes> <= end; i += kLanes<Lanes>) {
      term.add(i, chains[0]);
    }
    for (size_t s = 0; s < kSums; ++s) {
      totals_[s] += (chains[0][s] + chains[1][s]) + (chains[2][s] + chains[3][s]);
    }
    return i;
  }

  Lanes totals_[kSums] = {};
  std::array<float, kSums> rest_ = {};
};

// Of each number.
template <typename T>
struct NumberTerm {
  const T* row;
  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t i, Lanes* sums) const {
    sums[0] += load_lanes<Lanes>(row + i);
  }
  TORCH_XLA_INLINE void add_one(int64_t i, float* sums) const {
    sums[0] += static_cast<float>(row[i]);
  }
};

// Of the square of what lies off the mean.
template <typename T>
struct SquareOffTerm {
  const T* row;
  float mean;
  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t i, Lanes* sums) const {
    const Lanes off = load_lanes<Lanes>(row + i) - mean;
    sums[0] += off * off;
  }
  TORCH_XLA_INLINE void add_one(int64_t i, float* sums) const {
    const float off = static_cast<float>(row[i]) - mean;
    sums[0] += off * off;
  }
};

template <typename Lanes, typename Term>
TORCH_XLA_INLINE float sum_of_row(int64_t width, const Term& term) {
  LaneSums<Lanes, 1> sums;
  sums.add(width, term);
  return sums.sum(0);
}

// Of a weighted gradient (weight: null for ones), and of it with what lies off the mean.
template <typename T>
struct GradientTerm {
  const T *gradient, *input;
  const float* weight;
  float mean;

  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t i, Lanes* sums) const {
    Lanes g = load_lanes<Lanes>(gradient + i);
    g = weight != nullptr ? g * load_lanes<Lanes>(weight + i) : g;
    sums[0] += g;
    sums[1] += g * (load_lanes<Lanes>(input + i) - mean);
  }
  TORCH_XLA_INLINE void add_one(int64_t i, float* sums) const {
    const float g = static_cast<float>(gradient[i]) * (weight != nullptr ? weight[i] : 1);
    sums[0] += g;
    sums[1] += g * (static_cast<float>(input[i]) - mean);
  }
};

}  // namespace torch_xla
