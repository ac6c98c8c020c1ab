#include "execution/placement.h"

#include "pjrt/sharded_buffer.h"
#include "sharding/spmd.h"
#include "values/internal_ops.h"

namespace torch_xla {

namespace {

std::recursive_mutex& launch_mutex() {
  static auto* instance = new std::recursive_mutex;
  return *instance;
}

}  // namespace

LaunchTurn::LaunchTurn() {
  if (spmd_enabled()) {
    lock_ = std::unique_lock(launch_mutex());
  }
}

void keep_sharding(const at::Tensor& tensor, DeviceData& data) {
  if (!spmd_enabled()) {
    return;
  }
  LaunchTurn turn;
  TraceLock lock;
  StorageState& state = *state_of(tensor);
  if (state.annotation && state.annotation->type == data.type) {
    data.reshard(state.annotation->sharding);
    return;
  }
  DeviceData* former = state.value() ? device_data(*state.value().node) : nullptr;
  if (former != nullptr && former->type == data.type) {
    data.reshard(former->sharding());
  }
}

namespace {

// How an output must lie, or null: as its storage is marked, or as the operation that makes it
// says, or as what it replaces. A placement the compiler chose is kept so that the next step is
// the same program, unless it is "everywhere", its choice for what depends on nothing sharded.
ShardingPtr wanted_sharding(const StorageState& state, const Value& value, const Node* former)
    REQUIRES(trace_mutex) {
  if (state.annotation && state.annotation->type == value.type()) {
    return state.annotation->sharding;
  }
  if (ShardingPtr marked = sharding_of_node(value)) {
    return marked;
  }
  DeviceData* data = former != nullptr ? device_data(*former) : nullptr;
  if (data == nullptr || data->type != value.type()) {
    return nullptr;
  }
  ShardingPtr sharding = data->sharding();
  return data->sharding_is_free() && sharding->is_replicated() ? nullptr : sharding;
}

}  // namespace

void place_graph(Graph& graph, const std::vector<StorageState*>& holders,
                 const std::vector<const Node*>& former) {
  graph.partitions = pjrt::partitions();
  if (graph.partitions == 1) {
    return;
  }
  for (const NodePtr& input : graph.inputs) {
    graph.input_shardings.push_back(device_data(*input)->sharding());
  }
  for (size_t i = 0; i < holders.size(); ++i) {
    graph.output_shardings.push_back(wanted_sharding(*holders[i], holders[i]->value(), former[i]));
  }
}

}  // namespace torch_xla
