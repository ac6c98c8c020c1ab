// Matrix products that take less time than by the kernels that PyTorch's CPU takes: of few rows by
// one of ours, of float32 by oneDNN, of expanded weights all at once.
// Thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace torch_xla {

// The position of the left factor among the arguments of mm, bmm, mv, addmm, baddbmm or
// addmv.
std::optional<size_t> position_of_factors(const c10::OperatorHandle& op);

// Whether the factors are such that write_product_of_few_rows() is better than other kernels.
bool are_of_few_rows(const at::Tensor& x, const at::Tensor& y);

// Writes the result of a call of such an operator, or of a part of one.
void write_product_of_few_rows(const torch::jit::Stack& arguments,
                               c10::ArrayRef<at::Tensor> result);

// Whether oneDNN may multiply, and of which result.
bool is_product_of_onednn(const c10::OperatorHandle& op, at::ScalarType result);

// result = beta * result + alpha * x @ y, of matrices, batches of them, or a matrix and a vector.
// False: nothing was done, because PyTorch's kernel is as fast, or they are of another type.
bool multiply(const at::Tensor& x, const at::Tensor& y, const at::Tensor& result, float beta = 0,
              float alpha = 1);

// Writes the result of a call of such an operator, where that is faster than PyTorch's
// kernel. False: nothing was done.
bool multiply_faster(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                     const at::Tensor& result);

// While one lives, this thread's kernels of layers may multiply so, too: the last bits of what
// they return are others then.
class OwnProducts {
 public:
  explicit OwnProducts(bool wanted = true);
  ~OwnProducts();
  OwnProducts(const OwnProducts&) = delete;
  OwnProducts& operator=(const OwnProducts&) = delete;

  static bool wanted();

 private:
  bool before_;
};

}  // namespace torch_xla
