// SPMD mode: what users say of how the values of storages lie on the devices, and what they ask.
// Their word is kept with the storage (StorageState::annotation); execution/placement.h acts on
// it. Any thread, without locks.
#pragma once

#include "ir/graph.h"
#include "trace/tensor.h"

#include <optional>
#include <string>

namespace torch_xla {

// The tensor's values lie on the devices as said, from now on and after each update.
enum class Remark : uint8_t {
  Refused,  // of a tensor with data, that is marked otherwise: moving it is asked for in other ways
  Allowed,
};
void mark_sharding(const at::Tensor& tensor, ShardingPtr sharding, Remark remark);
// Forgets the mark; the value is replicated.
void clear_sharding(const at::Tensor& tensor);
// The gradient of a marked tensor lies like the tensor, unless it is marked itself.
void mark_gradient(const at::Tensor& tensor);
// And so does a copy, unless it is marked itself.
void mark_copy(const at::Tensor& copy, const at::Tensor& source);
// How the tensor lies on the devices, as far as that is decided; null otherwise.
ShardingPtr sharding_of(const at::Tensor& tensor);

// What one device holds of a tensor.
struct Shard {
  at::Tensor data;  // on the CPU, with padding
  Box box;
  int64_t device = 0;
  int64_t replica = 0;
};
std::vector<Shard> local_shards(const at::Tensor& tensor);
// Replaces what each device holds, in the order of local_shards(), by tensors of the same sizes.
void load_local_shards(const at::Tensor& tensor, const std::vector<at::Tensor>& pieces);

// A manually partitioned region: a tensor of each device's piece, and back.
at::Tensor full_to_shard(const at::Tensor& tensor, ShardingPtr sharding);
at::Tensor shard_to_full(const at::Tensor& tensor, ShardingPtr sharding, c10::IntArrayRef sizes);

}  // namespace torch_xla
