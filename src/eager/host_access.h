// The memory of xla tensors as CPU tensors, while one operation runs on it. One thread; other
// threads may use the same tensors at the same time, as they may on the CPU.
#pragma once

#include "trace/tensor.h"

#include <unordered_map>

namespace torch_xla::eager {

class HostAccess {
 public:
  HostAccess() = default;
  ~HostAccess() { close(); }
  HostAccess(const HostAccess&) = delete;
  HostAccess& operator=(const HostAccess&) = delete;

  // First all tensors are added, which the caller keeps...
  void add(const at::Tensor& tensor, bool write);
  // ...then their values are made to be in memory: what is pending runs, and bytes that are to be
  // changed while another value shares them are copied...
  void open();
  // ...then they can be viewed, each by its place in the order in which they were added.
  at::Tensor& view(size_t place);

  // The xla tensor that has the memory and the sizes of a CPU kernel's result. The others that the
  // same call returned are there until the last is adopted.
  at::Tensor adopt(at::Tensor result, int device);
  // After the operation: tensors that it wrote to take over sizes that it gave to their views.
  void update_written();

 private:
  struct Entry {
    c10::StorageImpl* storage = nullptr;  // of the xla tensors
    StorageState* state = nullptr;
    bool write = false;
    bool writes_bytes = false;  // through a tensor that is none of bools
    bool shared = false;
    NodePtr leaf;       // pinned if set
    at::Tensor kept;    // a view of an earlier operation
    c10::Storage host;  // empty where `kept` was there
    const c10::StorageImpl* memory = nullptr;
  };
  struct Use {
    const at::Tensor* tensor;
    size_t entry;
    bool write;
    at::Tensor view;  // on the host, once asked for
  };
  struct Adopted {
    const c10::StorageImpl* memory;
    c10::StorageImpl* storage;
  };

  size_t find(const c10::Storage& storage);
  bool pin_all(std::vector<StatePtr>& pending, std::vector<Entry*>& missing);
  // Hands back what was pinned and kept.
  void close();
  // What was added first: how memory that is not there yet is seen.
  const at::Tensor& first_of(const Entry& entry) const;
  void make(Entry& entry);
  // Gives the storage memory of its own; false if another thread gave it a new value meanwhile.
  bool replace(Entry& entry);
  bool open_memory(Entry& entry);
  void update(const Use& use);

  c10::SmallVector<Entry, 4> entries_;
  c10::SmallVector<Use, 4> uses_;
  std::unordered_map<StorageState*, size_t> index_;  // of entries; used when there are many
  c10::SmallVector<Adopted, 2> adopted_;
};

}  // namespace torch_xla::eager
