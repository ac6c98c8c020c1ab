#include "execution/sync.h"

#include "base/hasher.h"
#include "base/location.h"
#include "execution/export.h"
#include "execution/growth.h"
#include "execution/launcher.h"
#include "execution/placement.h"
#include "execution/settings.h"
#include "graph/collect.h"
#include "graph/shared_work.h"
#include "interpret/interpreter.h"
#include "metrics/metrics.h"
#include "pjrt/sharded_buffer.h"
#include "sharding/spmd.h"
#include "tiers/policy.h"
#include "tiers/reading_habit.h"
#include "tiers/structure.h"
#include "timeline/timeline.h"
#include "trace/region.h"
#include "trace/scope.h"
#include "values/pending.h"

#include <ATen/TracerMode.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace torch_xla {

namespace {

enum class RunMode {
  All,    // of what this thread has recorded
  Some,   // what stays pending may read values that are replaced
  Eager,  // one operation of eager mode
};

struct NamedRun {
  Execution execution;
  std::string name;  // where no other was given
};

struct ValueHash {
  size_t operator()(const Value& value) const {
    return std::hash<const Node*>()(value.node.get()) * 31 + value.index;
  }
};

std::string default_name(const Graph& graph, RunMode mode) {
  if (mode == RunMode::Eager && !graph.nodes.empty()) {
    return "eager " + graph.nodes.back().node->signature->op;
  }
  return graph.nodes.empty() ? "sync" : "sync at " + location_of(last_location()).str();
}

// Builds the graph of the states' pending values and promises these.
NamedRun prepare(int device, const std::vector<StatePtr>& states, RunMode mode)
    REQUIRES(trace_mutex) {
  std::vector<Value> outputs;
  std::vector<const Node*> former;
  std::vector<StorageState*> holders;
  ska::flat_hash_map<Value, size_t, ValueHash> output_index;
  std::vector<size_t> index_of_state;
  output_index.reserve(states.size());
  for (const StatePtr& state : states) {
    const Value& value = state->value();
    auto [found, inserted] = output_index.emplace(value, outputs.size());
    if (inserted) {
      outputs.push_back(value);
      former.push_back(state->committed.get());
      holders.push_back(state.get());
    }
    index_of_state.push_back(found->second);
  }
  auto graph = std::make_shared<Graph>(collect_graph(outputs));
  outputs.clear();  // references are counted
  output_index.clear();
  if (spmd_enabled()) {
    place_graph(*graph, holders, former);
  }
  if (mode != RunMode::Eager) {
    const bool alone = mode == RunMode::All && states.size() >= pending_count(device);
    std::vector<bool> kept = alone ? std::vector<bool>() : read_by_others(*graph, states);
    for (size_t i = 0; mode == RunMode::Some && i < kept.size(); ++i) {
      // Small ones are as well copied: who holds them is part of which program runs.
      constexpr int64_t kWorthwhile = 1 << 18;
      kept[i] = kept[i] || graph->inputs[i]->type(0).nbytes() < kWorthwhile;
    }
    assign_donations(*graph, former, kept);
  }
  apply_settings(*graph);
  graph->numbers_are_inputs = mode == RunMode::Eager;
  finish_graph(*graph);
  std::string name = default_name(*graph, mode);
  std::vector<NodePtr> leaves = graph->inputs;
  std::vector<bool> donated = donated_inputs(*graph);
  NamedRun run{Execution(std::move(graph), std::move(leaves), std::move(donated), device),
               std::move(name)};
  run.execution.reserve_assignments(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    run.execution.assign(states[i], index_of_state[i], states[i]->committed);
  }
  return run;
}

void execute(NamedRun& run, const std::string& given) {
  const at::tracer::impl::NoTracerDispatchMode no_trace;  // of kernels, where torch.jit.trace reads
  const ActiveRegion* region = current_region();
  const bool unnamed = region == nullptr || region->function->name.empty();
  run.execution.run(!given.empty() ? given : unnamed ? run.name : region->function->name);
}

// All of them, whatever becomes of one; then throws the first error.
void execute_all(std::vector<NamedRun>& runs, const std::string& name = {}) {
  std::exception_ptr first;
  for (NamedRun& run : runs) {
    try {
      execute(run, name);
    } catch (...) {
      first = first ? first : std::current_exception();
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

// Whether reads have come by pending operations so often, and run few of those they came by, that
// all of them should run now: a long list is read one by one, or values that nobody reads pile up
// while others that share some work with them are read. A graph of them all may be large, and comes
// once: it is for the interpreter.
bool looked_often_enough(const SharedWork& work) REQUIRES(trace_mutex) {
  static constexpr size_t kLooks = 1 << 20;
  static size_t looks = 0;
  looks = work.needed() < work.others() ? looks + work.others() : 0;
  if (looks < kLooks) {
    return false;
  }
  looks = 0;
  return interprets_first();
}

std::vector<Value> values_of(const std::vector<StatePtr>& states) REQUIRES(trace_mutex) {
  std::vector<Value> values;
  for (const StatePtr& state : states) {
    values.push_back(state->value());
  }
  return values;
}

// `roots`, and what else is pending of this thread's that needs something that is computed for
// them, or that they need: else it would be computed again, and a loop that reads a value each time
// round would carry all of its past along. Of other threads' what the roots need.
std::vector<StatePtr> with_shared_work(int device, std::vector<StatePtr> roots)
    REQUIRES(trace_mutex) {
  if (roots.size() == pending_count(device)) {
    return roots;
  }
  std::unordered_set<StorageState*> chosen;
  for (const StatePtr& state : roots) {
    chosen.insert(state.get());
  }
  std::vector<StatePtr> others = newly_pending_states(device), rest;
  const uint64_t first_walk = new_visit_epoch();
  bool looks_at_all = false;
  for (bool grown = true; grown && roots.size() < pending_count(device);) {
    SharedWork work(values_of(roots), first_walk);
    if (!work.is_new() && !looks_at_all) {
      others = all_pending_states(device);
      looks_at_all = true;
    }
    grown = false;
    rest.clear();
    for (const StatePtr& state : others) {
      if (chosen.count(state.get()) != 0) {
        continue;
      }
      const bool shares = work.is_needed_for(state->value()), taken = is_taken_here(*state);
      const bool needed = work.needs(state->value());
      if (shares && (taken || needed)) {
        roots.push_back(state);
        chosen.insert(state.get());
        grown = grown || !needed;  // by what else it needs
      } else if (taken) {
        rest.push_back(state);
      }
    }
    if (!grown && !work.is_new() && looked_often_enough(work)) {
      roots.insert(roots.end(), rest.begin(), rest.end());
    }
  }
  return roots;
}

// What this thread has recorded, and what that needs of what others have.
std::vector<StatePtr> states_to_sync(int device) REQUIRES(trace_mutex) {
  std::vector<StatePtr> roots = pending_states(device);
  if (roots.empty() || roots.size() == pending_count(device)) {
    return roots;
  }
  const SharedWork work(values_of(roots));
  for (const StatePtr& state : all_pending_states(device)) {
    if (!is_taken_here(*state) && work.needs(state->value())) {
      roots.push_back(state);
    }
  }
  return roots;
}

// At the line that would make things run where they must not.
void check_may_run(const std::vector<StatePtr>& states) {
  if (!running_is_forbidden()) {
    return;
  }
  {
    TraceLock lock;
    if (std::none_of(states.begin(), states.end(),
                     [](const auto& s) REQUIRES(trace_mutex) { return s->pending(); })) {
      return;
    }
  }
  throw_unexpected_run();
}

std::vector<StatePtr> pending_here(int device) {
  TraceLock lock;
  return pending_states(device);
}

}  // namespace

void sync_device(int device, bool wait, const std::string& name) {
  if (running_is_forbidden()) {
    RunReason reason("A sync of the device");
    check_may_run(pending_here(device));
  }
  refuse_while_tracing("torch_xla.sync() was called: call it after the function");
  current_location();
  growth::reset();
  LaunchTurn turn;
  NamedRun run = [&] {
    timeline::Scope span(timeline::Kind::Trace, "collect the graph");
    TraceLock lock;
    return prepare(device, states_to_sync(device), RunMode::All);
  }();
  execute(run, name);
  tiers::ReadingHabit::of_this_thread().ends_stretch();
  if (wait) {
    wait_device(device);
  }
}

void sync_each_device(bool wait, const std::string& name) {
  for (int device = 0; device < pjrt::device_count_hint(); ++device) {
    sync_device(device, wait, name);
  }
}

void sync_all_devices(bool wait, const std::string& name) {
  metrics::counter("MarkStep").add();
  sync_each_device(wait, name);
}

void run_eagerly(const std::vector<StatePtr>& states) {
  metrics::Timed timed(metrics::metric("EagerOpExecuteTime"));
  LaunchTurn turn;
  std::unordered_map<int, std::vector<StatePtr>> by_device;
  std::vector<NamedRun> runs;
  {
    TraceLock lock;
    for (const StatePtr& state : states) {
      if (state->pending()) {
        by_device[state->device].push_back(state);
      }
    }
    for (auto& [device, pending] : by_device) {
      runs.push_back(prepare(device, pending, RunMode::Eager));
    }
  }
  execute_all(runs);
}

void sync_storages(const std::vector<StatePtr>& states, const std::string& name) {
  check_may_run(states);
  refuse_while_tracing(
      "the program asked for the value of a tensor (.item(), print, .cpu(), .numpy(), a condition "
      "on it, or a result whose shape depends on data). Values exist only when the traced program "
      "runs: keep to tensor operations (torch.where for a condition, a mask instead of a "
      "selection) "
      "or move this line out of the function");
  ExportScope::refuse_to_read(states);
  current_location();
  std::map<int, std::vector<StatePtr>> by_device;
  std::vector<NamedRun> runs;
  LaunchTurn turn;
  {
    TraceLock lock;
    std::unordered_set<const StorageState*> seen;  // views of one storage may be given
    for (const StatePtr& state : states) {
      check_scope(*state);
      if (state->pending() && seen.insert(state.get()).second) {
        by_device[state->device].push_back(state);
      }
    }
    for (auto& [device, pending] : by_device) {
      runs.push_back(prepare(device, with_shared_work(device, pending), RunMode::Some));
    }
  }
  execute_all(runs, name);
}

namespace {

bool is_constant(const Graph& graph) {
  const bool given = std::any_of(graph.inputs.begin(), graph.inputs.end(),
                                 [](const NodePtr& node) { return device_data(*node) == nullptr; });
  const bool varies =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const GraphNode& entry) {
        const Signature& signature = *entry.node->signature;
        return signature.random || signature.tier == Tier::Call;
      });
  const bool recalculated = std::any_of(graph.numbers.begin(), graph.numbers.end(),
                                        [](const Number& number) { return number.parameter >= 0; });
  return !given && !varies && !recalculated;
}

// The value that a tensor of a trace has at every call; null if it may have others. What the trace
// has recorded stays as it is.
DeviceDataPtr constant_of_trace(const at::Tensor& tensor) {
  Graph graph;
  {
    TraceLock lock;
    graph = collect_graph({value_of(*tensor.unsafeGetTensorImpl())});
  }
  if (!is_constant(graph) || !pjrt::client().host_memory()) {
    return {};
  }
  std::vector<c10::Storage> inputs;
  for (const NodePtr& leaf : graph.inputs) {
    inputs.push_back(device_data(*leaf)->host());
  }
  const ScopeGuard outside(nullptr);
  c10::Storage value = interpret(graph, std::move(inputs))[0];
  return c10::make_intrusive<DeviceData>(graph.type(graph.outputs[0]), tensor.device().index(),
                                         std::move(value));
}

}  // namespace

HeldData::HeldData(DeviceDataPtr data) : data_(std::move(data)) { ++data_->holders; }

HeldData::~HeldData() {
  TraceLock lock;
  --data_->holders;
}

HeldData materialize_data(const at::Tensor& tensor) {
  if (current_scope() != nullptr) {
    if (DeviceDataPtr constant = constant_of_trace(tensor)) {
      TraceLock lock;
      return HeldData(std::move(constant));
    }
  }
  const StatePtr& state = state_of(tensor);
  if (!is_traced_or_exported()) {
    TraceLock lock;
    check_scope(*state);
    if (state->value() && !state->pending()) {  // the usual case of a value that was read before
      return HeldData(DeviceDataPtr::reclaim_copy(device_data(*state->value().node)));
    }
  }
  sync_storages({state});
  {
    TraceLock lock;
    const Value& value = value_of(*tensor.unsafeGetTensorImpl());
    if (value.node->kind == Node::Kind::Data) {
      return HeldData(DeviceDataPtr::reclaim_copy(device_data(*value.node)));
    }
  }
  return materialize_data(tensor);  // never written: zeros were just recorded
}

pjrt::BufferPtr materialize(const at::Tensor& tensor) { return materialize_data(tensor)->buffer(); }

namespace {

// What a sync would run for these states; with `leaves`, values that are there already are results,
// too.
Graph graph_of(const std::vector<StatePtr>& states, bool leaves) {
  TraceLock lock;
  std::vector<Value> outputs;
  std::vector<StorageState*> holders;
  std::vector<const Node*> former;
  for (const StatePtr& state : states) {
    if (state->pending() || (leaves && state->value())) {
      outputs.push_back(state->value());
      holders.push_back(state.get());
      former.push_back(state->committed.get());
    }
  }
  Graph graph = collect_graph(outputs);
  if (spmd_enabled() && !leaves) {
    place_graph(graph, holders, former);
  }
  apply_settings(graph);
  finish_graph(graph);
  return graph;
}

std::vector<StatePtr> states_of(const std::vector<at::Tensor>& tensors) {
  std::vector<StatePtr> states;
  for (const at::Tensor& tensor : tensors) {
    states.push_back(state_of(tensor));
  }
  return states;
}

std::string text_of(const std::vector<StatePtr>& states, GraphText kind) {
  LaunchTurn turn;
  const Graph graph = graph_of(states, kind == GraphText::Ir);
  if (kind == GraphText::Ir) {
    return graph_text(graph);
  }
  tiers::Options options;
  options.policy = tiers::Policy::Off;
  VariantPtr variant = find_structure(graph)->choose(graph, "text", options);
  return kind == GraphText::StableHlo ? variant->program->text()
                                      : variant->program->executable().optimized_hlo();
}

}  // namespace

std::string pending_text(const std::vector<at::Tensor>& tensors, GraphText kind) {
  return text_of(states_of(tensors), kind);
}

size_t pending_operation_count(int device) {
  return graph_of(pending_here(device), false).nodes.size();
}

std::string pending_hash(const std::vector<at::Tensor>& tensors) {
  LaunchTurn turn;
  const Graph graph = graph_of(states_of(tensors), false);
  Hasher hasher;
  hasher.add(graph.hash);
  hasher.add(graph.hash_high);
  for (const Number& number : graph.numbers) {
    hasher.add(std::bit_cast<uint64_t>(number.to_double()));
  }
  std::string hash(16, ' ');
  const uint64_t words[2] = {hasher.low(), hasher.high()};
  std::memcpy(hash.data(), words, sizeof(words));
  return hash;
}

ValueState value_state(const at::Tensor& tensor) {
  TraceLock lock;
  const Value& value = state_of(tensor)->value();
  if (!value) {
    return ValueState::Unwritten;
  }
  DeviceData* data = device_data(*value.node);
  if (data == nullptr) {
    return ValueState::Pending;
  }
  return data->is_lost() ? ValueState::Lost : ValueState::There;
}

std::string pending_text(int device, GraphText kind) { return text_of(pending_here(device), kind); }

}  // namespace torch_xla
