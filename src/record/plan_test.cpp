// Plans and signatures: shared by calls that differ only in where their operands begin, and
// forgotten when their calls do not come again.
#include "record/plan.h"
#include "trace/tensor.h"
#include "values/internal_ops.h"

#include <ATen/ops/cos.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <set>

namespace torch_xla {
namespace {

SignaturePtr signature_of(const at::Tensor& tensor) {
  TraceLock lock;
  return state_of(tensor)->value().node->signature;
}

at::Tensor zeros(c10::IntArrayRef sizes) {
  return at::zeros(sizes, at::TensorOptions().device(c10::DeviceType::XLA));
}

TEST(PlanTest, OneForAllPlacesWhereAWindowBegins) {
  constexpr int64_t kPlaces = 5000;
  at::Tensor x = zeros({4, kPlaces});
  const size_t plans = plan_count();
  std::set<SignaturePtr> read, written;
  for (int64_t i = 0; i < kPlaces; ++i) {
    read.insert(signature_of(x.select(1, i).cos()));
    x.select(1, i).fill_(i);
    written.insert(signature_of(x));
  }
  EXPECT_EQ(plan_count(), plans + 2);
  EXPECT_EQ(read.size(), 1u);
  EXPECT_EQ(written.size(), 1u);
}

TEST(PlanTest, ShapesThatDoNotComeAgainAreForgotten) {
  const at::Tensor kept = zeros({1}).cos();
  const SignaturePtr used = signature_of(kept);
  for (int64_t i = 2; i < static_cast<int64_t>(kMostPlans) * 3 / 4; ++i) {
    zeros({i}).cos();
    ASSERT_LE(plan_count(), kMostPlans);
  }
  EXPECT_GE(plan_count(), kMostPlans / 2);
  EXPECT_LE(signature_count(), kMostPlans + kMostInternalSignatures + 8);
  EXPECT_EQ(signature_of(kept), used);
  EXPECT_EQ(signature_of(zeros({1}).cos()), used);  // a plan made anew, for what is still there
}

}  // namespace
}  // namespace torch_xla
