#include "trace/region.h"

#include "base/error.h"
#include "base/location.h"
#include "stablehlo/builder.h"

#include <algorithm>

namespace torch_xla {

namespace {

constexpr std::string_view kRegionName = "torch_xla.compile";
constexpr c10::DebugInfoKind kRegionKind(&kRegionName);

thread_local const char* reason = nullptr;
std::atomic<bool> running_allowed{true};

constexpr size_t kDifferencesShown = 6;

void add_difference(std::string& text, const std::string& what, const std::string& before,
                    const std::string& now) {
  text += "\n    " + what + ": " + (before.empty() ? "none" : before) + ", then " +
          (now.empty() ? "none" : now);
}

// What differs between two lists, the first few of it.
void compare(std::string& text, const std::string& what, const std::vector<std::string>& before,
             const std::vector<std::string>& now) {
  size_t shown = 0;
  for (size_t i = 0; i < std::max(before.size(), now.size()) && shown < kDifferencesShown; ++i) {
    const std::string old_entry = i < before.size() ? before[i] : "";
    const std::string new_entry = i < now.size() ? now[i] : "";
    if (old_entry != new_entry) {
      add_difference(text, what + " " + std::to_string(i), old_entry, new_entry);
      ++shown;
    }
  }
}

std::string hex(uint64_t hash) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) {
    text += kDigits[(hash >> shift) & 15];
  }
  return text;
}

}  // namespace

ActiveRegion* current_region() {
  return static_cast<ActiveRegion*>(c10::ThreadLocalDebugInfo::get(kRegionKind));
}

bool region_may_be_called() {
  const ActiveRegion* region = current_region();
  return region == nullptr || region->function->may_be_called();
}

c10::DebugInfoKind region_kind() { return kRegionKind; }

void CompiledFunction::admit(const Graph& graph) {
  if (!max_different_graphs || graph.nodes.empty()) {
    return;
  }
  Seen now{graph.hash, {}, {}};
  for (const NodePtr& input : graph.inputs) {
    now.inputs.push_back(stablehlo::type_string(input->type(0)));
  }
  for (const GraphNode& entry : graph.nodes) {
    now.operations.push_back(entry.node->signature->op + " at " +
                             location_of(entry.node->location).str());
  }
  MutexLock lock(mutex_);
  bool known = std::any_of(seen_.begin(), seen_.end(),
                           [&](const Seen& seen) { return seen.hash == now.hash; });
  if (known) {
    return;
  }
  if (static_cast<int64_t>(seen_.size()) < *max_different_graphs) {
    seen_.push_back(std::move(now));
    return;
  }
  std::vector<Seen> all = seen_;
  all.push_back(std::move(now));
  throw Error((name.empty() ? std::string("the compiled region") : name) + " traced " +
              std::to_string(all.size()) + " different graphs, more than max_different_graphs=" +
              std::to_string(*max_different_graphs) + ":" + differences(all) +
              "\nMake its inputs alike (pad the last batch, move changing work out of it), or "
              "raise max_different_graphs.");
}

std::string CompiledFunction::differences(const std::vector<Seen>& seen) const {
  std::string text;
  for (size_t i = 0; i < seen.size(); ++i) {
    text += "\n  graph " + std::to_string(i + 1) + " (hash " + hex(seen[i].hash) +
            "): " + std::to_string(seen[i].inputs.size()) + " inputs, " +
            std::to_string(seen[i].operations.size()) + " operations";
    if (i > 0) {
      compare(text, "input", seen[i - 1].inputs, seen[i].inputs);
      compare(text, "operation", seen[i - 1].operations, seen[i].operations);
    }
  }
  return text;
}

RunReason::RunReason(const char* what) : outer_(reason) {
  if (outer_ == nullptr) {
    reason = what;
  }
}

RunReason::~RunReason() { reason = outer_; }

void set_running_allowed(bool allowed) { running_allowed = allowed; }

bool running_is_forbidden() {
  ActiveRegion* region = current_region();
  return !running_allowed || (region != nullptr && region->function->full_graph && !region->ending);
}

void throw_unexpected_run() {
  const ActiveRegion* region = current_region();
  const std::string name = region == nullptr ? "" : region->function->name;
  const std::string what = reason == nullptr ? "A read of a tensor's value" : reason;
  throw Error("Unexpected execution happens inside the compiled function, exiting. " + what +
              " at " + location_of(current_location()).str() + " needs a value that " +
              (name.empty() ? "the region" : name) +
              (running_allowed
                   ? " has only recorded. Move it out of the compiled function, or "
                     "compile without full_graph=True."
                   : " has only recorded, and _set_allow_execution(False) was called."));
}

}  // namespace torch_xla
