#include "host_ops/product.h"

#include "base/processor.h"
#include "host_ops/plain_dispatch.h"

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>
#include <utility>

// PyTorch's call of oneDNN: result = beta * result + alpha * x @ y. No header of its says so; a
// PyTorch without oneDNN has none.
namespace at::native {
void mkldnn_matmul(const Tensor& x, const Tensor& y, const Tensor& result, float beta, float alpha)
    __attribute__((weak));
}

namespace torch_xla {

namespace {

bool onednn_takes(at::ScalarType dtype) {
  return dtype == at::kFloat && at::native::mkldnn_matmul != nullptr &&
         processor::is_held_back_by_mkl() && at::globalContext().userEnabledMkldnn();
}

thread_local bool own_products = false;

// Of the left factor.
std::optional<size_t> position_of_factors(const std::string& name) {
  if (name == "aten::mm" || name == "aten::bmm") {
    return 0;
  }
  if (name == "aten::addmm" || name == "aten::baddbmm") {
    return 1;
  }
  return std::nullopt;
}

// A call of oneDNN's takes 10 microseconds to begin, and few rows or columns wait for memory.
bool is_worthwhile(const at::Tensor& x, const at::Tensor& y) {
  constexpr int64_t kMultiplications = 1 << 21, kWidth = 8;
  return std::min(x.size(-2), y.size(-1)) >= kWidth && x.numel() * y.size(-1) >= kMultiplications;
}

// A part of a transposed matrix is copied as it lies; PyTorch's call would transpose it.
at::Tensor in_its_order(const at::Tensor& matrices) {
  const bool transposed = matrices.stride(-2) == 1 && matrices.stride(-1) > 1;
  return transposed ? matrices.mT().contiguous().mT() : matrices;
}

// One product instead of one for each batch, where all batches have the same right factor: weights
// that PyTorch expanded to the batches of their input.
bool multiply_as_one(const at::Tensor& x, const at::Tensor& y, const at::Tensor& result) {
  if (y.dim() != 3 || y.size(0) < 2 || y.stride(0) != 0 || !result.is_contiguous()) {
    return false;
  }
  PlainDispatch guard;
  const at::Tensor rows = x.reshape({-1, x.size(2)}), matrix = y.select(0, 0);
  at::Tensor products = result.view({-1, result.size(2)});
  if (!multiply_by_onednn(rows, matrix, products)) {
    at::mm_out(products, rows, matrix);
  }
  return true;
}

}  // namespace

bool is_product_of_onednn(const c10::OperatorHandle& op, at::ScalarType result) {
  return onednn_takes(result) && position_of_factors(op.operator_name().name).has_value();
}

bool multiply_by_onednn(const at::Tensor& x, const at::Tensor& y, const at::Tensor& result,
                        float beta, float alpha) {
  if (!onednn_takes(result.scalar_type()) || !is_worthwhile(x, y)) {
    return false;
  }
  PlainDispatch guard;
  at::native::mkldnn_matmul(in_its_order(x), in_its_order(y), result, beta, alpha);
  return true;
}

bool multiply_faster(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                     const at::Tensor& result) {
  const std::optional<size_t> first = position_of_factors(op.operator_name().name);
  if (!first) {
    return false;
  }
  const at::Tensor &x = arguments[*first].toTensor(), &y = arguments[*first + 1].toTensor();
  if (*first == 0) {
    return multiply_as_one(x, y, result) || multiply_by_onednn(x, y, result);
  }
  if (!onednn_takes(result.scalar_type()) || !is_worthwhile(x, y)) {
    return false;
  }
  const float beta = arguments[3].toScalar().toFloat(), alpha = arguments[4].toScalar().toFloat();
  if (beta != 0) {
    PlainDispatch guard;
    result.copy_(arguments[0].toTensor().expand_as(result));
  }
  return multiply_by_onednn(x, y, result, beta, alpha);
}

OwnProducts::OwnProducts(bool wanted) : before_(std::exchange(own_products, wanted)) {}
OwnProducts::~OwnProducts() { own_products = before_; }
bool OwnProducts::wanted() { return own_products; }

}  // namespace torch_xla
