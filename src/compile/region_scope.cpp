#include "compile/region_scope.h"

#include "execution/sync.h"
#include "trace/scope.h"

namespace torch_xla {

RegionScope::RegionScope(std::shared_ptr<CompiledFunction> function) {
  if (current_region() != nullptr || current_scope() != nullptr) {
    return;
  }
  sync_all_devices(false);
  region_ = std::make_shared<ActiveRegion>(std::move(function));
  outside_ = c10::ThreadLocalDebugInfo::current();
  c10::ThreadLocalDebugInfo::_push(region_kind(), region_);
}

RegionScope::~RegionScope() { leave(); }

void RegionScope::leave() {
  if (region_) {
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(outside_);
    region_.reset();
    outside_.reset();
  }
}

void RegionScope::end() {
  if (!region_) {
    return;
  }
  region_->ending = true;
  try {
    sync_all_devices(false);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

}  // namespace torch_xla
