// What a storage of the xla device holds: a value. Recorded but not yet computed values are
// *pending*; sync (execution/sync.h) turns them into Data leaves.
// The trace lock guards them (base/trace_lock.h); a leaf guards what it holds itself.
#pragma once

#include "base/mutex.h"
#include "ir/node.h"
#include "pjrt/client.h"
#include "sharding/sharding.h"
#include "values/host_value.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <atomic>

#include <exception>
#include <memory>
#include <unordered_set>

namespace torch_xla {

// A buffer on a device, there now or promised by a program being compiled or launched, or memory
// of the host that becomes a buffer, without a copy, when a program needs one.
class DeviceData : public Node {
 public:
  DeviceData(TensorType type, int device);
  DeviceData(pjrt::BufferPtr buffer);
  // `host`: from PyTorch's CPU allocator. `sharding`: where its bytes go in SPMD mode.
  DeviceData(TensorType type, int device, c10::Storage host,
             ShardingPtr sharding = Sharding::replicated());
  ~DeviceData() override;
  POOLED(DeviceData)

  // Blocks until launched; throws what went wrong with the program that makes it.
  pjrt::BufferPtr buffer() EXCLUDES(trace_mutex);
  // The same without a reference to it, if it will be there as long as this; else null.
  pjrt::Buffer* settled_buffer() const;
  void fulfil(pjrt::BufferPtr buffer, bool sharding_is_free = false);
  void fulfil(c10::Storage host);
  void fail(std::exception_ptr error);

  // Whether there is no value any more, or never will be: it was donated, or what makes it failed.
  // Does not block.
  bool is_lost();

  // In SPMD mode: how the value lies on the devices.
  ShardingPtr sharding();
  // Nobody asked for it: the compiler found it best when the value was computed.
  bool sharding_is_free();
  // Changes it, if the bytes have not been sent yet.
  bool reshard(ShardingPtr sharding);

  // Only where the device's memory is the host's, or a value that came from the host.
  // The bytes in place; blocks until computed.
  c10::Storage host() EXCLUDES(trace_mutex);
  // Empty where this would have to wait.
  c10::Storage host_if_there();
  // If they are no buffer's, they are taken for something else, and the value is lost.
  void give_up_host() EXCLUDES(trace_mutex);
  // False where something else refers to memory of the host's that is the value: it must not be
  // donated to a program. Blocks until computed.
  bool has_own_bytes() EXCLUDES(trace_mutex);
  // Lets go of the bytes, for an owner of them who needs no node; false if anything but plain
  // memory of this value's was ever made of them.
  bool let_go_of_host();
  // A program reads the bytes until `done`.
  void read_until(pjrt::CompletionPtr done);
  // Blocks until no program reads the bytes, so that the caller may change them.
  void begin_write() EXCLUDES(trace_mutex);

  const TensorType type;
  const int device;
  // Storages whose current value this is and operations that use the bytes: none left means that a
  // program may reuse the buffer.
  int holders GUARDED_BY(trace_mutex) = 0;
  // Of these, operations that use the bytes; each has a reference to the node, too.
  int pins GUARDED_BY(trace_mutex) = 0;
  // A CPU tensor over `host()`, made by the last operation of eager mode for the next one: whoever
  // uses it takes it out.
  at::Tensor kept GUARDED_BY(trace_mutex);

 private:
  bool is_donated() const REQUIRES(mutex_);
  void drop_kept() EXCLUDES(trace_mutex);
  // Whether its bytes are memory of the host's that no buffer counts.
  void count_host(bool counted) REQUIRES(mutex_);
  const pjrt::BufferPtr* settled() const;
  void wait_for_value(MutexLock& lock) REQUIRES(mutex_);
  pjrt::BufferPtr wait_for_buffer(MutexLock& lock) REQUIRES(mutex_);
  Mutex mutex_;
  Condition changed_;
  std::atomic<bool> settled_{false};  // `buffer_` is there to stay: no need to lock
  pjrt::BufferPtr buffer_ GUARDED_BY(mutex_);
  std::exception_ptr error_ GUARDED_BY(mutex_);
  c10::Storage host_ GUARDED_BY(mutex_);       // empty until asked for
  bool owns_host_ GUARDED_BY(mutex_) = false;  // false: it is `buffer_`'s memory
  bool host_is_counted_ GUARDED_BY(mutex_) = false;
  ShardingPtr host_sharding_ GUARDED_BY(mutex_) =
      Sharding::replicated();  // for memory not yet sent
  bool sharding_is_free_ GUARDED_BY(mutex_) = false;
  std::vector<pjrt::CompletionPtr> readers_ GUARDED_BY(mutex_);
};

using DeviceDataPtr = c10::intrusive_ptr<DeviceData>;

DeviceData* device_data(const Node& node);  // null unless node is a Data leaf

struct StorageState;

// What storages made during a trace belong to (trace/scope.h).
struct StateOwner {
  std::unordered_set<StorageState*> own GUARDED_BY(trace_mutex);  // still alive
};

// Owned by the storage's DataPtr, and for a moment by a sync, which may be the last to drop it.
struct StorageState : std::enable_shared_from_this<StorageState> {
  // `value`: none, or a leaf.
  explicit StorageState(int device, std::shared_ptr<StateOwner> scope = nullptr, Value value = {});
  // `host`: plain memory of PyTorch's allocator that nobody else sees.
  StorageState(int device, at::Tensor host);
  ~StorageState();
  StorageState(const StorageState&) = delete;
  StorageState& operator=(const StorageState&) = delete;

  const int device;
  const std::shared_ptr<StateOwner> scope;  // the trace it was made in, or null

  const Value& value() const REQUIRES(trace_mutex) {  // empty: never written
    if (host.is_there()) {
      make_node_of_host();
    }
    return value_;
  }
  // Replaces the value; links or unlinks the pending list (values/pending.h).
  void set_value(Value value) REQUIRES(trace_mutex);
  bool pending() const REQUIRES(trace_mutex) {
    return value_ && value_.node->kind == Node::Kind::Op;
  }

  // The value, while there is no node of it.
  mutable HostValue host;
  // Ends what host.borrow() began. A tensor that the operation left with somebody else becomes a
  // node's memory.
  void give_back(at::Tensor tensor) EXCLUDES(trace_mutex);
  // Replaces the node by the same value without one.
  void put_on_host(at::Tensor tensor) REQUIRES(trace_mutex);

  // How the user wants values of this type to lie on the devices (spmd/marks.h), or null.
  struct Annotation {
    ShardingPtr sharding;
    TensorType type;
  };
  std::unique_ptr<const Annotation> annotation GUARDED_BY(trace_mutex);

  // The last materialised value before the pending one: where a failed program returns to.
  NodePtr committed GUARDED_BY(trace_mutex);

  // The reference that the storage's DataPtr is, here so that it needs no memory of its own.
  std::shared_ptr<StorageState> storage_reference;

  // For storages that share the state, and storages that are gone. Without any left nothing can
  // read it any more, even if a sync of another thread still holds it.
  void count_storage(int change) { storages_ += change; }

  // Scratch of whoever walks over storages: valid while `epoch` is its own.
  struct Visit {
    uint64_t epoch = 0;
    uint32_t index = 0;
  };
  Visit visit GUARDED_BY(trace_mutex);

 private:
  friend class PendingList;
  void hold(int change) REQUIRES(trace_mutex);
  void lend(at::Tensor tensor);
  at::Tensor end_loan() const;
  int64_t lent_nbytes_ = 0;  // of `host`
  void make_node_of_host() const REQUIRES(trace_mutex);
  mutable Value value_ GUARDED_BY(trace_mutex);
  StorageState* previous_ GUARDED_BY(trace_mutex) = nullptr;
  StorageState* next_ GUARDED_BY(trace_mutex) = nullptr;
  bool linked_ GUARDED_BY(trace_mutex) = false;
  uint32_t thread_ GUARDED_BY(trace_mutex) = 0;  // whose list it is in (values/pending.h)
  std::atomic<int> storages_{1};                 // or what it is for instead
};
using StatePtr = std::shared_ptr<StorageState>;

}  // namespace torch_xla
