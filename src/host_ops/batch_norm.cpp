#include "host_ops/batch_norm.h"

#include "host_ops/lane_sums.h"
#include "host_ops/lanes.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_like.h>

namespace torch_xla {

namespace {

using at::Tensor;

// native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean,
//                            save_invstd, train, eps, output_mask)
enum Argument : size_t { kGradient, kInput, kWeight, kMean = 5, kDeviation, kTrain, kMask = 9 };

// One value for each channel.
Tensor per_channel(const c10::IValue& argument) { return argument.toTensor().to(at::kFloat); }

struct Call {
  explicit Call(const torch::jit::Stack& arguments)
      : gradient(arguments[kGradient].toTensor()),
        input(arguments[kInput].toTensor()),
        mean(per_channel(arguments[kMean])),
        inverse_deviation(per_channel(arguments[kDeviation])),
        of_weight(at::empty_like(mean)),
        of_bias(at::empty_like(mean)) {
    if (arguments[kWeight].isTensor() && arguments[kWeight].toTensor().defined()) {
      weight = per_channel(arguments[kWeight]);
    }
  }

  const Tensor& gradient;
  const Tensor& input;
  Tensor mean, inverse_deviation, weight, of_weight, of_bias;
  Tensor of_input;  // undefined: not wanted
};

// (gradient - mean_gradient - (input - mean) * slope) * scale
struct Line {
  float mean, mean_gradient, slope, scale;

  template <typename Lanes, typename T>
  TORCH_XLA_INLINE void write(const T* gradient, const T* input, int64_t count, T* result) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= count; i += kLanes<Lanes>) {
      const Lanes off = load_lanes<Lanes>(input + i) - mean;
      store_lanes(result + i,
                  (load_lanes<Lanes>(gradient + i) - mean_gradient - off * slope) * scale);
    }
    for (; i < count; ++i) {
      const float off = static_cast<float>(input[i]) - mean;
      result[i] = (static_cast<float>(gradient[i]) - mean_gradient - off * slope) * scale;
    }
  }
};

template <typename T>
struct WriteChannels {
  const Call& call;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t c = 0; c < call.input.size(1); ++c) {
      write<Lanes>(c);
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE void write(int64_t c) const {
    const T* gradient = call.gradient.const_data_ptr<T>() + c * call.gradient.stride(1);
    const T* input = call.input.const_data_ptr<T>() + c * call.input.stride(1);
    const int64_t images = call.input.size(0), pixels = call.input.stride(1);
    const int64_t from_gradient = call.gradient.stride(0), from_input = call.input.stride(0);
    const float mean = call.mean.const_data_ptr<float>()[c];
    const float inverse = call.inverse_deviation.const_data_ptr<float>()[c];
    LaneSums<Lanes, 2> sums;
    for (int64_t n = 0; n < images; ++n) {
      sums.add(pixels, GradientTerm<T>{gradient + n * from_gradient, input + n * from_input,
                                       nullptr, mean});
    }
    const float of_gradient = sums.sum(0), of_product = sums.sum(1);
    call.of_weight.mutable_data_ptr<float>()[c] = of_product * inverse;
    call.of_bias.mutable_data_ptr<float>()[c] = of_gradient;
    if (!call.of_input.defined()) {
      return;
    }
    const auto count = static_cast<float>(images * pixels);
    const float weight = call.weight.defined() ? call.weight.const_data_ptr<float>()[c] : 1;
    const Line line{mean, of_gradient / count, of_product * inverse * inverse / count,
                    inverse * weight};
    T* result = call.of_input.mutable_data_ptr<T>() + c * call.of_input.stride(1);
    for (int64_t n = 0; n < images; ++n) {
      line.write<Lanes>(gradient + n * from_gradient, input + n * from_input, pixels,
                        result + n * call.of_input.stride(0));
    }
  }
};

}  // namespace

bool takes_batch_norm_gradient(const torch::jit::Stack& arguments) {
  constexpr int64_t kWorthwhile = 1 << 14;  // numbers
  const Tensor &gradient = arguments[kGradient].toTensor(), &input = arguments[kInput].toTensor();
  const at::ScalarType dtype = input.scalar_type();
  return arguments[kTrain].toBool() && has_lanes(dtype) && gradient.scalar_type() == dtype &&
         input.dim() > 2 && input.numel() >= kWorthwhile && input.is_contiguous() &&
         gradient.is_contiguous() && input.stride(1) >= kMostLanes;
}

void write_batch_norm_gradient(const torch::jit::Stack& arguments, c10::ArrayRef<Tensor> results) {
  const c10::List<bool> mask = arguments[kMask].toBoolList();
  Call call(arguments);
  size_t next = 0;
  if (mask[0]) {
    call.of_input = results[next++];
  }
  with_lane_type(call.input.scalar_type(), [&]<typename T>(std::type_identity<T>) {
    with_widest_lanes(WriteChannels<T>{call});
  });
  if (mask[1]) {
    results[next++].copy_(call.of_weight);
  }
  if (mask[2]) {
    results[next++].copy_(call.of_bias);
  }
}

}  // namespace torch_xla
