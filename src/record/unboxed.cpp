#include "record/unboxed.h"

#include "record/unboxed_kernel.h"

namespace torch_xla {

namespace {

const unboxed::Kernels& kernels() {
  static const auto& all = *new unboxed::Kernels([] {
    unboxed::Kernels found = unboxed::elementwise();
    found.merge(unboxed::along_dimensions());
    found.merge(unboxed::layers());
    found.merge(unboxed::of_lists());
    return found;
  }());
  return all;
}

}  // namespace

bool register_unboxed(torch::Library& library, const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const auto found = kernels().find(name.name + "." + name.overload_name);
  if (found == kernels().end()) {
    return false;
  }
  library.impl(c10::toString(name).c_str(), found->second(op));
  return true;
}

}  // namespace torch_xla
