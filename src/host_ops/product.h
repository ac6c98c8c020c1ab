// Matrix products that take less time than by the kernels that PyTorch's CPU takes: of float32 by
// oneDNN, of expanded weights all at once.
// Thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_xla {

// Whether these may be the case, and of which result.
bool is_product_of_onednn(const c10::OperatorHandle& op, at::ScalarType result);

// result = beta * result + alpha * x @ y, of matrices or of batches of them. False: nothing was
// done, because MKL is as fast, or they are of another type.
bool multiply_by_onednn(const at::Tensor& x, const at::Tensor& y, const at::Tensor& result,
                        float beta = 0, float alpha = 1);

// Writes the result of a call of mm, addmm, bmm or baddbmm, where that is faster than PyTorch's
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
