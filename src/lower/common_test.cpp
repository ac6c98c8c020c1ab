#include "lower/common.h"

#include "lower/test_call.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

DType promoted(TestCall call) {
  Builder b("test");
  LowerContext::State state;
  return promoted_dtype(LowerContext(b, call.signature(), state, HostCalls::IfFaster), {0, 1});
}

TestCall with(DType dtype, Dims sizes = {2}) { return TestCall("test").tensor(dtype, sizes); }

TEST(PromotedDtype, OfTensorsOfOneRankIsTheirCommonDtype) {
  EXPECT_EQ(promoted(with(DType::Char).tensor(DType::Byte, {2})), DType::Short);
  EXPECT_EQ(promoted(with(DType::Long).tensor(DType::Half, {2})), DType::Half);
  EXPECT_EQ(promoted(with(DType::BFloat16).tensor(DType::Half, {2})), DType::Float);
  EXPECT_EQ(promoted(with(DType::Bool, {}).tensor(DType::Int, {})), DType::Int);
}

TEST(PromotedDtype, CountsZeroDimensionalTensorsOnlyByKind) {
  EXPECT_EQ(promoted(with(DType::Half).tensor(DType::Double, {})), DType::Half);
  EXPECT_EQ(promoted(with(DType::Long, {}).tensor(DType::Byte, {2})), DType::Byte);
  EXPECT_EQ(promoted(with(DType::Int).tensor(DType::Double, {})), DType::Double);
  EXPECT_EQ(promoted(with(DType::Bool).tensor(DType::Byte, {})), DType::Byte);
  EXPECT_EQ(promoted(with(DType::Int).cpu_scalar(0.5, DType::Double)), DType::Double);
  EXPECT_EQ(promoted(with(DType::Float, {}).cpu_scalar(0.5, DType::Double)), DType::Double);
}

TEST(PromotedDtype, CountsNumbersLast) {
  EXPECT_EQ(promoted(with(DType::Int).number(0.5)), DType::Float);
  EXPECT_EQ(promoted(with(DType::Int, {}).number(0.5)), DType::Float);
  EXPECT_EQ(promoted(with(DType::Byte).number(int64_t{3})), DType::Byte);
  EXPECT_EQ(promoted(with(DType::Bool).number(int64_t{3})), DType::Long);
  EXPECT_EQ(promoted(with(DType::Half).number(0.5)), DType::Half);
  EXPECT_EQ(promoted(with(DType::Half).number(std::complex<double>(0, 1))), DType::ComplexHalf);
  EXPECT_EQ(promoted(with(DType::Float, {}).cpu_scalar(0.5, DType::Double, true)), DType::Float);
}

}  // namespace
}  // namespace torch_xla
