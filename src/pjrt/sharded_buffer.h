// One logical value as several buffers, one on each device of this process. Thread-safe.
#pragma once

#include "pjrt/client.h"

namespace torch_xla::pjrt {

class ShardedBuffer final : public Buffer {
 public:
  // `pieces[i]`: what device i of this process holds, of the sizes sharding->shard_dims(type.dims).
  ShardedBuffer(TensorType type, ShardingPtr sharding, std::vector<BufferPtr> pieces);
  const TensorType& type() const override { return type_; }
  ShardingPtr sharding() const override { return sharding_; }
  int device() const override { return 0; }                   // the one that users see
  int64_t nbytes() const override { return type_.nbytes(); }  // of the value, not of its copies
  void await_ready() override;
  bool is_ready() override;
  void on_ready(std::function<void()> callback) override;
  // Gathers: reads one copy of each tile.
  void copy_to_host(void* destination, size_t nbytes) override;
  // Only of a replicated value: the first copy's.
  void* host_pointer() override;
  BufferPtr copy_to_device(int device) override;
  bool is_deleted() override { return pieces_.front()->is_deleted(); }

  const std::vector<BufferPtr>& pieces() const { return pieces_; }

 private:
  TensorType type_;
  ShardingPtr sharding_;
  std::vector<BufferPtr> pieces_;
};

// How many devices a program runs on: 1, or in SPMD mode all, of all processes.
int partitions();

// Host memory to all devices: to each what it holds, without a copy on the host where the piece
// lies there in one run. Null `keep_alive`: copied before this returns.
BufferPtr scatter_from_host(Client& client, const void* data, const TensorType& type,
                            ShardingPtr sharding, const std::shared_ptr<void>& keep_alive);
// A value on one device, as copies on all of them.
BufferPtr replicate(Client& client, const BufferPtr& buffer);

}  // namespace torch_xla::pjrt
