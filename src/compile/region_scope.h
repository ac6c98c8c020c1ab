// A torch_xla.compile region from its beginning to its end, on one thread.
#pragma once

#include "trace/region.h"

namespace torch_xla {

// Runs what is pending, so that it stays out of the region's graph, and enters the region; inside
// another region, or in the trace of a pure function, joins that and does nothing.
class RegionScope {
 public:
  explicit RegionScope(std::shared_ptr<CompiledFunction> function);
  // Leaves the region without running anything, if end() has not been called.
  ~RegionScope();
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

  // Runs what the region recorded, and leaves it; throws the errors of its programs.
  void end();
  bool is_outermost() const { return region_ != nullptr; }

 private:
  void leave();
  std::shared_ptr<ActiveRegion> region_;  // null: joined, or left
  std::shared_ptr<c10::ThreadLocalDebugInfo> outside_;
};

}  // namespace torch_xla
