#include "record/plain_images.h"

#include "record/plain_rules.h"

#include <ATen/native/ConvUtils.h>

namespace torch_xla::plain {

namespace {

bool all_at_least(const std::vector<int64_t>& values, int64_t least, size_t count) {
  return values.size() == count &&
         std::all_of(values.begin(), values.end(), [least](int64_t v) { return v >= least; });
}

// What is added to one side of a transposed convolution's result.
bool fit_between(const std::vector<int64_t>& added, const std::vector<int64_t>& stride,
                 const std::vector<int64_t>& dilation) {
  bool fit = added.size() == stride.size();
  for (size_t i = 0; fit && i < added.size(); ++i) {
    fit = added[i] >= 0 && added[i] < std::max(stride[i], dilation[i]);
  }
  return fit;
}

// Of one image, or of several.
bool is_image(const at::Tensor& tensor) {
  return (tensor.dim() == 3 || tensor.dim() == 4) && tensor.numel() > 0;
}

IValues with_pixels(const at::Tensor& image, int64_t height, int64_t width) {
  std::vector<int64_t> sizes = image.sizes().vec();
  sizes[sizes.size() - 2] = height;
  sizes[sizes.size() - 1] = width;
  return {result(sizes, image)};
}

}  // namespace

std::optional<IValues> convolution(const IValues& arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const std::vector<int64_t> stride = arguments[3].toIntVector(),
                             padding = arguments[4].toIntVector(),
                             dilation = arguments[5].toIntVector();
  const size_t spatial = input.dim() < 3 ? 0 : static_cast<size_t>(input.dim() - 2);
  const int64_t groups = arguments[8].toInt();
  if (spatial == 0 || weight.dim() != input.dim() || groups < 1 ||
      !all_at_least(stride, 1, spatial) || !all_at_least(padding, 0, spatial) ||
      !all_at_least(dilation, 1, spatial) || input.numel() == 0 || weight.numel() == 0 ||
      weight.size(0) % groups != 0) {
    return std::nullopt;
  }
  const bool transposed = arguments[6].toBool();
  const std::vector<int64_t> added = arguments[7].toIntVector();
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  const int64_t given = transposed ? weight.size(0) : weight.size(1) * groups;
  if (given != input.size(1) || !has_sizes(arguments[2], {channels}) ||
      (transposed && !fit_between(added, stride, dilation))) {
    return std::nullopt;
  }
  const std::vector<int64_t> sizes =
      transposed
          ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, added, stride,
                                        dilation, groups)
          : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 1; })) {
    return std::nullopt;
  }
  return IValues{result(sizes, input)};
}

std::optional<IValues> convolution_backward(const IValues& arguments) {
  const at::Tensor& weight = arguments[2].toTensor();
  const at::Tensor bias =
      arguments[3].isNone() ? at::Tensor() : result(arguments[3].toIntVector(), weight);
  return wanted(arguments, {arguments[1].toTensor(), weight, bias});
}

std::optional<IValues> grid_sampler(const IValues& arguments) {
  const at::Tensor &input = arguments[0].toTensor(), &grid = arguments[1].toTensor();
  if (!input.is_meta() || !plain_dtype(input.scalar_type()) || input.is_neg() ||
      grid.scalar_type() != input.scalar_type() || input.dim() != 4 || grid.dim() != 4 ||
      input.size(0) != grid.size(0) || grid.size(3) != 2 || input.numel() == 0) {
    return std::nullopt;
  }
  return IValues{result({input.size(0), input.size(1), grid.size(1), grid.size(2)}, input)};
}

std::optional<IValues> adaptive_pool(const IValues& arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<int64_t> sizes = arguments[1].toIntVector();
  if (!is_image(self) || !all_at_least(sizes, 1, 2)) {
    return std::nullopt;
  }
  return with_pixels(self, sizes[0], sizes[1]);
}

std::optional<IValues> adaptive_pool_backward(const IValues& arguments) {
  const at::Tensor &gradient = arguments[0].toTensor(), &self = arguments[1].toTensor();
  const bool fits =
      is_image(self) && plain_floats({self}) && gradient.dim() == self.dim() &&
      is_plain_gradient(gradient, self.scalar_type()) && gradient.numel() > 0 &&
      gradient.sizes().slice(0, self.dim() - 2) == self.sizes().slice(0, self.dim() - 2);
  return fits ? Results(IValues{result(self.sizes(), self)}) : std::nullopt;
}

std::optional<IValues> reflected(const IValues& arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<int64_t> padding = arguments[1].toIntVector();
  if (!is_image(self) || !all_at_least(padding, 0, 4)) {
    return std::nullopt;
  }
  const int64_t height = self.size(-2), width = self.size(-1);
  if (std::max(padding[0], padding[1]) >= width || std::max(padding[2], padding[3]) >= height) {
    return std::nullopt;
  }
  return with_pixels(self, height + padding[2] + padding[3], width + padding[0] + padding[1]);
}

}  // namespace torch_xla::plain
