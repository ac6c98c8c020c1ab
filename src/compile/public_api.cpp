// Eager mode and compile of the C++ interface.
#include "base/error.h"
#include "compile/region_scope.h"
#include "eager/mode.h"
#include "torch_xla/torch_xla.h"

namespace torch_xla {

void eager_mode(bool enabled) { eager::set_enabled(enabled); }

bool is_eager_mode() { return eager::enabled(); }

std::shared_ptr<CompiledFunction> make_compiled_function(CompileOptions options) {
  if (options.max_different_graphs && *options.max_different_graphs < 1) {
    throw Error("compile: max_different_graphs=" + std::to_string(*options.max_different_graphs) +
                " allows no graph at all: expected 1 or more");
  }
  auto function = std::make_shared<CompiledFunction>(std::move(options.name));
  function->full_graph = options.full_graph;
  function->max_different_graphs = options.max_different_graphs;
  function->xla_options = std::move(options.xla_options);
  if (!options.tiers.empty()) {
    function->tiers = tiers::parse_policy(options.tiers);
  }
  return function;
}

CompileRegion::CompileRegion(std::shared_ptr<CompiledFunction> function)
    : scope_(std::make_unique<RegionScope>(std::move(function))) {}

CompileRegion::~CompileRegion() {
  try {
    scope_->end();
  } catch (const std::exception& error) {
    warn(std::string("what a compiled function recorded before an exception failed: ") +
         error.what());
  }
}

void CompileRegion::end() { scope_->end(); }

}  // namespace torch_xla
