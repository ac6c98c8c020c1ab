#include "execution/sync.h"

#include "base/error.h"
#include "base/location.h"
#include "execution/placement.h"
#include "execution/programs.h"
#include "graph/collect.h"
#include "graph/promote.h"
#include "metrics/metrics.h"
#include "sharding/spmd.h"
#include "timeline/timeline.h"
#include "trace/region.h"
#include "trace/scope.h"

#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <unordered_set>

namespace torch_xla {

namespace {

// One storage whose pending value a program computes.
struct Result {
  StatePtr state;
  Value value;
  NodePtr committed;  // where it returns to when the program fails
  NodePtr leaf;       // what it holds from now on
};

enum class RunMode { Lazy, Eager };  // Eager: one operation of eager mode

struct Run {
  int device = 0;
  std::string name;
  RunMode mode = RunMode::Lazy;
  Graph graph;
  std::vector<Result> results;
  std::vector<bool> donated;           // per graph input
  std::vector<DeviceDataPtr> outputs;  // per graph output
  std::unique_ptr<InputHold> hold;
};

struct ValueHash {
  size_t operator()(const Value& value) const {
    return std::hash<const Node*>()(value.node.get()) * 31 + value.index;
  }
};

// With the trace lock held: builds the graph of the states' pending values and replaces these by
// promised Data leaves, so that other threads go on recording on top of them at once.
Run prepare(int device, std::vector<StatePtr> states, bool donate, RunMode mode = RunMode::Lazy) {
  Run run;
  run.device = device;
  run.mode = mode;
  std::vector<Value> outputs;
  std::vector<const Node*> former;
  std::vector<StorageState*> holders;
  ska::flat_hash_map<Value, size_t, ValueHash> output_index;
  std::vector<size_t> index_of_state;
  output_index.reserve(states.size());
  run.results.reserve(states.size());
  for (StatePtr& state : states) {
    const Value& value = state->value();
    auto [found, inserted] = output_index.emplace(value, outputs.size());
    if (inserted) {
      outputs.push_back(value);
      former.push_back(state->committed.get());
      holders.push_back(state.get());
    }
    index_of_state.push_back(found->second);
    run.results.push_back({std::move(state), value, nullptr, nullptr});
  }
  run.graph = collect_graph(outputs);
  if (spmd_enabled()) {
    place_graph(run.graph, holders, former);
  }
  if (donate) {
    assign_donations(run.graph, former);
  }
  if (const ActiveRegion* region = current_region()) {
    run.graph.xla_options = region->function->xla_options;
  }
  run.graph.numbers_are_inputs = mode == RunMode::Eager;
  finish_graph(run.graph);
  run.donated = donated_inputs(run.graph);
  run.hold = std::make_unique<InputHold>(run.graph.inputs, run.donated);
  for (const Value& output : outputs) {
    run.outputs.push_back(c10::make_intrusive<DeviceData>(output.type(), device));
  }
  for (size_t i = 0; i < run.results.size(); ++i) {
    Result& result = run.results[i];
    result.committed = result.state->committed;
    result.leaf = run.outputs[index_of_state[i]];
    result.state->set_value({result.leaf, 0});
  }
  return run;
}

std::string run_name(const Run& run, const ActiveRegion* region) {
  if (!run.name.empty()) {
    return run.name;
  }
  if (region != nullptr && !region->function->name.empty()) {
    return region->function->name;
  }
  if (run.mode == RunMode::Eager && !run.graph.nodes.empty()) {
    return "eager " + run.graph.nodes.back().node->signature->op;
  }
  return run.graph.nodes.empty() ? "sync" : "sync at " + location_of(last_location()).str();
}

// Storages whose former buffer still exists return to it, as if the step had not been recorded;
// what was new in the step carries the error to whoever reads it.
void roll_back(Run& run, const std::exception_ptr& error) {
  for (const auto& output : run.outputs) {
    output->fail(error);
  }
  TraceLock lock;
  for (Result& result : run.results) {
    bool untouched = result.state->value().node == result.leaf;
    if (untouched && result.committed && !device_data(*result.committed)->is_lost()) {
      result.state->set_value({result.committed, 0});
    }
  }
}

VariantPtr find_variant(const Run& run, const ActiveRegion* region) {
  auto structure = find_structure(run.graph);
  if (run.mode == RunMode::Lazy) {
    return structure->find_or_compile(run.graph, run_name(run, region));
  }
  auto start = std::chrono::steady_clock::now();
  bool compiled = false;
  VariantPtr variant = structure->find_or_compile(run.graph, run_name(run, region), &compiled);
  if (compiled) {
    std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    metrics::counter("EagerOpCompileCount").add();
    metrics::metric("EagerOpCompileTime").add(spent.count());
  }
  return variant;
}

void execute(Run run) {
  if (run.graph.outputs.empty()) {
    return;
  }
  try {
    ActiveRegion* region = current_region();
    if (region != nullptr) {
      region->function->admit(run.graph);
    }
    const std::string name = run_name(run, region);
    VariantPtr variant = find_variant(run, region);
    Launched launched =
        launch_program(run.graph, *variant, name, run.graph.inputs, run.donated, run.device);
    for (size_t i = 0; i < launched.outputs.size(); ++i) {
      const auto& wanted = run.graph.output_shardings;
      run.outputs[i]->fulfil(launched.outputs[i], !wanted.empty() && wanted[i] == nullptr);
    }
    run.hold.reset();
    run.graph = {};
    note_in_flight(run.device, std::move(launched.completion));
  } catch (...) {
    roll_back(run, std::current_exception());
    throw;
  }
}

// `roots`, and those of `pending` that hold a value computed on the way to the roots'.
std::vector<StatePtr> with_shared_values(std::vector<StatePtr> roots,
                                         const std::vector<StatePtr>& pending) {
  std::vector<Value> outputs;
  std::unordered_set<StorageState*> chosen;
  for (const StatePtr& state : roots) {
    outputs.push_back(state->value());
    chosen.insert(state.get());
  }
  Graph graph = collect_graph(outputs);
  std::unordered_set<const Node*> computed;
  for (const GraphNode& entry : graph.nodes) {
    computed.insert(entry.node.get());
  }
  for (const StatePtr& state : pending) {
    if (chosen.count(state.get()) == 0 && computed.count(state->value().node.get()) > 0) {
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
    if (std::none_of(states.begin(), states.end(), [](const auto& s) { return s->pending(); })) {
      return;
    }
  }
  throw_unexpected_run();
}

std::vector<StatePtr> all_pending(int device) {
  std::vector<StatePtr> states;
  TraceLock lock;
  states = pending_states(device);
  return states;
}

}  // namespace

void sync_device(int device, bool wait, const std::string& name) {
  if (running_is_forbidden()) {
    RunReason reason("A sync of the device");
    check_may_run(all_pending(device));
  }
  refuse_while_tracing("torch_xla.sync() was called: call it after the function");
  current_location();
  reset_recorded_nodes();
  LaunchTurn turn;
  Run run = [&] {
    timeline::Scope span(timeline::Kind::Trace, "collect the graph");
    std::vector<StatePtr> states;
    TraceLock lock;
    states = pending_states(device);
    return prepare(device, std::move(states), true);
  }();
  run.name = name;
  execute(std::move(run));
  if (wait) {
    wait_device(device);
  }
}

void sync_all_devices(bool wait, const std::string& name) {
  for (int device = 0; device < pjrt::device_count_hint(); ++device) {
    sync_device(device, wait, name);
  }
}

void run_eagerly(const std::vector<StatePtr>& states) {
  metrics::Timed timed(metrics::metric("EagerOpExecuteTime"));
  LaunchTurn turn;
  std::unordered_map<int, std::vector<StatePtr>> by_device;
  std::vector<Run> runs;
  {
    TraceLock lock;
    for (const StatePtr& state : states) {
      if (state->pending()) {
        by_device[state->device].push_back(state);
      }
    }
    for (auto& [device, pending] : by_device) {
      runs.push_back(prepare(device, pending, false, RunMode::Eager));
    }
  }
  for (Run& run : runs) {
    execute(std::move(run));
  }
}

void sync_storages(const std::vector<StatePtr>& states, const std::string& name) {
  check_may_run(states);
  refuse_while_tracing(
      "the program asked for the value of a tensor (.item(), print, .cpu(), .numpy(), a condition "
      "on it, or a result whose shape depends on data). Values exist only when the traced program "
      "runs: keep to tensor operations (torch.where for a condition, a mask instead of a "
      "selection) "
      "or move this line out of the function");
  current_location();
  std::unordered_map<int, std::vector<StatePtr>> by_device;
  std::unordered_map<int, std::vector<StatePtr>> all;  // states are dropped after the lock
  std::vector<Run> runs;
  LaunchTurn turn;
  {
    TraceLock lock;
    for (const StatePtr& state : states) {
      check_scope(*state);
      if (state->pending()) {
        by_device[state->device].push_back(state);
      }
    }
    for (auto& [device, pending] : by_device) {
      all[device] = pending_states(device);
      runs.push_back(prepare(device, with_shared_values(pending, all[device]), false));
    }
  }
  for (Run& run : runs) {
    run.name = name;
    execute(std::move(run));
  }
}

DeviceDataPtr materialize_data(const at::Tensor& tensor) {
  StatePtr state = state_of(tensor);
  sync_storages({state});
  {
    TraceLock lock;
    const Value& value = value_of(*tensor.unsafeGetTensorImpl());
    if (value.node->kind == Node::Kind::Data) {
      return DeviceDataPtr::reclaim_copy(device_data(*value.node));
    }
  }
  return materialize_data(tensor);  // never written: zeros were just recorded
}

pjrt::BufferPtr materialize(const at::Tensor& tensor) { return materialize_data(tensor)->buffer(); }

std::string pending_text(const std::vector<at::Tensor>& tensors, GraphText kind) {
  Graph graph;
  LaunchTurn turn;
  {
    TraceLock lock;
    std::vector<Value> outputs;
    std::vector<StorageState*> holders;
    std::vector<const Node*> former;
    for (const at::Tensor& tensor : tensors) {
      StorageState& state = *state_of(tensor);
      if (state.pending()) {
        outputs.push_back(state.value());
        holders.push_back(&state);
        former.push_back(state.committed.get());
      }
    }
    graph = collect_graph(outputs);
    if (spmd_enabled()) {
      place_graph(graph, holders, former);
    }
    finish_graph(graph);
  }
  if (kind == GraphText::Ir) {
    return graph_text(graph);
  }
  VariantPtr variant = find_structure(graph)->find_or_compile(graph, "text");
  return kind == GraphText::StableHlo ? variant->program->text()
                                      : variant->program->executable().optimized_hlo();
}

}  // namespace torch_xla
