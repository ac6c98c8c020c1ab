#include "record/plain_shapes.h"

#include "record/plain_factories.h"
#include "record/plain_images.h"
#include "record/plain_rules.h"

#include <numeric>
#include <unordered_map>

namespace torch_xla::plain {

namespace {

using Rule = Results (*)(const IValues&);

Results like_first(const IValues& arguments) {
  return IValues{result(arguments[0].toTensor().sizes(), arguments[0].toTensor())};
}

// gradient, self, …; the tensors among the rest in order and no larger than self.
Results like_second(const IValues& arguments) {
  const at::Tensor& self = arguments[1].toTensor();
  for (size_t i = 2; i < arguments.size(); ++i) {
    const at::Tensor tensor = tensor_or_none(arguments[i]);
    if (tensor.defined() && (!is_plain(tensor, self.scalar_type()) ||
                             !at::is_expandable_to(tensor.sizes(), self.sizes()))) {
      return std::nullopt;
    }
  }
  const at::Tensor& gradient = arguments[0].toTensor();
  if (!plain_floats({self}) || !is_plain_gradient(gradient, self.scalar_type()) ||
      !at::is_expandable_to(gradient.sizes(), self.sizes())) {
    return std::nullopt;
  }
  return IValues{result(self.sizes(), self)};
}

// gradient of half the size, self, dim
Results glu_backward(const IValues& arguments) {
  const at::Tensor &gradient = arguments[0].toTensor(), &self = arguments[1].toTensor();
  const bool fits = plain_floats({self}) && 2 * gradient.numel() == self.numel() &&
                    is_plain_gradient(gradient, self.scalar_type());
  return fits ? Results(IValues{result(self.sizes(), self)}) : std::nullopt;
}

// A second result like the only one.
Results twice(Results results) {
  if (results) {
    const at::Tensor first = results->front().toTensor();
    results->emplace_back(result(first.sizes(), first));
  }
  return results;
}

// gradient, self, weight
Results like_second_twice(const IValues& arguments) { return twice(like_second(arguments)); }

Results like_first_twice(const IValues& arguments) { return twice(like_first(arguments)); }

// self, number, …
Results like_first_unless_complex(const IValues& arguments) {
  return arguments[1].isComplexDouble() ? std::nullopt : like_first(arguments);
}

Results written(const IValues& arguments) { return IValues{arguments[0]}; }

// All of it, by zeros or by a number.
Results written_whole(const IValues& arguments) {
  const bool fits = arguments.size() == 1 || !arguments[1].isComplexDouble();
  return fits && arguments[0].toTensor().is_non_overlapping_and_dense() ? written(arguments)
                                                                        : std::nullopt;
}

// self, mask, number
Results masked_fill(const IValues& arguments) {
  const at::Tensor &self = arguments[0].toTensor(), &mask = arguments[1].toTensor();
  if (!plain_floats({self}) || !is_plain(mask, at::kBool) ||
      !at::is_expandable_to(mask.sizes(), self.sizes())) {
    return std::nullopt;
  }
  return IValues{result(self.sizes(), self)};
}

Results written_under_mask(const IValues& arguments) {
  return masked_fill(arguments) ? written(arguments) : std::nullopt;
}

// Bools changed in place, by another tensor or not.
Results written_answers(const IValues& arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor other = arguments.size() > 1 ? arguments[1].toTensor() : self;
  return is_plain(self, at::kBool) && is_plain(other, at::kBool) &&
                 at::is_expandable_to(other.sizes(), self.sizes())
             ? written(arguments)
             : std::nullopt;
}

// self, dims
Results flip(const IValues& arguments) {
  return dims_of(arguments[0].toTensor(), arguments[1].toIntVector()) ? like_first(arguments)
                                                                      : std::nullopt;
}

// Of two tensors, or a tensor and a number, element by element; tensors in order give one in order.
std::optional<std::vector<int64_t>> common_sizes(const c10::IValue& one, const c10::IValue& other) {
  if (!one.isTensor() || !other.isTensor()) {
    return (one.isTensor() ? one : other).toTensor().sizes().vec();
  }
  const at::Tensor &left = one.toTensor(), &right = other.toTensor();
  if (left.sizes() == right.sizes() || at::is_expandable_to(right.sizes(), left.sizes())) {
    return left.sizes().vec();
  }
  return at::is_expandable_to(left.sizes(), right.sizes()) ? std::optional(right.sizes().vec())
                                                           : std::nullopt;
}

Results elementwise(const IValues& arguments) {
  auto sizes = common_sizes(arguments[0], arguments[1]);
  return sizes ? Results(IValues{result(*sizes, arguments[0].toTensor())}) : std::nullopt;
}

// Of any dtype.
bool in_order(const c10::IValue& value) {
  return is_plain(value.toTensor(), value.toTensor().scalar_type());
}

Results question(const IValues& arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return in_order(arguments[0]) ? Results(IValues{at::detail::empty_meta(self.sizes(), at::kBool)})
                                : std::nullopt;
}

Results question_of_two(const IValues& arguments) {
  auto sizes = common_sizes(arguments[0], arguments[1]);
  return sizes && in_order(arguments[0]) && in_order(arguments[1])
             ? Results(IValues{at::detail::empty_meta(*sizes, at::kBool)})
             : std::nullopt;
}

// condition, self, other
Results where(const IValues& arguments) {
  const at::Tensor &condition = arguments[0].toTensor(), &self = arguments[1].toTensor();
  auto sizes = common_sizes(arguments[1], arguments[2]);
  if (!plain_floats({self, arguments[2].toTensor()}) || !is_plain(condition, at::kBool) || !sizes ||
      !at::is_expandable_to(condition.sizes(), *sizes)) {
    return std::nullopt;
  }
  return IValues{result(*sizes, self)};
}

// tensors, dim
Results stack(const IValues& arguments) {
  const std::vector<at::Tensor> tensors = flatten_tensors({arguments[0]});
  if (!plain_floats(tensors)) {
    return std::nullopt;
  }
  std::vector<int64_t> sizes = tensors[0].sizes().vec();
  const auto rank = static_cast<int64_t>(sizes.size()) + 1;
  const int64_t dim = arguments[1].toInt() + (arguments[1].toInt() < 0 ? rank : 0);
  const bool fit = std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.sizes() == c10::IntArrayRef(sizes);
  });
  if (!fit || dim < 0 || dim >= rank) {
    return std::nullopt;
  }
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(tensors.size()));
  return IValues{result(sizes, tensors[0])};
}

// Of two tensors of the same sizes.
Results loss(const IValues& arguments, int64_t reduction) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments[1].toTensor().sizes() != self.sizes() || reduction < 0 || reduction > 2) {
    return std::nullopt;
  }
  return IValues{result(reduction == 0 ? self.sizes() : c10::IntArrayRef(), self)};
}

// self, target, reduction, …
Results loss_of_two(const IValues& arguments) { return loss(arguments, arguments[2].toInt()); }

// self, target, weight, reduction
Results weighted_loss(const IValues& arguments) {
  return arguments[2].isNone() ? loss(arguments, arguments[3].toInt()) : std::nullopt;
}

// self, target, weight, pos_weight, reduction
Results cross_entropy_of_two(const IValues& arguments) {
  return arguments[2].isNone() && arguments[3].isNone() ? loss(arguments, arguments[4].toInt())
                                                        : std::nullopt;
}

// input, normalized_shape, weight, bias, eps
Results layer_norm(const IValues& arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const std::vector<int64_t> shape = arguments[1].toIntVector();
  const auto outer = input.dim() - static_cast<int64_t>(shape.size());
  if (shape.empty() || outer < 0 || input.sizes().slice(outer) != c10::IntArrayRef(shape) ||
      !has_sizes(arguments[2], shape) || !has_sizes(arguments[3], shape)) {
    return std::nullopt;
  }
  std::vector<int64_t> statistics = input.sizes().vec();
  std::fill(statistics.begin() + outer, statistics.end(), 1);
  return IValues{result(input.sizes(), input), wide_result(statistics, input),
                 wide_result(statistics, input)};
}

// grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
Results layer_norm_backward(const IValues& arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor weight = tensor_or_none(arguments[5]), bias = tensor_or_none(arguments[6]);
  return plain_floats({input, weight, bias}) &&
                 is_plain_gradient(arguments[0].toTensor(), input.scalar_type())
             ? wanted(arguments, {input, weight, bias})
             : std::nullopt;
}

// In order, and of the dtype; statistics and parameters may have 32 bits beside 16.
bool is_plain_beside(const at::Tensor& tensor, c10::ScalarType dtype) {
  return is_plain(tensor, dtype) || (!wide(dtype) && is_plain(tensor, at::kFloat));
}

// input, `vectors` of a number for each channel, …
Results batch_norm_of(const IValues& arguments, std::ptrdiff_t vectors) {
  const at::Tensor& input = arguments[0].toTensor();
  if (!plain_floats({input}) || input.dim() < 2 || input.numel() == 0) {
    return std::nullopt;
  }
  const std::array<int64_t, 1> channels{input.size(1)};
  const auto fits = [&](const c10::IValue& value) {
    return has_sizes(value, channels) &&
           is_plain_beside(tensor_or_none(value), input.scalar_type());
  };
  if (!std::all_of(arguments.begin() + 1, arguments.begin() + 1 + vectors, fits)) {
    return std::nullopt;
  }
  return IValues{result(input.sizes(), input), wide_result(channels, input),
                 wide_result(channels, input)};
}

// input, weight, bias, running_mean, running_var, training, momentum, eps
Results batch_norm(const IValues& arguments) {
  return arguments[5].toBool() ? batch_norm_of(arguments, 4) : std::nullopt;
}

// input, weight, bias, training, momentum, eps
Results batch_norm_without_statistics(const IValues& arguments) {
  return arguments[3].toBool() ? batch_norm_of(arguments, 2) : std::nullopt;
}

// input, weight, bias, running_mean, running_var, momentum, eps
Results batch_norm_in_evaluation(const IValues& arguments) { return batch_norm_of(arguments, 4); }

// The same, and the running statistics that it would leave.
Results functional_batch_norm(const IValues& arguments) {
  Results results = batch_norm(arguments);
  for (size_t i = 3; results && i < 5; ++i) {
    results->emplace_back(wide_result(arguments[i].toTensor().sizes(), arguments[i].toTensor()));
  }
  return results;
}

// Without the dimensions that a sum runs over, or with ones for them.
Results reduced(const at::Tensor& self, const std::vector<int64_t>& dims, bool keepdim) {
  const auto summed = dims_of(self, dims);
  if (!summed) {
    return std::nullopt;
  }
  std::vector<int64_t> left;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (!(*summed)[i] || keepdim) {
      left.push_back((*summed)[i] ? 1 : self.size(i));
    }
  }
  return IValues{result(left, self)};
}

// self, dim, keepdim
Results logsumexp(const IValues& arguments) {
  const std::vector<int64_t> dims = arguments[1].toIntVector();
  return dims.empty() ? std::nullopt
                      : reduced(arguments[0].toTensor(), dims, arguments[2].toBool());
}

// self, dim or none for all, correction, keepdim
Results deviation(const IValues& arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  std::vector<int64_t> dims =
      arguments[1].isNone() ? std::vector<int64_t>() : arguments[1].toIntVector();
  if (dims.empty()) {
    dims.resize(self.dim());
    std::iota(dims.begin(), dims.end(), 0);
  }
  return reduced(self, dims, arguments[3].toBool());
}

Results deviation_and_mean(const IValues& arguments) { return twice(deviation(arguments)); }

// input, weight, bias, N, C, HxW, group, eps
Results group_norm(const IValues& arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const int64_t images = arguments[3].toInt(), channels = arguments[4].toInt(),
                groups = arguments[6].toInt();
  const std::array<int64_t, 1> sizes{channels};
  if (groups < 1 || channels % groups != 0 || input.numel() == 0 ||
      input.numel() != images * channels * arguments[5].toInt() ||
      !has_sizes(arguments[1], sizes) || !has_sizes(arguments[2], sizes)) {
    return std::nullopt;
  }
  return IValues{result_in_format_of(input), result({images, groups}, input),
                 result({images, groups}, input)};
}

// grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
Results group_norm_backward(const IValues& arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor channels = result({arguments[6].toInt()}, input);
  return wanted(arguments, {result_in_format_of(input), channels, channels});
}

// grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
// output_mask
Results batch_norm_backward(const IValues& arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor weight = tensor_or_none(arguments[2]);
  const auto fits = [&](const c10::IValue& value) {
    return is_plain_beside(tensor_or_none(value), input.scalar_type());
  };
  if (!plain_floats({input}) || input.dim() < 2 ||
      !std::all_of(arguments.begin() + 2, arguments.begin() + 7, fits) ||
      !is_plain_gradient(arguments[0].toTensor(), input.scalar_type())) {
    return std::nullopt;
  }
  const at::Tensor channels = result({input.size(1)}, weight.defined() ? weight : input);
  return wanted(arguments, {input, channels, channels});
}

// The queries' order is kept; the sums come with heads and positions exchanged.
Results attention(const IValues& arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  if (!query.is_meta() || !plain_dtype(query.scalar_type()) || query.dim() != 4) {
    return std::nullopt;
  }
  const auto sums =
      wide_result({query.size(0), query.size(2), query.size(1)}, query).transpose(1, 2);
  return IValues{result_in_order_of(query), sums};
}

// weight, indices, …
Results embedding(const IValues& arguments) {
  const at::Tensor& weight = arguments[0].toTensor();
  const at::Tensor& indices = arguments[1].toTensor();
  if (weight.dim() != 2 || weight.size(0) == 0 || !plain_floats({weight}) ||
      !is_plain(indices, at::kLong)) {
    return std::nullopt;
  }
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return IValues{result(sizes, weight)};
}

// self, memory_format
Results clone(const IValues& arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto format =
      arguments[1].toOptional<c10::MemoryFormat>().value_or(at::MemoryFormat::Preserve);
  if (!self.is_meta() || self.is_conj() || self.is_neg()) {
    return std::nullopt;
  }
  switch (format) {
    case at::MemoryFormat::Preserve:
      return IValues{result_in_order_of(self)};
    case at::MemoryFormat::Contiguous:
      return IValues{result(self.sizes(), self)};
    default:
      return std::nullopt;
  }
}

// grad_output, input_sizes, dim, index
Results select_backward(const IValues& arguments) {
  const at::Tensor& grad = arguments[0].toTensor();
  std::vector<int64_t> sizes = arguments[1].toIntVector(), rest = sizes;
  const auto rank = static_cast<int64_t>(sizes.size());
  const int64_t dim = arguments[2].toInt() + (arguments[2].toInt() < 0 ? rank : 0);
  if (!grad.is_meta() || dim < 0 || dim >= rank) {
    return std::nullopt;
  }
  const int64_t index = arguments[3].toInt(), size = sizes[dim];
  rest.erase(rest.begin() + dim);
  if (index < -size || index >= size || grad.sizes() != c10::IntArrayRef(rest)) {
    return std::nullopt;
  }
  return IValues{result(sizes, grad)};
}

enum class Takes { kFloats, kAny };  // a rule for any looks at order and dtypes itself

struct Known {
  Rule rule;
  Takes takes = Takes::kFloats;
};

bool takes(const Known& known, const IValues& arguments) {
  if (known.takes == Takes::kAny) {
    return true;
  }
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    }
  }
  return plain_floats(tensors);
}

const Known* find_rule(const c10::OperatorHandle& op) {
  static const auto* rules = new std::unordered_map<c10::OperatorName, Known>{
      {{"aten::relu", ""}, {like_first}},
      {{"aten::relu_", ""}, {written}},
      {{"aten::abs", ""}, {like_first}},
      {{"aten::fill", "Scalar"}, {like_first}},
      {{"aten::fill_", "Scalar"}, {written_whole, Takes::kAny}},
      {{"aten::bernoulli", "p"}, {like_first}},
      {{"aten::bernoulli_", "float"}, {written}},
      {{"aten::exponential", ""}, {like_first}},
      {{"aten::exponential_", ""}, {written}},
      {{"aten::hardswish", ""}, {like_first}},
      {{"aten::hardswish_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::hardtanh", ""}, {like_first}},
      {{"aten::hardtanh_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::glu_backward", ""}, {glu_backward, Takes::kAny}},
      {{"aten::normal_", ""}, {written}},
      {{"aten::uniform_", ""}, {written}},
      {{"aten::mse_loss_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::mish_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::log_sigmoid_forward", ""}, {like_first_twice}},
      {{"aten::log_sigmoid_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::logit", ""}, {like_first}},
      {{"aten::_prelu_kernel_backward", ""}, {like_second_twice, Takes::kAny}},
      {{"aten::arange", ""}, {range, Takes::kAny}},
      {{"aten::arange", "start"}, {range, Takes::kAny}},
      {{"aten::arange", "start_step"}, {range, Takes::kAny}},
      {{"aten::arange", "start_out"}, {range_into, Takes::kAny}},
      {{"aten::linspace", ""}, {spaced, Takes::kAny}},
      {{"aten::logspace", ""}, {spaced, Takes::kAny}},
      {{"aten::tril_indices", ""}, {lower_triangle, Takes::kAny}},
      {{"aten::triu_indices", ""}, {upper_triangle, Takes::kAny}},
      {{"aten::eye", ""}, {identity, Takes::kAny}},
      {{"aten::eye", "m"}, {identity, Takes::kAny}},
      {{"aten::randperm", ""}, {permutation, Takes::kAny}},
      {{"aten::randperm", "generator"}, {permutation, Takes::kAny}},
      {{"aten::zero_", ""}, {written_whole, Takes::kAny}},
      {{"aten::flip", ""}, {flip}},
      {{"aten::nan_to_num", ""}, {like_first}},
      {{"aten::masked_fill_", "Scalar"}, {written_under_mask, Takes::kAny}},
      {{"aten::logical_not_", ""}, {written_answers, Takes::kAny}},
      {{"aten::logical_and_", ""}, {written_answers, Takes::kAny}},
      {{"aten::logical_or_", ""}, {written_answers, Takes::kAny}},
      {{"aten::std", "correction"}, {deviation}},
      {{"aten::var", "correction"}, {deviation}},
      {{"aten::std_mean", "correction"}, {deviation_and_mean}},
      {{"aten::var_mean", "correction"}, {deviation_and_mean}},
      {{"aten::rsub", "Scalar"}, {like_first_unless_complex}},
      {{"aten::rsub", "Tensor"}, {elementwise}},
      {{"aten::isnan", ""}, {question, Takes::kAny}},
      {{"aten::logical_not", ""}, {question, Takes::kAny}},
      {{"aten::logical_and", ""}, {question_of_two, Takes::kAny}},
      {{"aten::logical_or", ""}, {question_of_two, Takes::kAny}},
      {{"aten::where", "self"}, {where, Takes::kAny}},
      {{"aten::masked_fill", "Scalar"}, {masked_fill, Takes::kAny}},
      {{"aten::stack", ""}, {stack, Takes::kAny}},
      {{"aten::binary_cross_entropy_with_logits", ""}, {cross_entropy_of_two}},
      {{"aten::binary_cross_entropy", ""}, {weighted_loss}},
      {{"aten::binary_cross_entropy_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::huber_loss", ""}, {loss_of_two}},
      {{"aten::huber_loss_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::smooth_l1_loss_backward", ""}, {like_second, Takes::kAny}},
      {{"aten::logsumexp", ""}, {logsumexp}},
      {{"aten::native_group_norm", ""}, {group_norm}},
      {{"aten::native_group_norm_backward", ""}, {group_norm_backward}},
      {{"aten::native_layer_norm", ""}, {layer_norm}},
      {{"aten::native_layer_norm_backward", ""}, {layer_norm_backward, Takes::kAny}},
      {{"aten::_native_batch_norm_legit", ""}, {batch_norm, Takes::kAny}},
      {{"aten::_native_batch_norm_legit", "no_stats"},
       {batch_norm_without_statistics, Takes::kAny}},
      {{"aten::_native_batch_norm_legit_no_training", ""}, {batch_norm_in_evaluation, Takes::kAny}},
      {{"aten::_native_batch_norm_legit_functional", ""}, {functional_batch_norm, Takes::kAny}},
      {{"aten::native_batch_norm_backward", ""}, {batch_norm_backward, Takes::kAny}},
      {{"aten::grid_sampler_2d", ""}, {grid_sampler, Takes::kAny}},
      {{"aten::convolution", ""}, {convolution}},
      {{"aten::convolution_backward", ""}, {convolution_backward}},
      {{"aten::_adaptive_avg_pool2d", ""}, {adaptive_pool}},
      {{"aten::_adaptive_avg_pool2d_backward", ""}, {adaptive_pool_backward, Takes::kAny}},
      {{"aten::reflection_pad2d", ""}, {reflected}},
      {{"aten::_scaled_dot_product_flash_attention_for_cpu", ""}, {attention, Takes::kAny}},
      {{"aten::embedding", ""}, {embedding, Takes::kAny}},
      {{"aten::clone", ""}, {clone, Takes::kAny}},
      {{"aten::select_backward", ""}, {select_backward, Takes::kAny}},
  };
  auto found = rules->find(op.operator_name());
  return found == rules->end() ? nullptr : &found->second;
}

}  // namespace

}  // namespace torch_xla::plain

namespace torch_xla {

std::optional<IValues> plain_results(const c10::OperatorHandle& op, const IValues& meta_arguments) {
  const plain::Known* known = plain::find_rule(op);
  return known != nullptr && plain::takes(*known, meta_arguments) ? known->rule(meta_arguments)
                                                                  : std::nullopt;
}

}  // namespace torch_xla
