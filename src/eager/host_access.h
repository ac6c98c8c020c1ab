// The memory of xla tensors as CPU tensors, while one operation runs on it. One thread; other
// threads may use the same tensors at the same time, as they may on the CPU.
#pragma once

#include "trace/tensor.h"

#include <unordered_map>

namespace torch_xla::eager {

class HostAccess {
 public:
  HostAccess() = default;
  ~HostAccess();
  HostAccess(const HostAccess&) = delete;
  HostAccess& operator=(const HostAccess&) = delete;

  // First all tensors are added...
  void add(const at::Tensor& tensor, bool write);
  // ...then their values are made to be in memory: what is pending runs, and bytes that are to be
  // changed while another value shares them are copied...
  void open();
  // ...then they can be viewed.
  at::Tensor view(const at::Tensor& tensor);

  // The xla tensor that has the memory and the sizes of a CPU kernel's result.
  at::Tensor adopt(const at::Tensor& result, int device);
  // After the operation wrote to `view`, a view of `tensor`: takes over a size given to it.
  void update(const at::Tensor& tensor, const at::Tensor& view);

 private:
  struct Entry {
    c10::Storage storage;  // of the xla tensor
    StorageState* state = nullptr;
    at::Tensor first;  // what was added first: the frame of memory not yet there
    bool write = false;
    bool writes_bytes = false;  // through a tensor that is none of bools
    bool shared = false;
    NodePtr leaf;  // pinned if set
    c10::Storage host;
  };

  Entry& find(const c10::Storage& storage);
  bool pin_all(std::vector<StatePtr>& pending, std::vector<Entry*>& missing);
  void unpin_all();
  // Gives the storage memory of its own; false if another thread gave it a new value meanwhile.
  bool replace(Entry& entry);
  bool open_memory(Entry& entry);

  std::vector<Entry> entries_;
  std::unordered_map<StorageState*, size_t> index_;             // used when there are many
  std::vector<std::pair<c10::Storage, c10::Storage>> adopted_;  // CPU memory, xla storage
};

}  // namespace torch_xla::eager
