// Threads for tests of kernels.
#pragma once

#include "host_ops/workers.h"

namespace torch_xla {

// Three, all of them the calling one.
class OneByOne final : public Workers {
 public:
  int64_t count() const override { return 3; }
  void schedule(std::function<void()> task) override { task(); }
};

}  // namespace torch_xla
