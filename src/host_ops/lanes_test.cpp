// Numbers of 16 bits become what PyTorch's conversions make of them, with vectors of each width.
#include "host_ops/lanes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace torch_xla {
namespace {

template <typename T>
std::vector<T> all_numbers() {
  std::vector<T> numbers;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    numbers.emplace_back(static_cast<uint16_t>(bits), T::from_bits());
  }
  return numbers;
}

// Each number of 16 bits, what lies between it and the next, and what is nearest to that.
template <typename T>
std::vector<float> numbers_to_round() {
  std::vector<float> numbers;
  for (const T number : all_numbers<T>()) {
    const float value = number;
    const T next(static_cast<uint16_t>(number.x + 1), T::from_bits());
    const float between = value + (static_cast<float>(next) - value) / 2;
    for (const float wanted : {value, between, std::nextafter(between, 0.0f),
                               std::nextafter(between, between * 2), value * 1.0001f}) {
      numbers.push_back(wanted);
    }
  }
  for (const float large : {65519.0f, 65520.0f, 65536.0f, 3.4e38f, 1e-30f, 0x1p-25f, 0x1.8p-25f}) {
    numbers.insert(numbers.end(), {large, -large});
  }
  numbers.resize(numbers.size() / kMostLanes * kMostLanes);
  return numbers;
}

template <typename T>
struct Convert {
  const std::vector<T>& narrow;
  const std::vector<float>& wide;
  std::vector<float>& widened;
  std::vector<T>& rounded;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (size_t i = 0; i < narrow.size(); i += kLanes<Lanes>) {
      store_lanes(widened.data() + i, load_lanes<Lanes>(narrow.data() + i));
    }
    for (size_t i = 0; i < wide.size(); i += kLanes<Lanes>) {
      store_lanes(rounded.data() + i, load_lanes<Lanes>(wide.data() + i));
    }
  }
};

template <typename T>
class Conversion : public testing::Test {
 protected:
  const std::vector<T> narrow_ = all_numbers<T>();
  const std::vector<float> wide_ = numbers_to_round<T>();
  std::vector<float> widened_ = std::vector<float>(narrow_.size());
  std::vector<T> rounded_ = std::vector<T>(wide_.size());

  void expect_pytorchs() const {
    for (size_t i = 0; i < narrow_.size(); ++i) {
      const float wanted = narrow_[i];
      ASSERT_EQ(std::isnan(widened_[i]), std::isnan(wanted)) << narrow_[i].x;
      if (!std::isnan(wanted)) {
        ASSERT_EQ(std::bit_cast<uint32_t>(widened_[i]), std::bit_cast<uint32_t>(wanted));
      }
    }
    for (size_t i = 0; i < wide_.size(); ++i) {
      const T wanted(wide_[i]);
      ASSERT_EQ(std::isnan(static_cast<float>(rounded_[i])), std::isnan(wide_[i])) << wide_[i];
      if (!std::isnan(wide_[i])) {
        ASSERT_EQ(rounded_[i].x, wanted.x) << wide_[i];
      }
    }
  }
};

using Narrow = testing::Types<c10::BFloat16, c10::Half>;
TYPED_TEST_SUITE(Conversion, Narrow);

TYPED_TEST(Conversion, OfTheProcessorsWidth) {
  with_widest_lanes(Convert<TypeParam>{this->narrow_, this->wide_, this->widened_, this->rounded_});
  this->expect_pytorchs();
}

TYPED_TEST(Conversion, OfNarrowLanes) {
  Convert<TypeParam>{this->narrow_, this->wide_, this->widened_, this->rounded_}
      .template run<NarrowLanes>();
  this->expect_pytorchs();
}

TEST(Lanes, TypesThatTheyAreOf) {
  for (const c10::ScalarType dtype :
       {c10::ScalarType::Float, c10::ScalarType::BFloat16, c10::ScalarType::Half}) {
    EXPECT_TRUE(has_lanes(dtype));
  }
  for (const c10::ScalarType dtype : {c10::ScalarType::Double, c10::ScalarType::Int}) {
    EXPECT_FALSE(has_lanes(dtype));
  }
}

}  // namespace
}  // namespace torch_xla
