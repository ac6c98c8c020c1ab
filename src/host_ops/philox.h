// The random bits of StableHLO's rng_bit_generator with the algorithm PHILOX: the same bits from
// the same state as a program draws. One thread at a time per generator.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla {

// Words `begin` (a multiple of four) to `end` of those that follow the state (key, counter), at
// their places in `words`. Thread-safe.
void philox_words(const uint64_t* state, size_t begin, size_t end, uint32_t* words);

// The counter behind so many words.
uint64_t philox_counter(uint64_t counter, size_t words);

class Philox {
 public:
  // `state`: key and counter, as on the device; it goes on with every draw.
  explicit Philox(uint64_t* state) : state_(state) {}
  void draw(uint32_t* bits, size_t count);
  void draw(uint64_t* bits, size_t count);

 private:
  uint64_t* state_;
};

}  // namespace torch_xla
