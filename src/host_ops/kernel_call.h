// One kind of recorded operation as a call of PyTorch's CPU kernel: what its signature fixes is
// worked out once, each call fills in tensors and numbers. Immutable, so safe from any thread.
#pragma once

#include "host_ops/faster_kernel.h"
#include "ir/signature.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

namespace torch_xla {

struct NormGradient;

class KernelCall {
 public:
  // `op`: the operator that the signature names, or the one that mutates its arguments when no
  // functional form exists. The signature outlives this.
  KernelCall(const Signature& signature, const c10::OperatorHandle& op);

  const Signature& signature() const { return signature_; }
  const c10::OperatorHandle& op() const { return op_; }

  // The arguments of a call. `operands`: CPU tensors, one per operand of the signature except the
  // generator's state; `numbers`: parallel to its kinds.
  torch::jit::Stack arguments(c10::ArrayRef<at::Tensor> operands,
                              c10::ArrayRef<Number> numbers) const;
  // Has a random operator draw from a CPU generator seeded by the state (key, counter).
  void seed(torch::jit::Stack& arguments, const uint64_t* state) const;

  // As op().callBoxed() would.
  void call(torch::jit::Stack& stack) const { call_kernel(op_, faster_, stack); }
  // Calls the kernel; gives one tensor per output of the signature except the generator's state,
  // undefined where the operator returns None. Throws the kernel's errors.
  std::vector<at::Tensor> run(torch::jit::Stack arguments) const;

  // An operator of elements, or one that writes at indices, that can as well write its result over
  // argument 0: the operand which that is, or -1.
  int32_t overwritable() const { return in_place_ ? overwritable_ : -1; }
  void run_in_place(torch::jit::Stack arguments) const;
  // It writes where indices say, and may refuse these.
  bool writes_parts() const { return writes_parts_; }
  const std::string& name() const { return op_.operator_name().name; }

  // Whether the kernel can write its one result to memory that is given.
  bool has_out_form() const { return out_.has_value(); }
  void run_into(torch::jit::Stack arguments, at::Tensor result) const;

 private:
  struct Slot {
    enum class Kind : uint8_t { Tensor, Tensors, OptionalTensors, Number, Float, NumberTensor };
    size_t argument = 0;
    Kind kind = Kind::Tensor;
    std::vector<OperandRef> tensors;
    std::vector<NumberRef> numbers;
    bool list = false;   // of numbers
    bool whole = false;  // these are integers
  };
  void add(size_t argument, const Attribute& attribute);
  c10::IValue fill(const Slot& slot, c10::ArrayRef<at::Tensor> operands,
                   c10::ArrayRef<Number> numbers) const;
  std::vector<at::Tensor> copy_mutated(torch::jit::Stack& arguments) const;

  const Signature& signature_;
  const c10::OperatorHandle op_;
  const FasterKernel* const faster_;
  const bool is_batch_norm_;
  const NormGradient* const norm_gradient_;
  torch::jit::Stack constants_;
  std::vector<Slot> slots_;
  std::vector<size_t> mutated_;      // arguments that the operator writes to
  std::vector<bool> return_is_new_;  // per return: not one of those
  int generator_ = -1;               // argument
  bool needs_self_ = false;          // argument 0 was dropped: only its sizes and dtype matter
  std::optional<c10::OperatorHandle> in_place_;
  std::optional<c10::OperatorHandle> out_;
  int32_t overwritable_ = -1;
  bool writes_parts_ = false;
};

// Frames of dense memory as CPU tensors, and back.
at::Tensor cpu_tensor(c10::Storage storage, DType dtype, c10::IntArrayRef sizes,
                      c10::IntArrayRef strides, int64_t offset);
c10::Storage allocate_on_host(size_t nbytes);
c10::Storage copy_on_host(const c10::Storage& bytes, size_t nbytes);
// Memory of somebody else's that outlives it.
c10::Storage borrow_on_host(void* bytes, size_t nbytes);
// `length` of a dense CPU tensor along `dim`, without asking PyTorch's dispatcher.
at::Tensor narrowed(const at::Tensor& tensor, int64_t dim, int64_t start, int64_t length);
// Bools promise to be 0 or 1, and kernels hand other bytes on: a copy that keeps the promise.
c10::Storage as_bools(const c10::Storage& bytes);

// The seed of a CPU generator for one draw of the device's (key, counter).
inline uint64_t host_seed(const uint64_t* state) {
  return state[0] ^ (state[1] * 0x9E3779B97F4A7C15ull);
}

}  // namespace torch_xla
