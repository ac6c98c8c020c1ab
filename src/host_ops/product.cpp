#include "host_ops/product.h"

#include "base/processor.h"
#include "host_ops/few_rows.h"
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

// A call of oneDNN's takes 10 microseconds to begin, and few rows or columns wait for memory.
bool is_for_onednn(const at::Tensor& x, const at::Tensor& y) {
  constexpr int64_t kMultiplications = 1 << 21, kWidth = 8;
  return onednn_takes(x.scalar_type()) && y.dim() > 1 &&
         std::min(x.size(-2), y.size(-1)) >= kWidth && x.numel() * y.size(-1) >= kMultiplications;
}

// A part of a transposed matrix is copied as it lies; PyTorch's call would transpose it.
at::Tensor in_its_order(const at::Tensor& matrices) {
  const bool transposed = matrices.stride(-2) == 1 && matrices.stride(-1) > 1;
  return transposed ? matrices.mT().contiguous().mT() : matrices;
}

void multiply_by_onednn(const at::Tensor& x, const at::Tensor& y, const at::Tensor& result,
                        float beta, float alpha) {
  PlainDispatch guard;
  at::native::mkldnn_matmul(in_its_order(x), in_its_order(y), result, beta, alpha);
}

bool fit(const at::Tensor& x, const at::Tensor& y) {
  if (x.dim() == 2 && y.dim() == 1) {
    return x.size(1) == y.size(0);
  }
  return x.dim() == y.dim() && (x.dim() == 2 || (x.dim() == 3 && x.size(0) == y.size(0))) &&
         x.size(-1) == y.size(-2);
}

const void* numbers_of(const at::Tensor& matrices, int64_t batch) {
  const int64_t step = matrices.dim() == 3 ? matrices.stride(0) : 0;
  return static_cast<const char*>(matrices.const_data_ptr()) +
         batch * step * static_cast<int64_t>(matrices.element_size());
}

void multiply_few(const at::Tensor& x, const at::Tensor& y, const at::Tensor& result, float beta,
                  float alpha) {
  FewRows product{.dtype = x.scalar_type(),
                  .x = Factor::of(x.sizes(), x.strides()),
                  .y = Factor::of(y.sizes(), y.strides()),
                  .result = Factor::of(result.sizes(), result.strides()),
                  .beta = beta,
                  .alpha = alpha};
  // A part of a product may be small both ways.
  const bool few_rows = product.x.rows <= kMostFewRows && product.y.has_dense_lines();
  if (!few_rows) {
    std::swap(product.x, product.y);
    for (Factor* factor : {&product.x, &product.y, &product.result}) {
      *factor = factor->transposed();
    }
  }
  const at::Tensor &few = few_rows ? x : y, &matrix = few_rows ? y : x;
  const int64_t batches = x.dim() == 3 ? x.size(0) : 1;
  for (int64_t batch = 0; batch < batches; ++batch) {
    product.x_numbers = numbers_of(few, batch);
    product.y_numbers = numbers_of(matrix, batch);
    product.result_numbers = const_cast<void*>(numbers_of(result, batch));
    multiply_few_rows(product);
  }
}

// How much of what is in the result, and of the product, is wanted.
struct Scales {
  float beta = 0, alpha = 1;
};

// What the product is added to, if anything, is put into the result.
Scales begin_sum(const torch::jit::Stack& arguments, size_t first, const at::Tensor& result) {
  if (first == 0) {
    return {};
  }
  const Scales scales{arguments[3].toScalar().toFloat(), arguments[4].toScalar().toFloat()};
  if (scales.beta != 0) {
    PlainDispatch guard;
    result.copy_(arguments[0].toTensor().expand_as(result));
  }
  return scales;
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
  if (!multiply(rows, matrix, products)) {
    at::mm_out(products, rows, matrix);
  }
  return true;
}

}  // namespace

std::optional<size_t> position_of_factors(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv") {
    return 0;
  }
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv") {
    return 1;
  }
  return std::nullopt;
}

bool are_of_few_rows(const at::Tensor& x, const at::Tensor& y) {
  return x.scalar_type() == y.scalar_type() && fit(x, y) &&
         is_of_few(x.scalar_type(), Factor::of(x.sizes(), x.strides()),
                   Factor::of(y.sizes(), y.strides()));
}

void write_product_of_few_rows(const torch::jit::Stack& arguments,
                               c10::ArrayRef<at::Tensor> result) {
  const size_t first = arguments.size() == 2 ? 0 : 1;
  const auto [beta, alpha] = begin_sum(arguments, first, result[0]);
  multiply_few(arguments[first].toTensor(), arguments[first + 1].toTensor(), result[0], beta,
               alpha);
}

bool is_product_of_onednn(const c10::OperatorHandle& op, at::ScalarType result) {
  return onednn_takes(result) && position_of_factors(op).has_value();
}

bool multiply(const at::Tensor& x, const at::Tensor& y, const at::Tensor& result, float beta,
              float alpha) {
  if (are_of_few_rows(x, y)) {
    multiply_few(x, y, result, beta, alpha);
    return true;
  }
  if (!is_for_onednn(x, y)) {
    return false;
  }
  multiply_by_onednn(x, y, result, beta, alpha);
  return true;
}

bool multiply_faster(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                     const at::Tensor& result) {
  const std::optional<size_t> first = position_of_factors(op);
  if (!first) {
    return false;
  }
  const at::Tensor &x = arguments[*first].toTensor(), &y = arguments[*first + 1].toTensor();
  if (*first == 0 && multiply_as_one(x, y, result)) {
    return true;
  }
  if (are_of_few_rows(x, y)) {
    write_product_of_few_rows(arguments, result);
    return true;
  }
  if (!is_for_onednn(x, y)) {
    return false;
  }
  const auto [beta, alpha] = begin_sum(arguments, *first, result);
  multiply_by_onednn(x, y, result, beta, alpha);
  return true;
}

OwnProducts::OwnProducts(bool wanted) : before_(std::exchange(own_products, wanted)) {}
OwnProducts::~OwnProducts() { own_products = before_; }
bool OwnProducts::wanted() { return own_products; }

}  // namespace torch_xla
