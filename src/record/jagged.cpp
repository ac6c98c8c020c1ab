// Rows of sequences one after the other (nested tensors of layout torch.jagged) as sequences of one
// length, and back. PyTorch's kernels copy sequence by sequence and read on the host where each
// one ends; here the places are computed on the device.
#include "record/registration.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/irange.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;

void check_offsets(at::TensorList offsets, size_t lengths, const char* name) {
  TORCH_CHECK(offsets.size() == 1 && lengths == 1, name,
              "(): only a single jagged dim is supported for now");
  TORCH_CHECK(offsets[0].dim() == 1 && offsets[0].size(0) > 0, name,
              "(): expected 1D offsets that are not empty, but got sizes ", offsets[0].sizes());
}

Tensor numbers(int64_t end, const Tensor& like) {
  return at::arange(end, like.options().dtype(at::kLong));
}

// Like `mask`, with as many dimensions as `rows`, for all elements of a row.
Tensor for_rows(const Tensor& mask, const Tensor& rows) {
  std::vector<int64_t> sizes = mask.sizes().vec();
  sizes.resize(rows.dim(), 1);
  return mask.view(sizes);
}

std::vector<int64_t> sizes_of_rows(at::IntArrayRef leading, at::IntArrayRef row) {
  std::vector<int64_t> sizes = leading.vec();
  sizes.insert(sizes.end(), row.begin(), row.end());
  return sizes;
}

// What is behind `longest` is left out.
Tensor to_padded(const Tensor& values, at::TensorList offsets, at::IntArrayRef longest,
                 double padding) {
  check_offsets(offsets, longest.size(), "_jagged_to_padded_dense_forward");
  const int64_t sequences = offsets[0].size(0) - 1;
  const auto sizes = sizes_of_rows({sequences, longest[0]}, values.sizes().slice(1));
  if (values.size(0) == 0) {
    return values.new_full(sizes, padding);
  }
  const Tensor begins = offsets[0].slice(0, 0, sequences).unsqueeze(1);
  const Tensor ends = offsets[0].slice(0, 1).unsqueeze(1);
  const Tensor places = begins + numbers(longest[0], values);
  const Tensor rows = values.index_select(0, places.clamp(0, values.size(0) - 1).flatten());
  const Tensor padded = rows.view(sizes);
  return at::where(for_rows(places < ends, padded), padded, values.new_full({}, padding));
}

// Rows that no padded sequence has are zeros.
Tensor from_padded(const Tensor& padded, at::TensorList offsets, std::optional<int64_t> total) {
  check_offsets(offsets, 1, "_padded_dense_to_jagged_forward");
  const int64_t sequences = offsets[0].size(0) - 1;
  TORCH_CHECK(padded.dim() >= 2 && padded.size(0) == sequences,
              "_padded_dense_to_jagged_forward(): ", offsets[0].size(0), " offsets are of ",
              sequences, " sequences, but the padded tensor has sizes ", padded.sizes());
  const int64_t length = total ? *total : offsets[0].select(0, sequences).item<int64_t>();
  const int64_t longest = padded.size(1);
  if (length == 0 || longest == 0 || sequences == 0) {
    return padded.new_zeros(sizes_of_rows({length}, padded.sizes().slice(2)));
  }
  const Tensor places = numbers(length, padded);
  const Tensor sequence =
      at::searchsorted(offsets[0].slice(0, 1), places, /*out_int32=*/false, /*right=*/true)
          .clamp(0, sequences - 1);
  const Tensor within = places - offsets[0].index_select(0, sequence);
  const Tensor source = sequence * longest + within.clamp(0, longest - 1);
  const Tensor rows = padded.flatten(0, 1).index_select(0, source);
  return at::where(for_rows(within < longest, rows), rows, at::zeros({}, rows.options()));
}

}  // namespace

void register_jagged_tensors(torch::Library& m) {
  m.impl("_jagged_to_padded_dense_forward", &to_padded);
  m.impl("_padded_dense_to_jagged_forward", &from_padded);
}

}  // namespace torch_xla
