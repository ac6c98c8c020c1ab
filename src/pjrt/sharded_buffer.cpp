#include "pjrt/sharded_buffer.h"

#include "base/error.h"
#include "sharding/spmd.h"

#include <atomic>
#include <cstdlib>

namespace torch_xla::pjrt {

namespace {

TensorType piece_type(const TensorType& type, ShardingPtr sharding) {
  return {type.dtype, sharding->shard_dims(type.dims)};
}

std::shared_ptr<void> allocate(int64_t nbytes) {
  constexpr size_t kAlignment = 64;  // a plugin may use memory aligned so without a copy
  size_t rounded = (static_cast<size_t>(nbytes) + kAlignment) / kAlignment * kAlignment;
  return {std::aligned_alloc(kAlignment, rounded), &std::free};
}

}  // namespace

ShardedBuffer::ShardedBuffer(TensorType type, ShardingPtr sharding, std::vector<BufferPtr> pieces)
    : type_(std::move(type)), sharding_(sharding), pieces_(std::move(pieces)) {}

void ShardedBuffer::await_ready() {
  for (const BufferPtr& piece : pieces_) {
    piece->await_ready();
  }
}

bool ShardedBuffer::is_ready() {
  for (const BufferPtr& piece : pieces_) {
    if (!piece->is_ready()) {
      return false;
    }
  }
  return true;
}

void ShardedBuffer::on_ready(std::function<void()> callback) {
  auto left = std::make_shared<std::atomic<size_t>>(pieces_.size());
  auto shared = std::make_shared<std::function<void()>>(std::move(callback));
  for (const BufferPtr& piece : pieces_) {
    piece->on_ready([left, shared] {
      if (left->fetch_sub(1) == 1) {
        (*shared)();
      }
    });
  }
}

void ShardedBuffer::copy_to_host(void* destination, size_t nbytes) {
  if (nbytes != static_cast<size_t>(type_.nbytes())) {
    throw Error("a value of " + std::to_string(type_.nbytes()) + " bytes cannot be copied to " +
                std::to_string(nbytes) + " bytes of host memory");
  }
  if (!sharding_->is_tiled()) {
    pieces_.front()->copy_to_host(destination, nbytes);
    return;
  }
  if (sharding_->devices().size() > pieces_.size()) {
    throw Error("a value sharded as " + sharding_->text() +
                " lies on devices of several processes: read local_shards, or mark a copy as "
                "replicated");
  }
  for (const BufferPtr& pointer : pieces_) {
    Buffer& piece = *pointer;
    if (sharding_->replica_of(piece.partition()) != 0) {
      continue;
    }
    std::shared_ptr<void> staging;
    const void* bytes = piece.host_pointer();
    if (bytes == nullptr) {
      staging = allocate(piece.nbytes());
      piece.copy_to_host(staging.get(), static_cast<size_t>(piece.nbytes()));
      bytes = staging.get();
    }
    paste(destination, type_.dims, c10::elementSize(type_.dtype),
          sharding_->box_of(type_.dims, piece.partition()), bytes, piece.type().dims);
  }
}

void* ShardedBuffer::host_pointer() {
  return sharding_->is_tiled() ? nullptr : pieces_.front()->host_pointer();
}

BufferPtr ShardedBuffer::copy_to_device(int) {
  throw Error("a value sharded as " + sharding_->text() +
              " lies on all devices and cannot be moved to one: SPMD programs use xla:0 only");
}

int partitions() { return spmd_enabled() ? client().global_device_count() : 1; }

BufferPtr scatter_from_host(Client& client, const void* data, const TensorType& type,
                            ShardingPtr sharding, const std::shared_ptr<void>& keep_alive) {
  std::vector<BufferPtr> pieces;
  TensorType piece = piece_type(type, sharding);
  size_t element = c10::elementSize(type.dtype);
  for (int device = 0; device < client.device_count(); ++device) {
    Box box = sharding->box_of(type.dims, client.partition_of(device));
    bool whole = true;  // no padding
    for (size_t i = 0; i < piece.dims.size(); ++i) {
      whole = whole && box.stop[i] - box.start[i] == piece.dims[i];
    }
    int64_t offset = whole ? offset_of_run(type.dims, box) : -1;
    if (offset >= 0) {
      pieces.push_back(client.buffer_from_host(
          static_cast<const char*>(data) + static_cast<size_t>(offset) * element, piece, device,
          keep_alive));
      continue;
    }
    std::shared_ptr<void> copy = allocate(piece.nbytes());
    cut(data, type.dims, element, box, copy.get(), piece.dims);
    pieces.push_back(client.buffer_from_host(copy.get(), piece, device, copy));
  }
  return std::make_shared<ShardedBuffer>(type, sharding, std::move(pieces));
}

BufferPtr replicate(Client& client, const BufferPtr& buffer) {
  std::vector<BufferPtr> pieces;
  for (int device = 0; device < client.device_count(); ++device) {
    pieces.push_back(device == buffer->device() ? buffer : buffer->copy_to_device(device));
  }
  return std::make_shared<ShardedBuffer>(buffer->type(), Sharding::replicated(), std::move(pieces));
}

}  // namespace torch_xla::pjrt
