#include "values/state.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "host_ops/host_allocator.h"
#include "host_ops/kernel_call.h"
#include "pjrt/live_buffers.h"
#include "pjrt/sharded_buffer.h"
#include "values/frame.h"
#include "values/pending.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <memory>
#include <vector>

namespace torch_xla {

DeviceData::DeviceData(TensorType t, int device) : type(std::move(t)), device(device) {
  kind = Kind::Data;
  leaf_type = &type;
}

DeviceData::DeviceData(pjrt::BufferPtr buffer) : DeviceData(buffer->type(), buffer->device()) {
  buffer_ = std::move(buffer);
  settled_ = true;
}

DeviceData::DeviceData(TensorType t, int device, c10::Storage host, ShardingPtr sharding)
    : DeviceData(std::move(t), device) {
  host_ = std::move(host);
  owns_host_ = true;
  host_sharding_ = sharding;
  count_host(true);
}

DeviceData::~DeviceData() { count_host(false); }

void DeviceData::count_host(bool counted) {
  if (counted != host_is_counted_) {
    host_is_counted_ = counted;
    pjrt::device_memory(device).change(counted ? type.nbytes() : -type.nbytes());
  }
}

pjrt::BufferPtr DeviceData::wait_for_buffer(MutexLock& lock) {
  wait_for_value(lock);
  if (owns_host_ && buffer_ == nullptr) {
    auto keep_alive = std::make_shared<c10::Storage>(host_);
    count_host(false);
    if (pjrt::partitions() > 1) {
      buffer_ =
          pjrt::scatter_from_host(pjrt::client(), host_.data(), type, host_sharding_, keep_alive);
      host_ = c10::Storage();  // the pieces keep what they need of it
      owns_host_ = false;
    } else {
      buffer_ = pjrt::client().buffer_from_host(host_.data(), type, device, std::move(keep_alive),
                                                pjrt::Client::Bytes::Given);
    }
  }
  return buffer_;
}

void DeviceData::wait_for_value(MutexLock& lock) {
  while (buffer_ == nullptr && !owns_host_ && error_ == nullptr) {
    wait_or_interrupt(changed_, mutex_, lock);
  }
  if (error_) {
    std::rethrow_exception(error_);
  }
}

// Nobody changes what is there to stay.
const pjrt::BufferPtr* DeviceData::settled() const NOT_ANALYSED {
  bool settled = settled_.load(std::memory_order_acquire) && pjrt::partitions() == 1;
  return settled ? &buffer_ : nullptr;
}

pjrt::Buffer* DeviceData::settled_buffer() const {
  const pjrt::BufferPtr* there = settled();
  return there != nullptr ? there->get() : nullptr;
}

pjrt::BufferPtr DeviceData::buffer() {
  if (const pjrt::BufferPtr* there = settled()) {
    return *there;
  }
  const bool partitioned = pjrt::partitions() > 1;
  MutexLock lock(mutex_);
  wait_for_buffer(lock);
  if (partitioned && buffer_->sharding() == nullptr) {
    buffer_ = pjrt::replicate(pjrt::client(), buffer_);  // made before SPMD mode began
  }
  return buffer_;
}

bool DeviceData::let_go_of_host() {
  MutexLock lock(mutex_);
  if (!owns_host_ || buffer_ != nullptr || error_ != nullptr || !readers_.empty() ||
      host_sharding_ != Sharding::replicated() || !is_plain_host_memory(host_)) {
    return false;
  }
  count_host(false);
  return true;
}

bool DeviceData::is_lost() {
  MutexLock lock(mutex_);
  return error_ != nullptr || is_donated();
}

bool DeviceData::is_donated() const { return buffer_ != nullptr && buffer_->is_deleted(); }

bool DeviceData::has_own_bytes() {
  if (settled() != nullptr || !pjrt::client().host_memory()) {
    return true;
  }
  drop_kept();
  MutexLock lock(mutex_);
  wait_for_value(lock);
  const size_t known = buffer_ == nullptr ? 1 : 2;  // this, and the buffer made of them
  return !owns_host_ || (is_plain_host_memory(host_) && host_.use_count() <= known);
}

ShardingPtr DeviceData::sharding() {
  MutexLock lock(mutex_);
  while (buffer_ == nullptr && !owns_host_ && error_ == nullptr) {
    wait_or_interrupt(changed_, mutex_, lock);
  }
  if (owns_host_ && buffer_ == nullptr) {
    return host_sharding_;
  }
  bool sharded = buffer_ != nullptr && buffer_->sharding() != nullptr;
  return sharded ? buffer_->sharding() : Sharding::replicated();
}

bool DeviceData::sharding_is_free() {
  MutexLock lock(mutex_);
  return sharding_is_free_;
}

bool DeviceData::reshard(ShardingPtr sharding) {
  MutexLock lock(mutex_);
  if (!owns_host_ || buffer_ != nullptr) {
    return false;
  }
  host_sharding_ = sharding;
  return true;
}

namespace {

// A copy of a value whose bytes lie in several places.
c10::Storage gathered(pjrt::Buffer& buffer) {
  auto nbytes = static_cast<size_t>(buffer.nbytes());
  c10::Storage copy = allocate_on_host(nbytes);
  buffer.copy_to_host(copy.mutable_data(), nbytes);
  return copy;
}

}  // namespace

c10::Storage DeviceData::host() {
  pjrt::BufferPtr buffer;
  {
    MutexLock lock(mutex_);
    wait_for_value(lock);
    if (host_ && !is_donated()) {
      return host_;
    }
    buffer = buffer_;
  }
  void* bytes = buffer->nbytes() > 0 ? buffer->host_pointer() : nullptr;
  if (bytes == nullptr && buffer->nbytes() > 0) {
    return gathered(*buffer);
  }
  auto* owner = new pjrt::BufferPtr(buffer);
  c10::DataPtr data(
      bytes, owner, [](void* context) { delete static_cast<pjrt::BufferPtr*>(context); },
      c10::Device(c10::kCPU));
  MutexLock lock(mutex_);
  if (!host_) {
    host_ = c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(buffer->nbytes()),
                         std::move(data), c10::GetCPUAllocator(), /*resizable=*/true);
  }
  return host_;
}

c10::Storage DeviceData::host_if_there() {
  {
    MutexLock lock(mutex_);
    if (owns_host_ && !is_donated()) {
      return host_;
    }
    if (buffer_ == nullptr || is_donated() || !buffer_->is_ready()) {
      return {};
    }
  }
  return host();
}

void DeviceData::read_until(pjrt::CompletionPtr done) {
  constexpr size_t kFew = 4;  // looking whether they are done costs more than keeping them
  MutexLock lock(mutex_);
  if (readers_.size() >= kFew) {
    std::erase_if(readers_, [](const auto& reader) { return reader->is_ready(); });
  }
  readers_.push_back(std::move(done));
}

void DeviceData::begin_write() {
  std::vector<pjrt::CompletionPtr> readers;
  pjrt::BufferPtr stale;
  {
    MutexLock lock(mutex_);
    readers.swap(readers_);
    if (owns_host_) {
      stale = std::move(buffer_);
      count_host(true);
    }
  }
  for (auto reader = readers.begin(); reader != readers.end(); ++reader) {
    try {
      (*reader)->await();
    } catch (const Error&) {
      // A program that failed has also stopped reading; its error belongs to its results.
    } catch (...) {
      MutexLock lock(mutex_);
      readers_.insert(readers_.end(), reader, readers.end());
      throw;
    }
  }
}

void DeviceData::drop_kept() {
  at::Tensor dropped;  // without the lock
  TraceLock lock;
  dropped = std::move(kept);
}

void DeviceData::give_up_host() {
  begin_write();
  drop_kept();
  c10::Storage given_up;  // dropped without the lock
  MutexLock lock(mutex_);
  if (owns_host_ && buffer_ == nullptr) {
    count_host(false);
    given_up = std::move(host_);
    owns_host_ = false;
    error_ = std::make_exception_ptr(
        Error("this value was donated to a computation that has run: it is gone"));
  }
}

void DeviceData::fulfil(pjrt::BufferPtr buffer, bool sharding_is_free) {
  {
    MutexLock lock(mutex_);
    sharding_is_free_ = sharding_is_free;
    buffer_ = std::move(buffer);
    settled_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void DeviceData::fulfil(c10::Storage host) {
  {
    MutexLock lock(mutex_);
    host_ = std::move(host);
    owns_host_ = true;
    count_host(true);
  }
  changed_.notify_all();
}

void DeviceData::fail(std::exception_ptr error) {
  {
    MutexLock lock(mutex_);
    error_ = std::move(error);
  }
  changed_.notify_all();
}

DeviceData* device_data(const Node& node) {
  return node.kind == Node::Kind::Data
             ? const_cast<DeviceData*>(static_cast<const DeviceData*>(&node))
             : nullptr;
}

StorageState::StorageState(int device, std::shared_ptr<StateOwner> owner, Value value)
    : device(device), scope(std::move(owner)), value_(std::move(value)) {
  hold(+1);
  if (scope) {
    TraceLock lock;
    scope->own.insert(this);
  }
}

StorageState::StorageState(int device, at::Tensor on_host) : device(device) {
  lend(std::move(on_host));
}

void StorageState::lend(at::Tensor tensor) {
  lent_nbytes_ = static_cast<int64_t>(tensor.storage().nbytes());
  pjrt::device_memory(device).change(lent_nbytes_);
  host.put(std::move(tensor));
}

at::Tensor StorageState::end_loan() const {
  at::Tensor tensor = host.take();
  if (tensor.defined()) {
    pjrt::device_memory(device).change(-lent_nbytes_);
  }
  return tensor;
}

StorageState::~StorageState() {
  if (end_loan().defined()) {
    return;  // without a scope or a node
  }
  TraceLockIfFree lock;
  if (scope) {
    scope->own.erase(this);
  }
  if (linked_) {
    unlink_pending(*this);
  }
  hold(-1);
  value_ = {};
}

void StorageState::hold(int change) {
  if (value_) {
    if (DeviceData* data = device_data(*value_.node)) {
      data->holders += change;
    }
  }
}

void StorageState::make_node_of_host() const {
  at::Tensor tensor = end_loan();
  const c10::Storage& memory = tensor.storage();
  auto leaf = c10::make_intrusive<DeviceData>(frame_of(tensor, memory.nbytes()), device, memory);
  leaf->holders = 1;
  if (tensor.use_count() == 1) {  // else an operation still has it
    leaf->kept = std::move(tensor);
  }
  value_ = {std::move(leaf), 0};
}

void StorageState::give_back(at::Tensor tensor) {
  if (tensor.use_count() != 1) {
    TraceLock lock;
    value();
  }
  host.give_back(std::move(tensor));
}

void StorageState::put_on_host(at::Tensor tensor) {
  set_value({});
  lend(std::move(tensor));
}

void StorageState::set_value(Value value) {
  if (host.is_there()) {
    make_node_of_host();
  }
  if (value_ && value_.node->kind == Node::Kind::Data && value &&
      value.node->kind == Node::Kind::Op) {
    committed = value_.node;
  } else if (!value || value.node->kind == Node::Kind::Data) {
    committed.reset();
  }
  hold(-1);
  value_ = std::move(value);
  hold(+1);
  if (linked_) {
    unlink_pending(*this);
  }
  if (pending() && !scope) {
    link_pending(*this);
  }
}

}  // namespace torch_xla
