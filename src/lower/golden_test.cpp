// What operators lower to, as text: golden/<family>.mlir. TORCH_XLA_WRITE_GOLDEN=1 rewrites them.
#include "lower/test_call.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace torch_xla {
namespace {

constexpr DType kF32 = DType::Float;

// The checkout lies above the build folder that holds the test program.
std::filesystem::path golden_folder() {
  std::filesystem::path place = std::filesystem::read_symlink("/proc/self/exe");
  while (place.has_relative_path()) {
    place = place.parent_path();
    if (std::filesystem::exists(place / "src/lower/golden")) {
      return place / "src/lower/golden";
    }
  }
  return {};
}

void expect_golden(const std::string& family, const std::string& text) {
  std::filesystem::path path = golden_folder() / (family + ".mlir");
  if (std::getenv("TORCH_XLA_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << "no golden text at " << path;
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str());
}

TEST(Golden, Elementwise) {
  Builder b("elementwise");
  TestCall("aten::add.Tensor")
      .tensor(kF32, {2, 3})
      .tensor(kF32, {3})
      .number(int64_t{1})
      .output(kF32, {2, 3})
      .lower(b, "add_broadcasts_and_drops_alpha_of_one");
  TestCall("aten::add.Tensor")
      .tensor(kF32, {2})
      .tensor(kF32, {2})
      .changing_number(0.5)
      .output(kF32, {2})
      .lower(b, "add_takes_a_changing_alpha_as_input");
  TestCall("aten::mul.Tensor")
      .tensor(DType::BFloat16, {2})
      .cpu_scalar(0.1, DType::Double, true)
      .output(DType::BFloat16, {2})
      .lower(b, "mul_of_16_bits_computes_in_32");
  TestCall("aten::lt.Scalar")
      .tensor(DType::Int, {2})
      .number(2.5)
      .output(DType::Bool, {2})
      .lower(b, "lt_compares_in_the_promoted_dtype");
  TestCall("aten::pow.Tensor_Scalar")
      .tensor(kF32, {2})
      .number(int64_t{2})
      .output(kF32, {2})
      .lower(b, "pow_squares_by_multiplying");
  TestCall("aten::masked_fill.Scalar")
      .tensor(kF32, {2, 3})
      .tensor(DType::Bool, {3})
      .number(-std::numeric_limits<double>::infinity())
      .output(kF32, {2, 3})
      .lower(b, "masked_fill");
  expect_golden("elementwise", b.str(false));
}

TEST(Golden, Reduce) {
  Builder b("reduce");
  std::vector<int64_t> last{-1};
  TestCall("aten::sum.dim_IntList")
      .tensor(DType::BFloat16, {2, 3})
      .argument(last)
      .argument(true)
      .argument({})
      .output(DType::BFloat16, {2, 1})
      .lower(b, "sum_of_16_bits_accumulates_in_32");
  TestCall("aten::amax")
      .tensor(kF32, {2, 3})
      .argument(last)
      .argument(false)
      .output(kF32, {2})
      .lower(b, "amax_prefers_nan");
  TestCall("aten::_softmax")
      .tensor(kF32, {2, 3})
      .argument(int64_t{1})
      .argument(false)
      .output(kF32, {2, 3})
      .lower(b, "softmax");
  TestCall("aten::cumsum")
      .tensor(DType::Int, {4})
      .argument(int64_t{0})
      .argument({})
      .output(DType::Long, {4})
      .lower(b, "cumsum_of_integers_is_long");
  expect_golden("reduce", b.str(false));
}

TEST(Golden, Matmul) {
  Builder b("matmul");
  auto gradient_of_weight = [] {
    return TestCall("aten::mm")
        .window({kF32, {4, 2}}, {kF32, {2, 4}, {1, 2}, 0})
        .tensor(kF32, {4, 3})
        .output(kF32, {2, 3});
  };
  gradient_of_weight().lower(b, "mm_copies_a_transposed_left_operand", HostCalls::IfFaster);
  gradient_of_weight().lower(b, "mm_leaves_it_to_other_platforms", HostCalls::Never);
  TestCall("aten::addmm")
      .tensor(kF32, {3})
      .tensor(kF32, {2, 4})
      .window({kF32, {3, 4}}, {kF32, {4, 3}, {1, 4}, 0})
      .number(int64_t{1})
      .number(int64_t{1})
      .output(kF32, {2, 3})
      .lower(b, "addmm_is_a_linear_layer");
  TestCall("aten::baddbmm")
      .tensor(DType::BFloat16, {1, 2, 3})
      .tensor(DType::BFloat16, {5, 2, 4})
      .tensor(DType::BFloat16, {5, 4, 3})
      .number(int64_t{0})
      .number(0.125)
      .output(DType::BFloat16, {5, 2, 3})
      .lower(b, "baddbmm_ignores_self_at_beta_zero");
  TestCall("aten::bmm")
      .tensor(kF32, {5, 2, 4})
      .window({kF32, {4, 3}}, {kF32, {5, 4, 3}, {0, 3, 1}, 0})
      .output(kF32, {5, 2, 3})
      .lower(b, "bmm_of_expanded_weights_has_one_product");
  expect_golden("matmul", b.str(false));
}

}  // namespace
}  // namespace torch_xla
