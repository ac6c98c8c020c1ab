// A 128-bit hash of a stream of words and texts. Stable between processes and machines of one byte
// order. Not for use against somebody who constructs collisions.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace torch_xla {

class Hasher {
 public:
  void add(uint64_t word) {
    low_ = mix(low_ ^ word, 0x9E3779B97F4A7C15ull);
    high_ = mix(high_ + word, 0xC2B2AE3D27D4EB4Full ^ low_);
  }
  // The length goes first, so that ("ab", "c") and ("a", "bc") differ.
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (; text.size() >= sizeof(uint64_t); text.remove_prefix(sizeof(uint64_t))) {
      add(word_of(text.data(), sizeof(uint64_t)));
    }
    if (!text.empty()) {
      add(word_of(text.data(), text.size()));
    }
  }
  uint64_t low() const { return low_; }
  uint64_t high() const { return high_; }

  // 32 hexadecimal digits.
  std::string hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (uint64_t half : {high_, low_}) {
      for (int shift = 60; shift >= 0; shift -= 4) {
        text += kDigits[(half >> shift) & 15];
      }
    }
    return text;
  }

 private:
  static uint64_t word_of(const char* bytes, size_t size) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, size);
    return word;
  }
  static uint64_t mix(uint64_t x, uint64_t y) {
    auto product = static_cast<unsigned __int128>(x ^ 0xA0761D6478BD642Full) * y;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ x;
  }
  uint64_t low_ = 0x243F6A8885A308D3ull;
  uint64_t high_ = 0x13198A2E03707344ull;
};

}  // namespace torch_xla
