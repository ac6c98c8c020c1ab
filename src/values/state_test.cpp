#include "values/state.h"

#include "base/trace_lock.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

TEST(StorageState, MayEndUnderTheTraceLock) {
  auto state = std::make_shared<StorageState>(0);
  std::weak_ptr<StorageState> watched = state;
  {
    TraceLock lock;  // as a sync does, when another thread has dropped it meanwhile
    state.reset();
  }
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace torch_xla
