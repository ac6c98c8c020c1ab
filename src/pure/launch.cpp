// A call as a program of its own: what it reads is there, so that nothing needs to be recorded, and
// the graph is known from the last time.
#include "execution/launcher.h"
#include "execution/settings.h"
#include "execution/sync.h"
#include "graph/collect.h"
#include "pure/entry.h"
#include "pure/record.h"
#include "sharding/spmd.h"
#include "tiers/reading_habit.h"
#include "trace/region.h"
#include "values/pending.h"

#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <optional>

namespace torch_xla {

// What a launch knows before it looks at the values.
struct LaunchPlan {
  Graph graph;                             // one call, over Parameters
  std::vector<bool> donated;               // per operand
  std::vector<uint32_t> output_of_result;  // graph output, per storage of the results
  std::vector<uint32_t> output_of_input;   // the same, per operand that is written
  std::vector<int32_t> renewable;          // per gradient write: its storage, if no other result's
};

namespace {

class Launch {
 public:
  Launch(const PureEntry& entry, const Tensors& arguments, const CallNumbers& numbers)
      : entry_(entry), arguments_(arguments), numbers_(numbers) {}

  // False: something is missing, and the call must be recorded.
  bool prepare() {
    for (const PureEntry::ResultStorage& storage : entry_.storages) {
      check_allocation(storage.nbytes, entry_.device);
    }
    operands_.reserve(entry_.inputs.size());
    for (const PureEntry::Input& input : entry_.inputs) {
      const StatePtr& state = operand_state(entry_, input, arguments_);
      operands_.push_back(state.get());
      if (input.generator.defined()) {
        kept_.push_back(state);
      }
    }
    TraceLock lock;
    if (is_anything_taken_here(entry_.device) || !take_leaves()) {
      return false;
    }
    choose_plan();
    promise_writes();
    renew_gradients();
    return true;
  }

  Tensors run() {
    former_gradients_.clear();  // their memory is for the program
    const ActiveRegion* region = current_region();
    execution_->run(region != nullptr ? region->function->name : entry_.name);
    bump_versions(entry_, arguments_);
    Tensors results = make_results(entry_, result_storages(), arguments_);
    write_gradients(entry_, arguments_, results);
    return results;
  }

 private:
  // Values that are there, or promised by a program; false if one is pending.
  bool take_leaves() REQUIRES(trace_mutex) {
    leaves_.reserve(operands_.size() + entry_.constants.size());
    for (StorageState* state : operands_) {
      if (state->scope || !state->value() || state->pending()) {
        return false;
      }
      leaves_.push_back(state->value().node);
    }
    for (const StatePtr& constant : entry_.constants) {
      if (!constant->value() || constant->pending()) {
        return false;
      }
      leaves_.push_back(constant->value().node);
    }
    return true;
  }

  // A written storage's former buffer, which nothing else holds, nor what other threads record.
  std::vector<bool> donatable() const REQUIRES(trace_mutex) {
    const bool alone = pending_count(entry_.device) == 0;
    constexpr size_t kOwnReferences = 2;  // the storage's and this one
    std::vector<bool> result(leaves_.size(), false);
    for (size_t i = 0; i < entry_.inputs.size(); ++i) {
      const int32_t output = entry_.inputs[i].written;
      const DeviceData& data = *device_data(*leaves_[i]);
      result[i] = output >= 0 && data.holders == 1 && data.type.numel() > 0 &&
                  (alone || leaves_[i].use_count() == kOwnReferences) &&
                  data.type == entry_.forward->outputs[output].frame;
    }
    return result;
  }

  void choose_plan() REQUIRES(trace_mutex) {
    const auto options = current_options();
    std::vector<bool> donated = donatable();
    if (!entry_.plan || entry_.plan->donated != donated ||
        entry_.plan->graph.xla_options != options || entry_.plan->graph.precision != precision()) {
      entry_.plan = make_plan(std::move(donated), options);
    }
    plan_ = with_numbers(entry_.plan);
  }

  // A plan that another launch is using stays as it is.
  std::shared_ptr<const LaunchPlan> with_numbers(std::shared_ptr<LaunchPlan>& plan) const
      REQUIRES(trace_mutex) {
    const std::vector<Number>& planned = plan->graph.numbers;
    if (!std::equal(planned.begin(), planned.end(), numbers_.begin(), numbers_.end(),
                    [](const Number& x, double y) { return same_number(x, Number::of(y)); })) {
      if (plan.use_count() > 1) {
        plan = std::make_shared<LaunchPlan>(*plan);
      }
      plan->graph.numbers.resize(numbers_.size());
      std::transform(numbers_.begin(), numbers_.end(), plan->graph.numbers.begin(),
                     [](double value) { return Number::of(value); });
    }
    return plan;
  }

  std::shared_ptr<LaunchPlan> make_plan(std::vector<bool> donated,
                                        const std::map<std::string, std::string>& options) const
      REQUIRES(trace_mutex) {
    auto plan = std::make_shared<LaunchPlan>();
    NodePtr call = make_call_node(entry_.forward, numbers_);
    for (size_t i = 0; i < leaves_.size(); ++i) {
      call->operands.push_back({make_parameter_node(leaves_[i]->type(0)), 0});
    }
    std::vector<Value> outputs;
    std::vector<int32_t> donors;
    ska::flat_hash_map<uint32_t, uint32_t> known;
    auto add = [&](uint32_t output, int32_t donor) {
      auto [found, inserted] = known.emplace(output, static_cast<uint32_t>(outputs.size()));
      if (inserted) {
        outputs.push_back({call, output});
        donors.push_back(donor);
      }
      return found->second;
    };
    for (const PureEntry::ResultStorage& storage : entry_.storages) {
      plan->output_of_result.push_back(add(storage.output, -1));
    }
    plan->output_of_input.resize(entry_.inputs.size());
    for (size_t i = 0; i < entry_.inputs.size(); ++i) {
      if (const int32_t output = entry_.inputs[i].written; output >= 0) {
        const int32_t donor = donated[i] ? static_cast<int32_t>(i) : -1;
        plan->output_of_input[i] = add(static_cast<uint32_t>(output), donor);
      }
    }
    plan->renewable = renewable_storages();
    plan->graph = collect_graph(outputs);
    plan->graph.donated = std::move(donors);
    plan->graph.xla_options = options;
    plan->graph.precision = precision();
    finish_graph(plan->graph);
    plan->donated = donated_inputs(plan->graph);
    return plan;
  }

  // Other threads see the new values from now on, and wait for them.
  void promise_writes() REQUIRES(trace_mutex) {
    std::shared_ptr<const Graph> graph(plan_, &plan_->graph);
    execution_.emplace(std::move(graph), std::move(leaves_), plan_->donated, entry_.device);
    execution_->reserve_assignments(operands_.size());
    for (size_t i = 0; i < entry_.inputs.size(); ++i) {
      if (entry_.inputs[i].written >= 0) {
        execution_->assign(operands_[i]->shared_from_this(), plan_->output_of_input[i],
                           execution_->leaf(i));
      }
    }
  }

  // Per gradient write: the storage of its result, if that is all of it and no other lies there.
  std::vector<int32_t> renewable_storages() const {
    std::vector<int32_t> results_on(entry_.storages.size(), 0);
    for (const PureEntry::Result& result : entry_.results) {
      if (result.kind == PureEntry::Result::Kind::New) {
        ++results_on[result.index];
      }
    }
    std::vector<int32_t> storages;
    for (const PureEntry::GradientWrite& write : entry_.gradient_writes) {
      storages.push_back(-1);
      if (write.result >= 0) {
        const PureEntry::Result& result = entry_.results[write.result];
        const bool plain = result.kind == PureEntry::Result::Kind::New && result.offset == 0 &&
                           !result.leaf && !result.conj && !result.neg;
        if (plain && results_on[result.index] == 1) {
          storages.back() = result.index;
        }
      }
    }
    return storages;
  }

  // A gradient that only its leaf knows gets the new value, instead of being made anew.
  void renew_gradients() REQUIRES(trace_mutex) {
    renewed_.assign(entry_.storages.size(), false);
    for (size_t i = 0; i < plan_->renewable.size(); ++i) {
      const int32_t storage = plan_->renewable[i];
      const PureEntry::GradientWrite& write = entry_.gradient_writes[i];
      const at::Tensor& gradient = write.leaf.find(arguments_);
      if (storage < 0 || !is_like(gradient, write.result)) {
        continue;
      }
      StorageState& state = *state_of(gradient);
      former_gradients_.push_back(state.value().node);
      state.set_value({execution_->output(plan_->output_of_result[storage]), 0});
      renewed_[storage] = true;
    }
  }

  bool is_like(const at::Tensor& gradient, int32_t index) const {
    if (!gradient.defined() || gradient.use_count() > 1 || gradient.weak_use_count() > 1 ||
        gradient.storage().use_count() > 1 || state_of(gradient).use_count() > 1) {
      return false;
    }
    c10::TensorImpl& impl = *gradient.unsafeGetTensorImpl();
    const PureEntry::Result& result = entry_.results[index];
    return impl.pyobj_slot()->load_pyobj() == nullptr && impl.autograd_meta() == nullptr &&
           !impl.is_inference() && gradient.scalar_type() == result.dtype &&
           impl.storage_offset() == 0 && !impl.is_conj() && !impl.is_neg() &&
           impl.sizes() == c10::IntArrayRef(result.sizes) &&
           impl.strides() == c10::IntArrayRef(result.strides) &&
           static_cast<int64_t>(impl.storage().nbytes()) == entry_.storages[result.index].nbytes;
  }

  std::vector<c10::Storage> result_storages() const {
    std::vector<c10::Storage> storages(entry_.storages.size());
    for (size_t i = 0; i < storages.size(); ++i) {
      if (!renewed_[i]) {
        storages[i] = make_storage(entry_.storages[i].nbytes, entry_.device);
      }
    }
    TraceLock lock;
    for (size_t i = 0; i < storages.size(); ++i) {
      if (!renewed_[i]) {
        state_of(storages[i])->set_value({execution_->output(plan_->output_of_result[i]), 0});
      }
    }
    return storages;
  }

  const PureEntry& entry_;
  const Tensors& arguments_;
  const CallNumbers& numbers_;
  std::vector<StorageState*> operands_;
  std::vector<StatePtr> kept_;  // operands that nobody else may keep
  std::vector<NodePtr> leaves_;
  std::shared_ptr<const LaunchPlan> plan_;
  std::optional<Execution> execution_;
  std::vector<bool> renewed_;              // per storage of the results
  std::vector<NodePtr> former_gradients_;  // dropped without locks
};

}  // namespace

std::optional<Tensors> launch_entry(const EntryPtr& entry, const Tensors& arguments,
                                    const CallNumbers& numbers, Pending pending) {
  if (entry->gradient || entry->transient || !entry->marked.empty() || spmd_enabled() ||
      current_scope() != nullptr) {
    return std::nullopt;
  }
  const bool writes = std::any_of(entry->inputs.begin(), entry->inputs.end(),
                                  [](const auto& input) { return input.written >= 0; });
  if (entry->storages.empty() && !writes) {
    Tensors results = make_results(*entry, {}, arguments);  // nothing to compute
    write_gradients(*entry, arguments, results);
    return results;
  }
  constexpr int kTries = 3;  // other threads may write what it reads meanwhile
  for (int i = 0; i < kTries; ++i) {
    Launch launch(*entry, arguments, numbers);
    if (launch.prepare()) {
      tiers::ReadingHabit::of_this_thread().ran_program();
      return launch.run();
    }
    if (pending == Pending::Declines) {
      return std::nullopt;
    }
    sync_device(entry->device, false);
  }
  return std::nullopt;
}

}  // namespace torch_xla
