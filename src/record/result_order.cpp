#include "record/result_order.h"

#include "record/results.h"

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace torch_xla {

namespace {

using Order = void (*)(const IValues& arguments, IValues& results);

// Called as what it is: the dispatcher leads to Python's kernel for meta tensors.
at::Tensor like(const at::Tensor& ordered, const c10::IValue& result) {
  return at::native::empty_like(ordered, result.toTensor().scalar_type(), c10::kStrided,
                                c10::Device(c10::kMeta));
}

at::Tensor in_format(const c10::IValue& result, c10::MemoryFormat format) {
  const at::Tensor& tensor = result.toTensor();
  return at::empty(tensor.sizes(), tensor.options().memory_format(format));
}

void dense(const IValues&, IValues& results) {
  results[0] = in_format(results[0], c10::MemoryFormat::Contiguous);
}

void dense_if_complex(const IValues& arguments, IValues& results) {
  if (arguments[0].toTensor().is_complex()) {
    dense(arguments, results);
  }
}

void as_first(const IValues& arguments, IValues& results) {
  results[0] = like(arguments[0].toTensor(), results[0]);
}

// The first or the second: a gradient stands before the input.
template <size_t kPosition>
void in_format_of(const IValues& arguments, IValues& results) {
  const at::Tensor& argument = arguments[kPosition].toTensor();
  if (results[0].isTensor() && results[0].toTensor().defined() &&
      results[0].toTensor().dim() == argument.dim()) {
    results[0] = in_format(results[0], argument.suggest_memory_format());
  }
}

void as_sum(const IValues& arguments, IValues& results) {
  static const auto add = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
  if (arguments[1].isTensor()) {
    const IValues sum = results_in_cpp(add, {arguments[0], arguments[1], 1}).value();
    results[0] = like(sum[0].toTensor(), results[0]);
  }
}

// One image without a dimension for images lies as a batch of it does.
void as_batch_of_image(const IValues& arguments, IValues& results) {
  const at::Tensor& image = arguments[0].toTensor();
  constexpr auto format = c10::MemoryFormat::ChannelsLast3d;
  if (image.dim() != 4 || !image.unsqueeze(0).is_contiguous(format)) {
    return;
  }
  for (c10::IValue& result : results) {
    const at::Tensor batch = result.toTensor().unsqueeze(0);
    result = at::empty(batch.sizes(), batch.options().memory_format(format)).squeeze(0);
  }
}

// ---- convolutions: (gradient of the result,) input, weight, bias, stride, padding, … ------------

// The format depends on which of its kernels PyTorch takes on the CPU: it is asked, with memory
// that nobody touches. Signals become images of one row, and lose their own order before.
c10::MemoryFormat format_of_convolution(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& given = arguments[0].toTensor();
  const bool signals = given.dim() == 3;
  const auto on_cpu = [](const at::Tensor& meta, c10::IntArrayRef strides) {
    return at::empty_strided(meta.sizes(), strides, meta.options().device(at::kCPU));
  };
  const c10::DimVector rows = c10::contiguous_strides(given.sizes());
  at::Tensor input = on_cpu(given, signals ? c10::IntArrayRef(rows) : given.strides());
  at::Tensor weight = on_cpu(arguments[1].toTensor(), arguments[1].toTensor().strides());
  const auto along_rows = [&](size_t place, int64_t of_row) {
    std::vector<int64_t> values = arguments[place].toIntVector();
    if (signals) {
      values.insert(values.begin(), of_row);
    }
    return values;
  };
  if (signals) {
    input = input.unsqueeze(2);
    weight = weight.unsqueeze(2);
  }
  const auto stride = along_rows(3, 1), padding = along_rows(4, 0), dilation = along_rows(5, 1),
             output_padding = along_rows(7, 0);
  const auto backend = at::native::select_conv_backend(
      input, weight, std::nullopt, c10::fromIntArrayRefSlow(stride),
      c10::fromIntArrayRefSlow(padding), c10::fromIntArrayRefSlow(dilation), arguments[6].toBool(),
      c10::fromIntArrayRefSlow(output_padding), arguments[8].toInt(), std::nullopt);
  return at::native::_determine_backend_memory_format(input, weight, backend);
}

void lay_in(c10::MemoryFormat format, c10::IValue& result) {
  if (!result.isTensor() || !result.toTensor().defined()) {
    return;
  }
  const at::Tensor& tensor = result.toTensor();
  result = tensor.dim() == 3 ? in_format(tensor.unsqueeze(2), format).squeeze(2)
                             : in_format(tensor, format);
}

void as_convolution(const IValues& arguments, IValues& results) {
  lay_in(format_of_convolution(arguments), results[0]);
}

void as_gradients_of_convolution(const IValues& arguments, IValues& results) {
  const auto format = format_of_convolution(c10::ArrayRef(arguments).slice(1));
  lay_in(format, results[0]);
  lay_in(format, results[1]);
}

// ---- Fourier transforms: other dimensions come first, each group in the order of memory ---------

void sort_by_strides(std::vector<int64_t>::iterator begin, std::vector<int64_t>::iterator end,
                     c10::IntArrayRef strides) {
  std::sort(begin, end, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
}

std::vector<int64_t> strides_of_transform(c10::IntArrayRef strides, c10::IntArrayRef sizes,
                                          const std::vector<int64_t>& dims) {
  std::vector<int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto others = std::partition(order.begin(), order.end(), [&](int64_t dim) {
    return std::find(dims.begin(), dims.end(), dim) == dims.end();
  });
  sort_by_strides(order.begin(), others, strides);
  std::copy(dims.begin(), dims.end(), others);
  std::vector<int64_t> result(sizes.size());
  int64_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    result[*dim] = step;
    step *= sizes[*dim];
  }
  return result;
}

// _fft_r2c(self, dim, …): the last of the dimensions stays last.
void as_halved_transform(const IValues& arguments, IValues& results) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& result = results[0].toTensor();
  std::vector<int64_t> dims = arguments[1].toIntVector();
  sort_by_strides(dims.begin(), dims.end() - 1, self.strides());
  results[0] = at::empty_strided(
      result.sizes(), strides_of_transform(self.strides(), result.sizes(), dims), result.options());
}

// _fft_c2r(self, dim, …): all dimensions but the last are transformed before.
void as_doubled_transform(const IValues& arguments, IValues& results) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& result = results[0].toTensor();
  std::vector<int64_t> dims = arguments[1].toIntVector(), strides = self.strides().vec();
  const std::vector<int64_t> last = {dims.back()};
  if (dims.size() > 1) {
    dims.pop_back();
    sort_by_strides(dims.begin(), dims.end(), strides);
    strides = strides_of_transform(strides, self.sizes(), dims);
  }
  results[0] = at::empty_strided(
      result.sizes(), strides_of_transform(strides, result.sizes(), last), result.options());
}

const std::unordered_map<std::string, Order>& orders() {
  static const auto* table = new std::unordered_map<std::string, Order>{
      {"aten::_fft_c2r", as_doubled_transform},
      {"aten::_fft_r2c", as_halved_transform},
      {"aten::angle", dense_if_complex},
      {"aten::channel_shuffle", in_format_of<0>},
      {"aten::complex", as_sum},
      {"aten::convolution", as_convolution},
      {"aten::convolution_backward", as_gradients_of_convolution},
      {"aten::floor_divide", as_sum},
      {"aten::hardswish_backward", as_sum},
      {"aten::hardtanh_backward", as_sum},
      {"aten::huber_loss_backward", dense},
      {"aten::im2col", dense},
      {"aten::logical_and", as_sum},
      {"aten::logical_or", as_sum},
      {"aten::logical_xor", as_sum},
      {"aten::logit", as_first},
      {"aten::masked_fill", dense},
      {"aten::max_pool3d_with_indices", as_batch_of_image},
      {"aten::mse_loss_backward", dense},
      {"aten::native_dropout_backward", as_first},
      {"aten::native_group_norm", in_format_of<0>},
      {"aten::native_group_norm_backward", in_format_of<1>},
      {"aten::normal", dense},
      {"aten::pixel_shuffle", in_format_of<0>},
      {"aten::polar", as_sum},
      {"aten::reflection_pad2d", in_format_of<0>},
      {"aten::reflection_pad3d", in_format_of<0>},
      {"aten::replication_pad2d", in_format_of<0>},
      {"aten::replication_pad3d", in_format_of<0>},
      {"aten::smooth_l1_loss_backward", dense},
  };
  return *table;
}

bool lies_in_order(const c10::IValue& argument) {
  return !argument.isTensor() || !argument.toTensor().defined() ||
         argument.toTensor().is_contiguous();
}

}  // namespace

void keep_order(const c10::OperatorHandle& op, const IValues& meta_arguments, IValues& results) {
  const auto found = orders().find(op.schema().name());
  if (found != orders().end() &&
      !std::all_of(meta_arguments.begin(), meta_arguments.end(), lies_in_order)) {
    found->second(meta_arguments, results);
  }
}

}  // namespace torch_xla
