#include "execution/launcher.h"

#include "base/interrupt.h"
#include "execution/pieces.h"
#include "graph/collect.h"
#include "graph/partition.h"
#include "interpret/interpreter.h"
#include "lower/graph_lowering.h"
#include "metrics/metrics.h"
#include "tiers/reading_habit.h"
#include "tiers/structure.h"
#include "timeline/timeline.h"
#include "trace/region.h"

#include <ATen/Context.h>

#include <algorithm>
#include <map>

namespace torch_xla {

namespace {

tiers::Options options_for(const Graph& graph) {
  tiers::Options options = tiers::from_environment();
  const ActiveRegion* region = current_region();
  options.may_be_called = region_may_be_called();
  options.beside_programs = tiers::ReadingHabit::of_this_thread().is_beside_programs();
  if (region && region->function->tiers) {
    options.policy = *region->function->tiers;
  }
  if (graph.partitions > 1 || graph.numbers_are_inputs || !pjrt::client().host_memory()) {
    options.policy = tiers::Policy::Off;
  }
  // The last bits of a program's results are not those of its operations one by one.
  if (options.policy == tiers::Policy::Counted && at::globalContext().deterministicAlgorithms()) {
    options.policy = tiers::Policy::Never;
  }
  return options;
}

// Per node: whether it needs the value of `culprit`.
std::vector<bool> dependents(const Graph& graph, size_t culprit) {
  std::vector<bool> result(graph.nodes.size(), false);
  result[culprit] = true;
  for (size_t n = culprit + 1; n < graph.nodes.size(); ++n) {
    for (const GraphValue operand : graph.operands_of(n)) {
      result[n] =
          result[n] || (operand.producer >= 0 && result[static_cast<size_t>(operand.producer)]);
    }
  }
  return result;
}

bool is_interrupted(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return is_interrupt(thrown);
  } catch (...) {
    return false;
  }
}

// What values keep is thrown again by whoever reads them. The front end's exceptions cannot be, nor
// does an interrupt concern those who read later.
std::exception_ptr lasting(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return error;
  } catch (const c10::Error&) {
    return error;
  } catch (const std::exception& other) {
    return std::make_exception_ptr(
        Error(is_interrupt(other) ? "this value was not computed: its computation was interrupted"
                                  : other.what()));
  } catch (...) {
    return error;
  }
}

}  // namespace

Execution::Execution(std::shared_ptr<const Graph> graph, std::vector<NodePtr> leaves,
                     std::vector<bool> donated, int device)
    : graph_(std::move(graph)),
      leaves_(std::move(leaves)),
      donated_(std::move(donated)),
      device_(device),
      hold_(std::make_unique<InputHold>(leaves_, donated_)) {
  outputs_.reserve(graph_->outputs.size());
  for (GraphValue output : graph_->outputs) {
    outputs_.push_back(c10::make_intrusive<DeviceData>(graph_->type(output), device));
  }
  fulfilled_.assign(outputs_.size(), false);
}

Execution::~Execution() {
  if (graph_) {
    roll_back(std::make_exception_ptr(
        Error("this value was not computed: something that was to run before it failed")));
  }
}

void Execution::assign(StatePtr state, size_t output, NodePtr before) {
  state->set_value({outputs_[output], 0});
  assignments_.push_back({std::move(state), output, std::move(before)});
}

void Execution::run(const std::string& name) {
  std::optional<size_t> culprit;
  try {
    if (!outputs_.empty()) {
      compute(name, culprit);
    }
  } catch (...) {
    fail(std::current_exception(), culprit, name);
    throw;
  }
  graph_.reset();
  assignments_.clear();
}

void Execution::compute(const std::string& name, std::optional<size_t>& culprit) {
  if (edge_ && pjrt::client().host_memory() && interpret_now(name, culprit)) {
    return;
  }
  if (const ActiveRegion* region = current_region()) {
    region->function->admit(*graph_);
  } else if (!edge_) {
    if (std::vector<Piece> pieces = shared_pieces(*graph_); !pieces.empty()) {
      run_pieces(std::move(pieces), name);
      return;
    }
  }
  auto structure = find_structure(*graph_);
  tiers::Options options = options_for(*graph_);
  tiers::ReadingHabit::of_this_thread().ran(structure->is_better_called(*graph_, options));
  try {
    VariantPtr variant = structure->choose(*graph_, name, options);
    if (variant == nullptr) {
      if (interpret_now(name, culprit, structure->stays_interpreted(options))) {
        return;
      }
      structure->give_up_interpreting();
      variant = structure->choose(*graph_, name, options);
    }
    try {
      launch(variant, name);
    } catch (const Error&) {
      // Called one by one, the kernels say which operation it was, and of which line.
      const bool can_repeat = variant->may_fail && graph_->partitions == 1;
      if (!can_repeat || !pjrt::client().host_memory() || !interpret_now(name, culprit)) {
        throw;
      }
    }
  } catch (const LoweringError& error) {
    culprit = error.node();
    throw;
  }
}

std::vector<DeviceDataPtr> Execution::run_part(Graph graph, std::vector<NodePtr> leaves,
                                               const std::vector<int32_t>& promises,
                                               const std::string& name, bool edge) {
  std::unique_ptr<Execution> part;
  {
    TraceLock lock;
    std::vector<bool> donated = donated_inputs(graph);
    part = std::make_unique<Execution>(std::make_shared<Graph>(std::move(graph)), std::move(leaves),
                                       std::move(donated), device_);
  }
  part->edge_ = edge;
  for (size_t j = 0; j < promises.size(); ++j) {
    if (promises[j] >= 0) {
      part->outputs_[j] = outputs_[promises[j]];
    }
  }
  std::vector<DeviceDataPtr> outputs = part->outputs_;
  std::exception_ptr error;
  try {
    part->run(name);
  } catch (...) {
    error = std::current_exception();
  }
  for (size_t j = 0; j < promises.size(); ++j) {
    if (promises[j] >= 0) {
      fulfilled_[promises[j]] = part->fulfilled_[j];
    }
  }
  if (error) {
    std::rethrow_exception(error);
  }
  return outputs;
}

void Execution::run_pieces(std::vector<Piece> pieces, const std::string& name) {
  using Key = std::pair<int32_t, uint32_t>;
  std::map<Key, int32_t> promised;
  for (size_t i = 0; i < graph_->outputs.size(); ++i) {
    promised[{graph_->outputs[i].producer, graph_->outputs[i].index}] = static_cast<int32_t>(i);
  }
  std::map<Key, NodePtr> made;
  for (Piece& piece : pieces) {
    std::vector<NodePtr> leaves;
    for (GraphValue input : piece.inputs) {
      leaves.push_back(input.producer < 0 ? leaves_[input.index]
                                          : made.at({input.producer, input.index}));
    }
    std::vector<int32_t> promises;
    for (GraphValue output : piece.outputs) {
      auto found = promised.find({output.producer, output.index});
      promises.push_back(found == promised.end() ? -1 : found->second);
    }
    const auto outputs =
        run_part(std::move(piece.graph), std::move(leaves), promises, name, piece.edge);
    for (size_t j = 0; j < outputs.size(); ++j) {
      made[{piece.outputs[j].producer, piece.outputs[j].index}] = outputs[j];
    }
  }
  leaves_.clear();
  hold_.reset();
}

// False: an operation needs a program.
bool Execution::interpret_now(const std::string& name, std::optional<size_t>& culprit,
                              bool own_kernels) {
  static metrics::Metric& execute_time = metrics::metric("ExecuteTime");
  static metrics::Metric& interpret_time = metrics::metric("InterpretTime");
  metrics::Timed executed(execute_time), timed(interpret_time);
  timeline::Scope span(timeline::Kind::Interpret, name, static_cast<int64_t>(graph_->nodes.size()));
  std::vector<c10::Storage> inputs;
  inputs.reserve(leaves_.size());
  for (const NodePtr& leaf : leaves_) {
    inputs.push_back(device_data(*leaf)->host());
  }
  try {
    std::vector<c10::Storage> results =
        interpret(*graph_, std::move(inputs),
                  {.memory = &pjrt::device_memory(device_),
                   .failed = [&](size_t node) { culprit = node; },
                   .nothing_fails = [&] { give_up_inputs(); },
                   .may_be_written = [&](size_t input) { return begins_write(input); },
                   .own_kernels = own_kernels});
    for (size_t i = 0; i < results.size(); ++i) {
      outputs_[i]->fulfil(std::move(results[i]));
      fulfilled_[i] = true;
    }
  } catch (const NotInterpretable&) {
    culprit.reset();
    return false;
  }
  leaves_.clear();
  hold_.reset();
  return true;
}

void Execution::give_up_inputs() {
  for (size_t i = 0; i < leaves_.size(); ++i) {
    begins_write(i);  // a wait may be interrupted: all are given up, or none
  }
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (donated_[i]) {
      device_data(*leaves_[i])->give_up_host();
    }
  }
}

bool Execution::begins_write(size_t input) {
  if (donated_[input]) {
    device_data(*leaves_[input])->begin_write();
  }
  return donated_[input];
}

void Execution::launch(VariantPtr variant, const std::string& name) {
  // What may still fail must leave its inputs as they are, and is waited for.
  std::vector<bool> donated = donated_;
  for (size_t i = 0; i < donated.size(); ++i) {
    donated[i] = donated[i] && !variant->may_fail && device_data(*leaves_[i])->has_own_bytes();
  }
  Launched launched = launch_program(*graph_, *variant, name, leaves_, donated, device_);
  if (variant->may_fail && !launched.outputs.empty()) {
    timeline::Scope span(timeline::Kind::Wait);
    launched.outputs.front()->await_ready();
  }
  const auto& wanted = graph_->output_shardings;
  for (size_t i = 0; i < launched.outputs.size(); ++i) {
    outputs_[i]->fulfil(std::move(launched.outputs[i]), !wanted.empty() && wanted[i] == nullptr);
    fulfilled_[i] = true;
  }
  // Dropped before a wait for an earlier program.
  leaves_.clear();
  hold_.reset();
  graph_.reset();
  note_in_flight(device_, std::move(launched.completion), std::move(variant));
}

void Execution::fail(const std::exception_ptr& error, std::optional<size_t> culprit,
                     const std::string& name) {
  if (culprit && graph_ && !is_interrupted(error)) {
    try {
      compute_without(*culprit, name);
    } catch (...) {
      // Then these fail too, with the first error.
    }
  }
  roll_back(error);
}

void Execution::compute_without(size_t culprit, const std::string& name) {
  const std::vector<bool> lost = dependents(*graph_, culprit);
  std::vector<int32_t> kept;
  std::vector<GraphValue> inputs, outputs;
  for (uint32_t i = 0; i < graph_->inputs.size(); ++i) {
    inputs.push_back({-1, i});
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const GraphValue output = graph_->outputs[i];
    if (output.producer < 0 || !lost[static_cast<size_t>(output.producer)]) {
      kept.push_back(static_cast<int32_t>(i));
      outputs.push_back(output);
    }
  }
  if (kept.empty() || graph_->partitions > 1) {
    return;
  }
  Graph graph = extract(*graph_, inputs, outputs);
  finish_graph(graph);
  run_part(std::move(graph), leaves_, kept, name);
}

bool Execution::can_run_again() {
  return graph_ && leaves_ == graph_->inputs &&
         std::none_of(leaves_.begin(), leaves_.end(),
                      [](const NodePtr& leaf) { return device_data(*leaf)->is_lost(); });
}

Value Execution::recorded(size_t output) const {
  const GraphValue value = graph_->outputs[output];
  return value.producer < 0 ? Value{graph_->inputs[value.index], 0}
                            : Value{graph_->nodes[value.producer].node, value.index};
}

// After an interrupt, all is pending as before. After an error, storages whose former value still
// exists return to it, as if the step had not been recorded; what was new in the step carries the
// error to whoever reads it.
void Execution::roll_back(const std::exception_ptr& error) {
  const std::exception_ptr kept = lasting(error);
  const bool again = is_interrupted(error) && can_run_again();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!fulfilled_[i]) {
      outputs_[i]->fail(kept);
    }
  }
  {
    TraceLock lock;
    for (Assignment& assigned : assignments_) {
      const bool untouched = assigned.state->value().node == outputs_[assigned.output];
      if (fulfilled_[assigned.output] || !untouched) {
        continue;
      }
      if (again) {
        assigned.state->set_value(recorded(assigned.output));
        assigned.state->committed = assigned.before;
      } else if (assigned.before && !device_data(*assigned.before)->is_lost()) {
        assigned.state->set_value({assigned.before, 0});
      }
    }
  }
  graph_.reset();
  leaves_.clear();
  hold_.reset();
}

}  // namespace torch_xla
