#include "values/host_value.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace torch_xla {
namespace {

TEST(HostValue, IsLentToOneAtATime) {
  HostValue value(at::ones({2}));
  at::Tensor lent = value.borrow();
  EXPECT_EQ(lent.use_count(), 1u);
  EXPECT_FALSE(value.borrow().defined());
  const c10::TensorImpl* same = lent.unsafeGetTensorImpl();
  value.give_back(std::move(lent));
  lent = value.borrow();
  EXPECT_EQ(lent.unsafeGetTensorImpl(), same);
  value.give_back(std::move(lent));
  EXPECT_TRUE(value.is_there());
}

TEST(HostValue, IsTakenFromWhoeverBorrowedIt) {
  HostValue value(at::ones({2}));
  at::Tensor lent = value.borrow();
  at::Tensor taken = value.take();
  EXPECT_FALSE(value.is_there());
  EXPECT_EQ(taken.use_count(), 2u);
  value.give_back(std::move(lent));
  EXPECT_FALSE(value.is_there());
  EXPECT_EQ(taken.use_count(), 1u);
  EXPECT_FALSE(value.take().defined());
}

TEST(HostValue, EndsWithItsTensor) {
  at::Tensor tensor = at::ones({2});
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> watched(
      tensor.getIntrusivePtr());
  {
    const HostValue value(std::move(tensor));
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace torch_xla
