// What a storage of the xla device holds: a value. Recorded but not yet computed values are
// *pending*; sync (execution/sync.h) turns them into Data leaves.
//
// Threads: every member below, and Node::visit, is guarded by the trace lock. It is held for the
// recording of one operation or the collection of one graph, never while compiling, executing,
// waiting, or acquiring Python's GIL.
#pragma once

#include "ir/node.h"
#include "pjrt/client.h"
#include "sharding/sharding.h"

#include <c10/core/Storage.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_set>

namespace torch_xla {

class TraceLock {
 public:
  TraceLock() : lock_(mutex()) {}
  void unlock() { lock_.unlock(); }
  void lock() { lock_.lock(); }

 private:
  static std::mutex& mutex();
  std::unique_lock<std::mutex> lock_;
};

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

  // Blocks until launched; throws what went wrong with the program that makes it.
  pjrt::BufferPtr buffer();
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
  c10::Storage host();
  // A program reads the bytes until `done`.
  void read_until(pjrt::CompletionPtr done);
  // Blocks until no program reads the bytes, so that the caller may change them.
  void begin_write();

  const TensorType type;
  const int device;
  // Storages whose current value this is and operations that use the bytes (guarded by the trace
  // lock): none left means that a program may reuse the buffer.
  int holders = 0;
  // Of these, operations that use the bytes; each has a reference to the node, too.
  int pins = 0;

 private:
  // Whether its bytes are memory of the host's that no buffer counts.
  void count_host(bool counted);
  void wait_for_value(std::unique_lock<std::mutex>& lock);
  pjrt::BufferPtr wait_for_buffer(std::unique_lock<std::mutex>& lock);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> settled_{false};  // `buffer_` is there to stay: no need to lock
  pjrt::BufferPtr buffer_;
  std::exception_ptr error_;
  c10::Storage host_;       // empty until asked for
  bool owns_host_ = false;  // false: it is `buffer_`'s memory
  bool host_is_counted_ = false;
  ShardingPtr host_sharding_ = Sharding::replicated();  // for memory not yet sent
  bool sharding_is_free_ = false;
  std::vector<pjrt::CompletionPtr> readers_;
};

using DeviceDataPtr = c10::intrusive_ptr<DeviceData>;

DeviceData* device_data(const Node& node);  // null unless node is a Data leaf

struct StorageState;

// What storages made during a trace belong to (trace/scope.h).
struct StateOwner {
  std::unordered_set<StorageState*> own;  // still alive; guarded by the trace lock
};

// Owned by the storage's DataPtr, and for a moment by a sync; dropped without the trace lock held.
struct StorageState : std::enable_shared_from_this<StorageState> {
  explicit StorageState(int device, std::shared_ptr<StateOwner> scope = nullptr);
  ~StorageState();
  StorageState(const StorageState&) = delete;
  StorageState& operator=(const StorageState&) = delete;

  const int device;
  const std::shared_ptr<StateOwner> scope;  // the trace it was made in, or null

  const Value& value() const { return value_; }  // empty: never written
  // Replaces the value; links or unlinks the pending list.
  void set_value(Value value);
  bool pending() const { return value_ && value_.node->kind == Node::Kind::Op; }

  // How the user wants values of this type to lie on the devices (spmd/marks.h), or null.
  struct Annotation {
    ShardingPtr sharding;
    TensorType type;
  };
  std::unique_ptr<const Annotation> annotation;

  // The last materialised value before the pending one: where a failed program returns to.
  NodePtr committed;

  // The reference that the storage's DataPtr is, here so that it needs no memory of its own.
  std::shared_ptr<StorageState> storage_reference;

  // For storages that share the state, and storages that are gone. Without any left nothing can
  // read it any more, even if a sync of another thread still holds it. Not guarded.
  void count_storage(int change) { storages_ += change; }

  // Scratch of whoever walks over storages with the trace lock held: valid while `epoch` is its
  // own.
  struct Visit {
    uint64_t epoch = 0;
    uint32_t index = 0;
  };
  Visit visit;

 private:
  friend class PendingList;
  void hold(int change);
  Value value_;
  StorageState* previous_ = nullptr;
  StorageState* next_ = nullptr;
  bool linked_ = false;
  std::atomic<int> storages_{1};  // or what it is for instead
};
using StatePtr = std::shared_ptr<StorageState>;

// Storages with pending values, per device, oldest assignment first.
std::vector<StatePtr> pending_states(int device);
size_t pending_count(int device);

// Nodes recorded since the last sync of everything pending. Lock-free.
int64_t count_recorded_node();
void reset_recorded_nodes();

}  // namespace torch_xla
