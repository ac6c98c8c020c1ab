// A 128-bit hash of a stream of words. Stable between processes and machines of one byte order.
#pragma once

#include <cstdint>
#include <string_view>

namespace torch_xla {

class Hasher {
 public:
  void add(uint64_t word) {
    low_ = mix(low_ ^ word, 0x9E3779B97F4A7C15ull);
    high_ = mix(high_ + word, 0xC2B2AE3D27D4EB4Full ^ low_);
  }
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (char c : text) {
      add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
    }
  }
  uint64_t low() const { return low_; }
  uint64_t high() const { return high_; }

 private:
  static uint64_t mix(uint64_t x, uint64_t y) {
    auto product = static_cast<unsigned __int128>(x ^ 0xA0761D6478BD642Full) * y;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ x;
  }
  uint64_t low_ = 0x243F6A8885A308D3ull;
  uint64_t high_ = 0x13198A2E03707344ull;
};

}  // namespace torch_xla
