// Our random bits are those of the plugin's own generator.
#include "host_ops/philox.h"

#include "pjrt/client.h"
#include "stablehlo/builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace torch_xla {
namespace {

using State = std::array<uint64_t, 2>;

template <typename Word>
struct Drawn {
  std::vector<Word> bits;
  State next{};
  bool operator==(const Drawn&) const = default;
};

template <typename Word>
Drawn<Word> by_the_plugin(State state, size_t count) {
  const DType dtype = sizeof(Word) == 8 ? DType::UInt64 : DType::UInt32;
  const TensorType type{dtype, {static_cast<int64_t>(count)}};
  const TensorType state_type{DType::UInt64, {2}};
  stablehlo::Builder b("draw");
  b.begin_function("main", true);
  auto [next, bits] = b.rng_bit_generator(b.parameter(state_type), type);
  b.end_function({bits, next});
  pjrt::Client& client = pjrt::client();
  auto program = client.compile(b.str(true), {}, {type, state_type});
  auto input = client.buffer_from_host(state.data(), state_type, 0, nullptr);
  auto outputs = program->execute({input.get()}, {false}, 0);
  Drawn<Word> drawn{std::vector<Word>(count), {}};
  outputs[0]->copy_to_host(drawn.bits.data(), count * sizeof(Word));
  outputs[1]->copy_to_host(drawn.next.data(), sizeof(State));
  return drawn;
}

template <typename Word>
Drawn<Word> by_us(State state, size_t count) {
  Drawn<Word> drawn{std::vector<Word>(count), state};
  Philox(drawn.next.data()).draw(drawn.bits.data(), count);
  return drawn;
}

constexpr uint64_t kLast = std::numeric_limits<uint64_t>::max();

TEST(Philox, DrawsThePluginsBits) {
  for (const State& state : {State{1, 0}, State{0x123456789ABCDEF, 0xFFFFFFFD}, State{kLast, 9}}) {
    for (size_t count : {1, 6, 31, 32, 33, 64, 1000, 70001}) {
      EXPECT_EQ(by_us<uint32_t>(state, count), by_the_plugin<uint32_t>(state, count)) << count;
      EXPECT_EQ(by_us<uint64_t>(state, count), by_the_plugin<uint64_t>(state, count)) << count;
    }
  }
}

TEST(Philox, DrawsThePluginsBitsWhereTheCounterOverflows) {
  const State state{5, kLast - 20};
  EXPECT_EQ(by_us<uint32_t>(state, 300).bits, by_the_plugin<uint32_t>(state, 300).bits);
}

TEST(Philox, DrawsTheSameInPieces) {
  const State state{7, 11};
  const std::vector<uint32_t> whole = by_us<uint32_t>(state, 1001).bits;
  std::vector<uint32_t> pieces(whole.size());
  for (size_t begin = 0; begin < pieces.size(); begin += 52) {
    philox_words(state.data(), begin, std::min(begin + 52, pieces.size()), pieces.data());
  }
  EXPECT_EQ(pieces, whole);
}

}  // namespace
}  // namespace torch_xla
