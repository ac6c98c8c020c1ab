// What a storage holds while only eager mode has used it: a CPU tensor over its memory, and no
// node. An operation borrows the tensor, without a lock; whoever needs a node takes it, borrowed or
// not. Threads: any may borrow; take() and put() are for one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>

namespace torch_xla {

class HostValue {
 public:
  HostValue() = default;
  explicit HostValue(at::Tensor tensor) { put(std::move(tensor)); }
  ~HostValue() { take(); }
  HostValue(const HostValue&) = delete;
  HostValue& operator=(const HostValue&) = delete;

  bool is_there() const { return word_.load(std::memory_order_acquire) != 0; }

  // Undefined if there is none or another operation has it. The reference is the borrower's, who
  // gives it back...
  at::Tensor borrow() {
    uintptr_t word = word_.load(std::memory_order_relaxed);
    if (word == 0 || (word & kBorrowed) != 0 ||
        !word_.compare_exchange_strong(word, word | kBorrowed, std::memory_order_acq_rel)) {
      return {};
    }
    return at::Tensor(Reference::reclaim(tensor_in(word)));
  }
  // ...if it is still this one's.
  void give_back(at::Tensor tensor) {
    uintptr_t word = word_of(tensor) | kBorrowed;
    if (word_.compare_exchange_strong(word, word & ~kBorrowed, std::memory_order_acq_rel)) {
      static_cast<void>(tensor.unsafeReleaseIntrusivePtr().release());
    }
  }

  void put(at::Tensor tensor) {
    word_.store(word_of(tensor), std::memory_order_release);
    static_cast<void>(tensor.unsafeReleaseIntrusivePtr().release());
  }
  at::Tensor take() {
    const uintptr_t word = word_.load(std::memory_order_acquire);
    if (word == 0) {
      return {};
    }
    // Whoever borrows it does not drop it before it is exchanged.
    at::Tensor taken(Reference::reclaim_copy(tensor_in(word)));
    if ((word_.exchange(0, std::memory_order_acq_rel) & kBorrowed) == 0) {
      Reference::reclaim(tensor_in(word)).reset();
    }
    return taken;
  }

 private:
  using Reference = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  static constexpr uintptr_t kBorrowed = 1;

  static uintptr_t word_of(const at::Tensor& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.unsafeGetTensorImpl());
  }
  static c10::TensorImpl* tensor_in(uintptr_t word) {
    return reinterpret_cast<c10::TensorImpl*>(word & ~kBorrowed);
  }

  std::atomic<uintptr_t> word_{0};  // the tensor's address, and whether it is borrowed
};

}  // namespace torch_xla
