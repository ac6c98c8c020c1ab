#include "graph/promote.h"

#include "base/hasher.h"
#include "base/mutex.h"
#include "base/recent_map.h"
#include "metrics/metrics.h"
#include "timeline/timeline.h"

#include <bit>
#include <unordered_map>

namespace torch_xla {

bool fits(const Variant& variant, const std::vector<Number>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (variant.placement.position[i] < 0 && !same_number(variant.literals[i], numbers[i])) {
      return false;
    }
  }
  return true;
}

namespace {

NumberPlacement place(const std::vector<Number>& numbers, const std::vector<bool>& promoted) {
  NumberPlacement placement;
  placement.position.assign(numbers.size(), -1);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!promoted[i]) {
      continue;
    }
    if (numbers[i].is_integral()) {
      placement.position[i] = placement.integers++;
    } else {
      placement.position[i] = placement.doubles;
      placement.doubles += numbers[i].kind == Number::Kind::Complex ? 2 : 1;
    }
  }
  return placement;
}

// Numbers by the place that recorded them. A training loop's first steps differ in structure (the
// optimizer makes its state in the first), so a number may change before any structure comes back;
// it is then an input of the next structure from the start. Looked at only when compiling.
class ChangingPlaces {
 public:
  std::vector<bool> update(const Graph& graph) {
    std::vector<bool> changes(graph.numbers.size(), false);
    std::unordered_map<uint64_t, uint64_t> occurrences;
    MutexLock lock(mutex_);
    for (const GraphNode& entry : graph.nodes) {
      const Node& node = *entry.node;
      if (node.numbers.empty()) {
        continue;
      }
      Hasher place;
      place.add(node.signature->hash);
      place.add(node.location);
      uint64_t occurrence = occurrences[place.low()]++;
      for (size_t i = 0; i < node.numbers.size(); ++i) {
        Hasher key = place;
        key.add(occurrence);
        key.add(i);
        Place& known = places_.get_or_add(key.low(), Place{node.numbers[i], false});
        known.changes = known.changes || !same_number(known.last, node.numbers[i]);
        known.last = node.numbers[i];
        // What a pure function computes on the host for each call is seldom the same twice.
        changes[entry.first_number + i] = known.changes || node.signature->tier == Tier::Call;
      }
    }
    return changes;
  }

 private:
  struct Place {
    Number last;
    bool changes;
  };
  Mutex mutex_;
  RecentMap<uint64_t, Place> places_ GUARDED_BY(mutex_){size_t{1} << 17};
};

ChangingPlaces& changing_places() {
  static auto* instance = new ChangingPlaces;
  return *instance;
}

std::vector<bool> promoted_beside(const std::vector<VariantPtr>& variants,
                                  const std::vector<Number>& numbers) {
  std::vector<bool> best(numbers.size(), false);
  size_t best_changes = numbers.size() + 1;
  for (const VariantPtr& variant : variants) {
    std::vector<bool> promoted(numbers.size());
    size_t changes = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      bool was = variant->placement.position[i] >= 0;
      bool differs = !was && !same_number(variant->literals[i], numbers[i]);
      promoted[i] = was || (differs && !variant->pinned[i]);
      changes += differs;
    }
    if (changes < best_changes) {
      best_changes = changes;
      best = promoted;
    }
  }
  return best;
}

HostCalls host_calls(const Graph& graph) {
  if (!pjrt::client().has_ffi()) {
    return HostCalls::Never;
  }
  return graph.partitions > 1 ? HostCalls::IfNeeded : HostCalls::IfFaster;
}

// Lowers with these numbers as inputs, except those that the lowering wants as literals.
LoweredModule lower_with(const Graph& graph, const std::string& name, std::vector<bool> promoted,
                         NumberPlacement& placement) {
  metrics::Timed timed(metrics::metric("LowerTime"));
  timeline::Scope span(timeline::Kind::Lower, name);
  while (true) {
    placement = place(graph.numbers, promoted);
    LoweredModule module = lower_graph(graph, name, placement, host_calls(graph));
    bool conflict = false;
    for (size_t i = 0; i < promoted.size(); ++i) {
      conflict = conflict || (promoted[i] && module.pinned[i]);
      promoted[i] = promoted[i] && !module.pinned[i];
    }
    if (!conflict) {
      return module;
    }
  }
}

}  // namespace

std::vector<bool> choose_promoted(const std::vector<VariantPtr>& variants, const Graph& graph) {
  std::vector<bool> promoted = promoted_beside(variants, graph.numbers);
  std::vector<bool> changing = changing_places().update(graph);
  for (size_t i = 0; i < promoted.size(); ++i) {
    promoted[i] = promoted[i] || changing[i] || graph.numbers_are_inputs;
    promoted[i] = promoted[i] && graph.numbers[i].operand < 0;
    for (const VariantPtr& variant : variants) {
      promoted[i] = promoted[i] && !variant->pinned[i];
    }
  }
  return promoted;
}

VariantPtr compile_variant(const Graph& graph, const std::string& name, std::vector<bool> promoted,
                           bool awaited) {
  auto variant = std::make_shared<Variant>();
  variant->literals = graph.numbers;
  LoweredModule module = lower_with(graph, name, std::move(promoted), variant->placement);
  variant->pinned = std::move(module.pinned);
  variant->may_fail = module.may_fail;
  ProgramSource source;
  source.name = name;
  source.text = std::move(module.text);
  source.readable = std::move(module.readable);
  source.text_with_locations = std::move(module.text_with_locations);
  source.awaited = awaited;
  source.options.xla_options = graph.xla_options;
  if (graph.partitions > 1) {
    source.options.partitions = graph.partitions;
    source.options.spmd = true;
    for (ShardingPtr sharding : graph.output_shardings) {
      source.options.free_outputs.push_back(sharding == nullptr);
    }
  }
  source.output_types = std::move(module.outputs);
  for (const GraphNode& entry : graph.nodes) {
    variant->signatures.push_back(entry.node->signature);
  }
  variant->program = load_or_compile(std::move(source));
  return variant;
}

PackedNumbers pack_numbers(const std::vector<Number>& numbers, const NumberPlacement& placement) {
  PackedNumbers packed;
  packed.doubles.resize(placement.doubles);
  packed.integers.resize(placement.integers);
  for (size_t i = 0; i < numbers.size(); ++i) {
    int32_t at = placement.position[i];
    if (at < 0) {
      continue;
    }
    if (numbers[i].is_integral()) {
      packed.integers[at] = numbers[i].integer;
    } else {
      packed.doubles[at] = numbers[i].floating.real();
      if (numbers[i].kind == Number::Kind::Complex) {
        packed.doubles[at + 1] = numbers[i].floating.imag();
      }
    }
  }
  return packed;
}

}  // namespace torch_xla
