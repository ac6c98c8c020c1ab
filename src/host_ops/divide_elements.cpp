#include "host_ops/divide_elements.h"

#include "host_ops/kernel_call.h"
#include "host_ops/own_pool.h"
#include "lower/library_function.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <array>
#include <limits>

namespace torch_xla {

namespace {

using torch::jit::Stack;

// The first dimension of which each thread has a part, but for some; -1 if there is none.
int64_t divisible_dim(c10::IntArrayRef sizes, const std::vector<bool>& others, int64_t threads) {
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (!others[dim] && sizes[dim] >= threads) {
      return static_cast<int64_t>(dim);
    }
  }
  return -1;
}

// Of so many dimensions, one (counted from the last if negative).
std::vector<bool> only(int64_t dim, int64_t rank) {
  std::vector<bool> chosen(static_cast<size_t>(rank));
  chosen[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = true;
  return chosen;
}

constexpr int64_t kWorthwhileElements = 1 << 14;

// Operators that work along some dimensions (or one, or all behind the first): others are divided.
std::vector<CallPiece> divide_others(const c10::OperatorHandle& op, const Stack& arguments,
                                     size_t results, int64_t threads) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto argument = static_cast<size_t>(op.schema().argumentIndexWithName("dim").value_or(0));
  const std::vector<int64_t> dims = arguments[argument].isInt()
                                        ? std::vector<int64_t>{arguments[argument].toInt()}
                                        : arguments[argument].toIntVector();
  if (self.dim() < 2 || self.numel() < kWorthwhileElements) {
    return {};
  }
  std::vector<bool> along(static_cast<size_t>(self.dim()));
  for (int64_t dim : dims) {
    along[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = true;
  }
  const int64_t dim = divisible_dim(self.sizes(), along, threads);
  return pieces_along(dim, arguments, {0}, threads, nullptr, results);
}

void pad_into(const Stack& arguments, c10::ArrayRef<at::Tensor> parts) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<int64_t> amounts = arguments[1].toIntVector();
  at::Tensor inside = parts[0].fill_(arguments[2].toScalar());
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    const int64_t dim = self.dim() - 1 - static_cast<int64_t>(i);
    inside = narrowed(inside, dim, amounts[2 * i], self.size(dim));
  }
  inside.copy_(self);
}

void place_slice(const Stack& arguments, c10::ArrayRef<at::Tensor> parts) {
  at::Tensor part = parts[0].zero_();
  part.slice(arguments[2].toInt(), arguments[3].toInt(), arguments[4].toInt(), arguments[5].toInt())
      .copy_(arguments[0].toTensor());
}

// slice_backward(grad_output, sizes, dim, start, end, step): another dimension.
std::vector<CallPiece> divide_slice_backward(const Stack& arguments, int64_t threads) {
  const at::Tensor& grad = arguments[0].toTensor();
  const int64_t dim = divisible_dim(grad.sizes(), only(arguments[2].toInt(), grad.dim()), threads);
  if (grad.numel() < kWorthwhileElements) {
    return {};
  }
  return pieces_along(dim, arguments, {0}, threads, &place_slice);
}

bool is_pad(const std::string& name) {
  return name == "aten::constant_pad_nd" ||
         ((name.starts_with("aten::reflection_pad") || name.starts_with("aten::replication_pad")) &&
          !name.ends_with("_backward"));
}

// cat(tensors, dim): another dimension.
std::vector<CallPiece> divide_cat(const Stack& arguments, int64_t threads) {
  const std::vector<at::Tensor> parts = arguments[0].toTensorVector();
  const int64_t rank = parts[0].dim();
  int64_t elements = 0;
  for (const at::Tensor& part : parts) {
    elements += part.numel();
    if (part.dim() != rank) {
      return {};  // an empty one
    }
  }
  if (rank < 2 || elements < kWorthwhileElements) {
    return {};
  }
  const int64_t dim = divisible_dim(parts[0].sizes(), only(arguments[1].toInt(), rank), threads);
  std::vector<CallPiece> pieces;
  for (Range range : dim < 0 ? std::vector<Range>() : ranges(parts[0].size(dim), threads)) {
    c10::List<at::Tensor> narrow;
    for (const at::Tensor& part : parts) {
      narrow.push_back(narrowed(part, dim, range.start, range.length));
    }
    CallPiece piece{arguments, {{0, dim, range.start, range.length}}};
    piece.arguments[0] = std::move(narrow);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// *_pad*(self, amounts, ...): a dimension that is not padded. Negative amounts crop.
std::vector<CallPiece> divide_pad(const std::string& name, const Stack& arguments,
                                  int64_t threads) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<int64_t> amounts = arguments[1].toIntVector();
  const bool crops = std::any_of(amounts.begin(), amounts.end(), [](int64_t n) { return n < 0; });
  if (self.numel() < kWorthwhileElements || crops) {
    return {};
  }
  const auto kernel = name == "aten::constant_pad_nd" ? &pad_into : nullptr;
  std::vector<bool> padded(static_cast<size_t>(self.dim()));
  for (size_t i = 0; i < amounts.size(); ++i) {
    padded[padded.size() - 1 - i / 2] = padded[padded.size() - 1 - i / 2] || amounts[i] != 0;
  }
  const int64_t dim = divisible_dim(self.sizes(), padded, threads);
  return pieces_along(dim, arguments, {0}, threads, kernel);
}

// Images: all tensors are divided.
std::vector<CallPiece> divide_images(const Stack& arguments, size_t results, int64_t threads) {
  int64_t elements = 0, images = std::numeric_limits<int64_t>::max();
  std::vector<size_t> divided;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor()) {
      const at::Tensor& tensor = arguments[i].toTensor();
      elements = std::max(elements, tensor.numel());
      images = std::min(images, tensor.size(0));
      divided.push_back(i);
    }
  }
  if (images < threads || elements < kWorthwhileElements) {
    return {};
  }
  return pieces_along(0, arguments, divided, threads, nullptr, results);
}

bool is_pooling(const std::string& name) {
  constexpr std::array<std::string_view, 4> kPrefixes = {
      "aten::_adaptive_avg_pool", "aten::adaptive_max_pool", "aten::max_pool", "aten::avg_pool"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Functions of elements of one tensor, or of some that are broadcast.
std::vector<CallPiece> divide_function(const Stack& arguments, int64_t threads) {
  std::vector<int64_t> sizes;
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      sizes = at::infer_size(sizes, argument.toTensor().sizes());
    }
  }
  const int64_t rank = static_cast<int64_t>(sizes.size());
  const int64_t dim = divisible_dim(sizes, std::vector<bool>(sizes.size()), threads);
  if (dim < 0 || c10::multiply_integers(sizes) < kWorthwhileElements) {
    return {};
  }
  std::vector<CallPiece> pieces;
  for (Range range : ranges(sizes[static_cast<size_t>(dim)], threads)) {
    CallPiece piece{arguments, {{0, dim, range.start, range.length}}};
    for (c10::IValue& argument : piece.arguments) {
      argument = narrowed_summand(argument, rank - dim, range);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Whether it computes a function of the C library (lower/library_function.h).
bool computes_function(const std::string& name, const Stack& arguments) {
  const auto* floats = std::find_if(
      arguments.data(), arguments.data() + arguments.size(), [](const c10::IValue& argument) {
        return argument.isTensor() && argument.toTensor().is_floating_point();
      });
  return floats != arguments.data() + arguments.size() &&
         (is_library_function(name, floats->toTensor().scalar_type()) || name == "aten::div");
}

}  // namespace

std::vector<CallPiece> divide_elements(const c10::OperatorHandle& op, const Stack& arguments,
                                       int64_t threads) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::sort" || name == "aten::topk") {
    return divide_others(op, arguments, 2, threads);
  }
  if (name == "aten::_fft_r2c" || name == "aten::_fft_c2r" || name == "aten::_fft_c2c" ||
      name == "aten::cumsum" || name == "aten::cumprod") {
    return divide_others(op, arguments, 1, threads);
  }
  if (name == "aten::cat") {
    return divide_cat(arguments, threads);
  }
  if (name == "aten::slice_backward") {
    return divide_slice_backward(arguments, threads);
  }
  if (is_pad(name)) {
    return divide_pad(name, arguments, threads);
  }
  if (std::vector<CallPiece> pieces = divide_own_pool(op, arguments, threads); !pieces.empty()) {
    return pieces;
  }
  if (name == "aten::grid_sampler_2d" || is_pooling(name)) {
    return divide_images(arguments, op.schema().returns().size(), threads);
  }
  if (computes_function(name, arguments)) {
    return divide_function(arguments, threads);
  }
  return {};
}

}  // namespace torch_xla
