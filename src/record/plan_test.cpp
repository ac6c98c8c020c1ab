// Plans and signatures are kept for the life of the process: calls that differ only in where their
// operands begin share them.
#include "record/plan.h"
#include "trace/tensor.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <set>

namespace torch_xla {
namespace {

const Signature* signature_of(const at::Tensor& tensor) {
  TraceLock lock;
  return state_of(tensor)->value().node->signature;
}

size_t plans_of(const char* name, const char* overload) {
  OpInfo& info = op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
  std::lock_guard<std::mutex> lock(info.mutex);
  return info.plans.size();
}

TEST(PlanTest, OneForAllPlacesWhereAWindowBegins) {
  constexpr int64_t kPlaces = 5000;
  at::Tensor x = at::zeros({4, kPlaces}, at::TensorOptions().device(c10::DeviceType::XLA));
  size_t reads = plans_of("aten::cos", "");
  size_t writes = plans_of("aten::fill_", "Scalar");
  std::set<const Signature*> read, written;
  for (int64_t i = 0; i < kPlaces; ++i) {
    read.insert(signature_of(x.select(1, i).cos()));
    x.select(1, i).fill_(i);
    written.insert(signature_of(x));
  }
  EXPECT_EQ(plans_of("aten::cos", ""), reads + 1);
  EXPECT_EQ(plans_of("aten::fill_", "Scalar"), writes + 1);
  EXPECT_EQ(read.size(), 1u);
  EXPECT_EQ(written.size(), 1u);
}

}  // namespace
}  // namespace torch_xla
