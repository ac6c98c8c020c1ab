// The memory of xla tensors as CPU tensors, while one operation runs on it. One thread; other
// threads may use the same tensors at the same time, as they may on the CPU.
#pragma once

#include "trace/tensor.h"

#include <optional>
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
  // A storage whose value has no node: nothing needs the lock.
  struct Loan {
    c10::StorageImpl* storage;
    StorageState* state;
    at::Tensor tensor;  // the state's
    bool write = false;
    bool fits = true;  // the operation needs no more than the tensor; else it was given back
  };
  // Any other storage.
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
    bool write;
    bool is_lent;
    size_t place;     // among the loans or the entries
    at::Tensor view;  // on the host, once asked for; undefined where it is the loan's
  };
  struct Adopted {
    const c10::StorageImpl* memory;
    c10::StorageImpl* storage;
  };

  Loan* borrow(c10::StorageImpl* storage, StorageState* state);
  size_t find(c10::StorageImpl* storage, StorageState* state);
  void make_entries_of_unfit_loans();
  at::Tensor& view_of_loan(Use& use, Loan& loan);
  at::Tensor& view_of_entry(Use& use, Entry& entry);
  // The storage that has this memory already, or null.
  c10::StorageImpl* storage_of(const c10::StorageImpl* memory) const;
  bool pin_all(std::vector<StatePtr>& pending, std::vector<Entry*>& missing);
  bool can_be_on_host(const Entry& entry) const REQUIRES(trace_mutex);
  // Hands back what was lent, pinned and kept.
  void close();
  // What was added first: how memory that is not there yet is seen.
  const at::Tensor& first_of(const Entry& entry) const;
  void make(Entry& entry);
  // Gives the storage memory of its own; false if another thread gave it a new value meanwhile.
  bool replace(Entry& entry);
  bool open_memory(Entry& entry);
  at::Tensor& seen(Use& use) { return use.view.defined() ? use.view : loans_[use.place].tensor; }
  std::pair<c10::StorageImpl*, StorageState*> owner_of(const Use& use) const;
  void update(Use& use);

  c10::SmallVector<Loan, 4> loans_;
  c10::SmallVector<Entry, 4> entries_;
  c10::SmallVector<Use, 4> uses_;
  std::optional<std::unordered_map<StorageState*, size_t>> index_;  // of many entries
  c10::SmallVector<Adopted, 2> adopted_;
};

// In eager mode: memory that nobody has written.
at::Tensor empty_on_host(DType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, int device);

}  // namespace torch_xla::eager
