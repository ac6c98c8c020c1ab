#include "host_ops/divide.h"

#include "host_ops/batch_norm.h"
#include "host_ops/divide_elements.h"
#include "host_ops/kernel_call.h"
#include "host_ops/product.h"
#include "host_ops/row_norm.h"
#include "host_ops/team.h"

#include <ATen/native/ConvUtils.h>

#include <algorithm>

namespace torch_xla {

at::Tensor narrowed(const c10::IValue& value, int64_t dim, Range range) {
  return narrowed(value.toTensor(), dim, range.start, range.length);
}

c10::IValue narrowed_summand(const c10::IValue& summand, int64_t from_last, Range range) {
  if (!summand.isTensor() || !summand.toTensor().defined()) {
    return summand;
  }
  const at::Tensor& tensor = summand.toTensor();
  const int64_t dim = tensor.dim() - from_last;
  return dim < 0 || tensor.size(dim) == 1 ? summand : narrowed(summand, dim, range);
}

std::vector<CallPiece> pieces_along(int64_t dim, const torch::jit::Stack& arguments,
                                    c10::ArrayRef<size_t> divided, int64_t threads,
                                    CallPiece::Kernel kernel, size_t results) {
  std::vector<CallPiece> pieces;
  if (dim < 0) {
    return pieces;
  }
  for (Range range : ranges(arguments[divided.front()].toTensor().size(dim), threads)) {
    CallPiece piece{arguments, {}, kernel};
    for (size_t i : divided) {
      piece.arguments[i] = narrowed(arguments[i], dim, range);
    }
    for (size_t i = 0; i < results; ++i) {
      piece.parts.push_back({i, dim, range.start, range.length});
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void run_in_team(c10::ArrayRef<CallPiece> pieces, c10::ArrayRef<at::Tensor> results) {
  run_in_team(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CallPiece& piece = pieces[static_cast<size_t>(i)];
      std::vector<at::Tensor> parts;
      for (const CallPiece::Part& part : piece.parts) {
        parts.push_back(narrowed(results[part.result], part.dim, part.start, part.length));
      }
      piece.kernel(piece.arguments, parts);
    }
  });
}

namespace {

using torch::jit::Stack;

// Below this many multiplications handing work to another thread costs more than it gains.
constexpr int64_t kWorthwhile = 1 << 20;

// Vectorised kernels work on this many channels at a time.
constexpr int64_t kChannels = 16;

// Of a convolution: images, or channels of the output.
bool channels_divide(const at::Tensor& weight, bool transposed, int64_t groups, int64_t threads) {
  return groups == 1 && !transposed && weight.size(0) >= threads * kChannels;
}

int64_t multiplications(const at::Tensor& weight, const at::Tensor& output) {
  return output.numel() / std::max<int64_t>(output.size(1), 1) * weight.numel();
}

std::vector<c10::SymInt> sizes_of(const c10::IValue& list) {
  const std::vector<int64_t> sizes = list.toIntVector();
  return {sizes.begin(), sizes.end()};
}

// What computes the convolution of an image with these arguments from `stride` on.
at::native::ConvBackend backend_of(const at::Tensor& input, const Stack& arguments,
                                   const at::Tensor& weight, size_t stride) {
  const auto steps = sizes_of(arguments[stride]), padding = sizes_of(arguments[stride + 1]),
             dilation = sizes_of(arguments[stride + 2]),
             output_padding = sizes_of(arguments[stride + 4]);
  return at::native::select_conv_backend(input, weight, std::nullopt, steps, padding, dilation,
                                         arguments[stride + 3].toBool(), output_padding,
                                         arguments[stride + 5].toInt(), std::nullopt);
}

// PyTorch leaves one small image to other kernels than several: it is not better alone then.
bool images_divide(const at::Tensor& input, const Stack& arguments, const at::Tensor& weight,
                   size_t stride, int64_t threads) {
  const at::Tensor image = narrowed(input, 0, 0, std::max<int64_t>(input.size(0) / threads, 1));
  return backend_of(image, arguments, weight, stride) ==
         backend_of(input, arguments, weight, stride);
}

// Some groups of a convolution, and the channels that they read and make.
struct Groups {
  int64_t count;
  Range inputs, outputs;
};
std::vector<Groups> parts_of_groups(int64_t groups, const at::Tensor& input,
                                    int64_t output_channels, int64_t threads) {
  const int64_t in = input.size(1) / groups, out = output_channels / groups;
  std::vector<Groups> parts;
  for (Range range : ranges(groups, threads, std::max<int64_t>(kChannels / out, 1))) {
    parts.push_back({range.length,
                     {range.start * in, range.length * in},
                     {range.start * out, range.length * out}});
  }
  return parts;
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
std::vector<CallPiece> divide_convolution(const Stack& arguments, int64_t threads) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  if (multiplications(weight, input) < kWorthwhile) {
    return {};
  }
  std::vector<CallPiece> pieces;
  // Each piece reads all of what is not divided: better the smaller one.
  const bool by_images = images_divide(input, arguments, weight, 3, threads);
  const bool few_images = input.size(0) < threads || weight.numel() > input.numel() || !by_images;
  if (few_images && channels_divide(weight, arguments[6].toBool(), arguments[8].toInt(), threads)) {
    for (Range range : ranges(weight.size(0), threads, kChannels)) {
      CallPiece piece{arguments, {{0, 1, range.start, range.length}}};
      piece.arguments[1] = narrowed(arguments[1], 0, range);
      piece.arguments[2] = narrowed_summand(arguments[2], 1, range);
      pieces.push_back(std::move(piece));
    }
    return pieces;
  }
  const int64_t groups = arguments[8].toInt();
  if (few_images && groups >= threads && !arguments[6].toBool()) {
    for (const Groups& part : parts_of_groups(groups, input, weight.size(0), threads)) {
      CallPiece piece{arguments, {{0, 1, part.outputs.start, part.outputs.length}}};
      piece.arguments[0] = narrowed(arguments[0], 1, part.inputs);
      piece.arguments[1] = narrowed(arguments[1], 0, part.outputs);
      piece.arguments[2] = narrowed_summand(arguments[2], 1, part.outputs);
      piece.arguments[8] = part.count;
      pieces.push_back(std::move(piece));
    }
    return pieces;
  }
  return by_images ? pieces_along(0, arguments, {0}, threads) : pieces;
}

c10::IValue mask(bool input, bool weight, bool bias) {
  return c10::List<bool>({input, weight, bias});
}

// The gradients of kernel and bias of some groups of a convolution, which see channels of their
// own.
void add_gradients_of_groups(const Stack& arguments, int64_t threads,
                             std::vector<CallPiece>& pieces) {
  const at::Tensor &grad = arguments[0].toTensor(), &input = arguments[1].toTensor();
  const c10::List<bool> wanted = arguments[10].toBoolList();
  for (const auto& [count, inputs, outputs] :
       parts_of_groups(arguments[9].toInt(), input, grad.size(1), threads)) {
    CallPiece piece{arguments, {}};
    piece.arguments[0] = narrowed(arguments[0], 1, outputs);
    piece.arguments[1] = narrowed(arguments[1], 1, inputs);
    piece.arguments[2] = narrowed(arguments[2], 0, outputs);
    piece.arguments[3] = std::vector<int64_t>{outputs.length};
    piece.arguments[9] = count;
    piece.arguments[10] = mask(false, wanted[1], wanted[2]);
    for (size_t result : {1, 2}) {
      if (wanted[result]) {
        piece.parts.push_back({result, 0, outputs.start, outputs.length});
      }
    }
    pieces.push_back(std::move(piece));
  }
}

// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
//                      transposed, output_padding, groups, output_mask)
std::vector<CallPiece> divide_convolution_backward(const Stack& arguments, int64_t threads) {
  const at::Tensor& grad = arguments[0].toTensor();
  const at::Tensor& weight = arguments[2].toTensor();
  const c10::List<bool> wanted = arguments[10].toBoolList();
  if (multiplications(weight, grad) < kWorthwhile) {
    return {};
  }
  std::vector<CallPiece> pieces;
  const at::Tensor& input = arguments[1].toTensor();
  // As above: each piece reads all of what is not divided.
  const bool by_channels = weight.numel() > input.numel() && arguments[9].toInt() == 1 &&
                           !arguments[7].toBool() && input.size(1) >= threads * kChannels;
  if (wanted[0] && !by_channels && !images_divide(input, arguments, weight, 4, threads)) {
    return pieces;
  }
  if (wanted[0]) {
    const int64_t dim = by_channels ? 1 : 0;
    for (Range range : ranges(input.size(dim), threads, by_channels ? kChannels : 1)) {
      CallPiece piece{arguments, {{0, dim, range.start, range.length}}};
      piece.arguments[by_channels ? 2 : 0] = narrowed(arguments[by_channels ? 2 : 0], dim, range);
      piece.arguments[1] = narrowed(arguments[1], dim, range);
      piece.arguments[10] = mask(true, false, false);
      pieces.push_back(std::move(piece));
    }
  }
  if ((wanted[1] || wanted[2]) && arguments[9].toInt() >= threads && !arguments[7].toBool()) {
    add_gradients_of_groups(arguments, threads, pieces);
  } else if (wanted[1] || wanted[2]) {
    const bool divides =
        channels_divide(weight, arguments[7].toBool(), arguments[9].toInt(), threads);
    for (Range range : ranges(grad.size(1), divides ? threads : 1, kChannels)) {
      CallPiece piece{arguments, {}};
      piece.arguments[10] = mask(false, wanted[1], wanted[2]);
      if (divides) {
        piece.arguments[0] = narrowed(arguments[0], 1, range);
        piece.arguments[2] = narrowed(arguments[2], 0, range);
        piece.arguments[3] = std::vector<int64_t>{range.length};
      }
      if (wanted[1]) {
        piece.parts.push_back({1, 0, range.start, divides ? range.length : weight.size(0)});
      }
      if (wanted[2]) {
        piece.parts.push_back({2, 0, range.start, range.length});
      }
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

// native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean,
//                            save_invstd, train, eps, output_mask)
std::vector<CallPiece> divide_batch_norm_backward(const Stack& arguments, int64_t threads) {
  if (!takes_batch_norm_gradient(arguments)) {
    return {};
  }
  const c10::List<bool> wanted = arguments[9].toBoolList();
  std::vector<CallPiece> pieces;
  for (Range range : ranges(arguments[1].toTensor().size(1), threads)) {
    CallPiece piece{arguments, {}, &write_batch_norm_gradient};
    for (size_t i : {0, 1}) {
      piece.arguments[i] = narrowed(arguments[i], 1, range);
    }
    for (size_t i : {2, 5, 6}) {
      piece.arguments[i] = narrowed_summand(arguments[i], 1, range);
    }
    for (size_t result = 0; result < 3; ++result) {
      if (wanted[result]) {
        piece.parts.push_back({result, result == 0 ? 1 : 0, range.start, range.length});
      }
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Whether rows of the left factor are divided, or columns of the right one. A kernel may copy what
// does not lie dense, which parts of what lies the other way do not: if that cannot be helped,
// the smaller factor.
bool divides_by_rows(const at::Tensor& left, const at::Tensor& right, int64_t threads) {
  constexpr int64_t kLeast = 32;  // of a piece
  const int64_t rows = left.size(-2), columns = right.size(-1);
  if (std::min(rows, columns) < threads * kLeast) {
    return rows >= columns;
  }
  const bool dense_rows = left.stride(-1) == 1, dense_columns = right.stride(-2) == 1;
  if (dense_rows != dense_columns) {
    return dense_rows;
  }
  return dense_rows ? rows >= columns : rows < columns;
}

// mm(self, mat2), addmm(self, mat1, mat2, beta, alpha), the same in batches, and with a vector:
// batches, rows or columns. `first`: the left factor.
std::vector<CallPiece> divide_product(const Stack& arguments, size_t first, int64_t threads) {
  const at::Tensor &left = arguments[first].toTensor(), &right = arguments[first + 1].toTensor();
  const bool is_vector = right.dim() == 1;
  const int64_t rank = left.dim(), rows = left.size(rank - 2);
  const int64_t columns = is_vector ? 1 : right.size(rank - 1);
  const bool few_rows = are_of_few_rows(left, right);  // of a large matrix
  if (!few_rows && left.numel() * columns < kWorthwhile) {
    return {};
  }
  constexpr int64_t kGrain = 16;
  const bool batches = rank == 3 && left.size(0) >= threads;
  const bool by_rows = is_vector || divides_by_rows(left, right, threads);
  const int64_t dim = batches ? 0 : by_rows ? rank - 2 : rank - 1;
  std::vector<CallPiece> pieces;
  for (Range range : batches ? ranges(left.size(0), threads)
                             : ranges(by_rows ? rows : columns, threads, kGrain)) {
    CallPiece piece{arguments,
                    {{0, dim, range.start, range.length}},
                    few_rows ? &write_product_of_few_rows : nullptr};
    if (batches || by_rows) {
      piece.arguments[first] = narrowed(arguments[first], dim, range);
    }
    if (batches || !by_rows) {
      piece.arguments[first + 1] = narrowed(arguments[first + 1], dim, range);
    }
    if (first > 0) {
      piece.arguments[0] = narrowed_summand(arguments[0], is_vector ? 1 : rank - dim, range);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Attention, forward or backward: images, or heads. `tensors`: how many arguments from the first on
// are divided; so many results are.
std::vector<CallPiece> divide_attention(const Stack& arguments, size_t query, size_t tensors,
                                        size_t mask, size_t results, int64_t threads) {
  const at::Tensor &queries = arguments[query].toTensor(), &keys = arguments[query + 1].toTensor();
  const int64_t dim = queries.size(0) >= threads ? 0 : 1;
  if (queries.numel() * keys.size(2) < kWorthwhile || keys.size(1) != queries.size(1)) {
    return {};
  }
  std::vector<CallPiece> pieces;
  for (Range range : ranges(queries.size(dim), threads)) {
    CallPiece piece{arguments, {}};
    for (size_t i = 0; i < tensors; ++i) {
      piece.arguments[i] = narrowed(arguments[i], dim, range);
    }
    piece.arguments[mask] = narrowed_summand(arguments[mask], queries.dim() - dim, range);
    for (size_t i = 0; i < results; ++i) {
      piece.parts.push_back({i, dim, range.start, range.length});
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// upsample_*(self or its gradient, output_size, input_size of a gradient, ...): images, or
// channels.
std::vector<CallPiece> divide_resizing(const c10::OperatorHandle& op, const Stack& arguments,
                                       int64_t threads) {
  constexpr int64_t kWorthwhileImages = 1 << 14;  // elements
  const at::Tensor& images = arguments[0].toTensor();
  const size_t dim = images.size(0) >= threads ? 0 : 1;
  if (images.numel() < kWorthwhileImages || (dim == 1 && images.size(0) > 1)) {
    return {};
  }
  const auto input_size = op.schema().argumentIndexWithName("input_size");
  std::vector<CallPiece> pieces;
  for (Range range : ranges(images.size(static_cast<int64_t>(dim)), threads)) {
    CallPiece piece{arguments, {{0, static_cast<int64_t>(dim), range.start, range.length}}};
    piece.arguments[0] = narrowed(arguments[0], static_cast<int64_t>(dim), range);
    if (input_size) {
      std::vector<int64_t> sizes = arguments[*input_size].toIntVector();
      sizes[dim] = range.length;
      piece.arguments[*input_size] = std::move(sizes);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

bool is_resizing(const std::string& name) {
  return name.starts_with("aten::upsample_") || name.starts_with("aten::_upsample_");
}

}  // namespace

std::vector<CallPiece> divide(const c10::OperatorHandle& op, const Stack& arguments,
                              int64_t threads) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::native_batch_norm_backward") {
    return divide_batch_norm_backward(arguments, threads);  // faster on one thread, too
  }
  if (std::vector<CallPiece> pieces = divide_row_norm(op, arguments, threads); !pieces.empty()) {
    return pieces;
  }
  if (threads < 2) {
    return {};
  }
  std::vector<CallPiece> pieces;
  if (name == "aten::convolution") {
    pieces = divide_convolution(arguments, threads);
  } else if (name == "aten::convolution_backward") {
    pieces = divide_convolution_backward(arguments, threads);
  } else if (const auto first = position_of_factors(op)) {
    pieces = divide_product(arguments, *first, threads);
  } else if (is_resizing(name)) {
    pieces = divide_resizing(op, arguments, threads);
  } else if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") {
    // (query, key, value, dropout, causal, mask, scale)
    pieces = divide_attention(arguments, 0, 3, 5, 2, threads);
  } else if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward") {
    // (gradient, query, key, value, result, logsumexp, dropout, causal, mask, scale)
    pieces = divide_attention(arguments, 1, 6, 8, 3, threads);
  } else {
    pieces = divide_elements(op, arguments, threads);
  }
  if (static_cast<int64_t>(pieces.size()) < threads) {
    return {};  // the kernel's own way to use all threads is better
  }
  return pieces;
}

}  // namespace torch_xla
