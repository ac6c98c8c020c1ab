// SPMD mode: how the inputs and outputs of a program lie on the devices. A user's word is kept with
// the storage (StorageState::annotation); a leaf knows how it lies; what nobody decided the
// compiler decides. Any thread, without locks unless said otherwise.
#pragma once

#include "ir/graph.h"
#include "trace/tensor.h"

namespace torch_xla {

// Programs over several devices are launched one after the other: devices that met them in
// different orders would wait for each other, and each program must know how its inputs lie.
// Taken before the trace lock; costs nothing outside of SPMD mode.
class LaunchTurn {
 public:
  LaunchTurn();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// A new value for the whole storage of `tensor` lies as the one before.
void keep_sharding(const at::Tensor& tensor, DeviceData& data);

// With a launch turn held: sets the graph's shardings. `holders`, parallel to its outputs: a
// storage that holds each. `former`: the leaf it held before, or null.
void place_graph(Graph& graph, const std::vector<StorageState*>& holders,
                 const std::vector<const Node*>& former) REQUIRES(trace_mutex);

}  // namespace torch_xla
