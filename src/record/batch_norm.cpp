// Batch normalization writes running statistics that its old schema declares as read; it is
// recorded by newer names that say what is written.
#include "record/registration.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/_native_batch_norm_legit_no_training.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> native_batch_norm(const Tensor& given,
                                                     const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& bias,
                                                     const std::optional<Tensor>& running_mean,
                                                     const std::optional<Tensor>& running_var,
                                                     bool training, double momentum, double eps) {
  at::AutoDispatchBelowADInplaceOrView guard;
  // The CPU's results lie in the order of a memory format, whatever the input's.
  const Tensor input = given.contiguous(given.suggest_memory_format());
  bool has_statistics = running_mean && running_mean->defined();
  if (!has_statistics) {
    return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
  }
  Tensor mean = *running_mean;
  Tensor variance = *running_var;
  if (!training) {
    return at::_native_batch_norm_legit_no_training(input, weight, bias, mean, variance, momentum,
                                                    eps);
  }
  return at::_native_batch_norm_legit(input, weight, bias, mean, variance, training, momentum, eps);
}

}  // namespace

void register_batch_norm(torch::Library& m) { m.impl("native_batch_norm", &native_batch_norm); }

}  // namespace torch_xla
