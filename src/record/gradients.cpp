// Gradients, and a loss, whose formulas in PyTorch read a value on the host (is the maximum NaN? is
// a factor zero?): the same without a read, so that a step neither cuts the graph nor fails in a
// trace.
#include "eager/mode.h"
#include "record/registration.h"
#include "record/transformed.h"
#include "trace/tensor.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The elements that are the result share the gradient.
Tensor shared_gradient(const Tensor& gradient, const Tensor& input, const Tensor& result) {
  Tensor chosen = (input == result).logical_or(input.isnan().logical_and(result.isnan()));
  Tensor nothing = at::zeros({}, gradient.options());
  return at::where(chosen, gradient / chosen.sum(), nothing).contiguous();
}

// Of each element, the product of the others along `dim`.
Tensor products_of_others(const Tensor& input, int64_t dim) {
  int64_t size = input.size(dim);
  if (size <= 1) {
    return at::ones_like(input);
  }
  Tensor one = at::ones_like(input.narrow(dim, 0, 1));
  Tensor before = at::cat({one, input.narrow(dim, 0, size - 1)}, dim).cumprod(dim);
  Tensor after = at::cat({one, input.narrow(dim, 1, size - 1).flip(dim)}, dim).cumprod(dim);
  return before * after.flip(dim);
}

// The product of what is not zero, divided by each such factor: the products of the others, unless
// there is another zero among them. It cannot be differentiated at zeros.
Tensor quotients(const Tensor& input, int64_t dim) {
  const Tensor is_zero = input == 0, one = at::ones({}, input.options());
  const Tensor factors = at::where(is_zero, one, input);
  const Tensor has_no_other = is_zero.sum(dim, true) == is_zero;
  return at::where(has_no_other, factors.prod(dim, true) / factors, at::zeros({}, input.options()));
}

// As PyTorch's formulas have it, a quotient where there is no zero.
Tensor product_gradient(const Tensor& gradient, const Tensor& input, const Tensor& result,
                        int64_t dim) {
  if (!at::GradMode::is_enabled()) {
    return gradient * quotients(input, dim).conj();
  }
  const Tensor is_zero = input == 0;
  const Tensor quotient = result / at::where(is_zero, at::ones({}, input.options()), input);
  const Tensor factors =
      at::where(is_zero.any().logical_not(), quotient, products_of_others(input, dim));
  return gradient * factors.conj();
}

Tensor sum_from(const Tensor& values, int64_t dim) {
  return values.flip(dim).cumsum(dim).flip(dim);
}

// Can be differentiated again: one product for each element along `dim`.
Tensor cumprod_gradient_by_elements(const Tensor& gradient, const Tensor& input, int64_t dim) {
  std::vector<Tensor> gradients;
  int64_t size = input.size(dim);
  Tensor one = at::ones_like(input.narrow(dim, 0, 1));
  for (int64_t i = 0; i < size; ++i) {
    Tensor others =
        at::cat({input.narrow(dim, 0, i), one, input.narrow(dim, i + 1, size - i - 1)}, dim);
    Tensor products = others.cumprod(dim).narrow(dim, i, size - i);
    gradients.push_back((gradient.narrow(dim, i, size - i) * products.conj()).sum(dim, true));
  }
  return at::cat(gradients, dim);
}

// Before the first zero dy_j / dx_i is y_j / x_i; for the first zero it is the product of the
// others; after it, nothing. A product that became zero for being small changes none of that.
Tensor cumprod_gradient(const Tensor& gradient, const Tensor& input, const Tensor& result,
                        int64_t dim) {
  if (at::GradMode::is_enabled()) {
    return cumprod_gradient_by_elements(gradient, input, dim);
  }
  const Tensor one = at::ones({}, input.options());
  const Tensor nothing = at::zeros({}, gradient.options());
  const Tensor is_zero = input == 0;
  const Tensor ended = result == 0;
  const Tensor began = at::zeros_like(ended.narrow(dim, 0, 1));
  const Tensor ended_before = at::cat({began, ended.narrow(dim, 0, ended.size(dim) - 1)}, dim);
  const Tensor first = is_zero.logical_and(ended_before.logical_not());
  const Tensor weighted = at::where(ended, nothing, gradient * result.conj());
  const Tensor before = sum_from(weighted, dim) / at::where(is_zero, one, input).conj();
  const Tensor others = at::where(first, one, input).cumprod(dim).conj();
  const Tensor at_zero = at::where(ended, gradient * others, nothing).sum(dim, true);
  return at::where(first, at_zero, before);
}

int64_t wrapped(int64_t dim, const Tensor& input) { return at::maybe_wrap_dim(dim, input.dim()); }

template <Tensor (*kOperator)(const Tensor&)>
struct Chosen : torch::autograd::Function<Chosen<kOperator>> {
  static Tensor forward(AutogradContext* context, const Tensor& input) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor result = kOperator(input);
    context->save_for_backward({input, result});
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    return {shared_gradient(gradients[0], saved[0], saved[1])};
  }
};

struct Product : torch::autograd::Function<Product> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        std::optional<at::ScalarType> dtype) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor result = at::prod(input, dtype);
    context->save_for_backward({input, result});
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    const Tensor& input = saved[0];
    Tensor flat = input.to(gradients[0].scalar_type()).reshape(-1);
    Tensor gradient = product_gradient(gradients[0], flat, saved[1], 0);
    return {gradient.reshape(input.sizes()).to(input.scalar_type()), Tensor()};
  }
};

struct ProductAlong : torch::autograd::Function<ProductAlong> {
  static Tensor forward(AutogradContext* context, const Tensor& input, int64_t dim, bool keepdim,
                        std::optional<at::ScalarType> dtype) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor result = at::prod(input, dim, keepdim, dtype);
    context->save_for_backward({input, result});
    context->saved_data["dim"] = wrapped(dim, input);
    context->saved_data["keepdim"] = keepdim;
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    const Tensor& input = saved[0];
    int64_t dim = context->saved_data["dim"].toInt();
    Tensor gradient = gradients[0], result = saved[1];
    if (input.dim() > 0) {
      if (!context->saved_data["keepdim"].toBool()) {
        gradient = gradient.unsqueeze(dim);
        result = result.unsqueeze(dim);
      }
      gradient = product_gradient(gradient, input.to(gradient.scalar_type()), result, dim);
    }
    return {gradient.to(input.scalar_type()), Tensor(), Tensor(), Tensor()};
  }
};

struct CumulativeProduct : torch::autograd::Function<CumulativeProduct> {
  static Tensor forward(AutogradContext* context, const Tensor& input, int64_t dim,
                        std::optional<at::ScalarType> dtype) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor result = at::cumprod(input, dim, dtype);
    context->save_for_backward({input, result});
    context->saved_data["dim"] = wrapped(dim, input);
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    Tensor gradient = gradients[0];
    if (saved[0].dim() > 0 && saved[0].numel() > 0) {
      gradient = cumprod_gradient(gradient, saved[0].to(gradient.scalar_type()), saved[1],
                                  context->saved_data["dim"].toInt());
    }
    return {gradient.to(saved[0].scalar_type()), Tensor(), Tensor()};
  }
};

// PyTorch's own autograd kernel of the operator.
template <typename Operator, typename... Arguments>
decltype(auto) with_its_own_gradient(c10::DispatchKeySet keys, Arguments&&... arguments) {
  const c10::DispatchKeySet own =
      c10::DispatchKeySet(c10::DispatchKey::AutogradOther) | (keys & c10::after_autograd_keyset);
  return Operator::redispatch(own, std::forward<Arguments>(arguments)...);
}

// Eager mode's values are there: PyTorch's formulas do less where they find no zero, or one
// maximum.
bool takes_pytorchs_formula(const Tensor& input) {
  return is_transformed(input) || eager::mode() == eager::Mode::Host;
}

template <Tensor (*kOperator)(const Tensor&), typename Operator>
Tensor chosen(c10::DispatchKeySet keys, const Tensor& input) {
  return takes_pytorchs_formula(input) ? with_its_own_gradient<Operator>(keys, input)
                                       : Chosen<kOperator>::apply(input);
}

Tensor prod(c10::DispatchKeySet keys, const Tensor& input, std::optional<at::ScalarType> dtype) {
  return takes_pytorchs_formula(input) ? with_its_own_gradient<at::_ops::prod>(keys, input, dtype)
                                       : Product::apply(input, dtype);
}

Tensor prod_along(c10::DispatchKeySet keys, const Tensor& input, int64_t dim, bool keepdim,
                  std::optional<at::ScalarType> dtype) {
  return takes_pytorchs_formula(input)
             ? with_its_own_gradient<at::_ops::prod_dim_int>(keys, input, dim, keepdim, dtype)
             : ProductAlong::apply(input, dim, keepdim, dtype);
}

Tensor cumprod(c10::DispatchKeySet keys, const Tensor& input, int64_t dim,
               std::optional<at::ScalarType> dtype) {
  return takes_pytorchs_formula(input)
             ? with_its_own_gradient<at::_ops::cumprod>(keys, input, dim, dtype)
             : CumulativeProduct::apply(input, dim, dtype);
}

Tensor& cumprod_(c10::DispatchKeySet keys, Tensor& self, int64_t dim,
                 std::optional<at::ScalarType> dtype) {
  if (dtype || !at::GradMode::is_enabled() || !self.requires_grad() ||
      takes_pytorchs_formula(self)) {
    with_its_own_gradient<at::_ops::cumprod_>(keys, self, dim, dtype);
    return self;
  }
  return self.copy_(at::cumprod(self.clone(), dim));  // its gradient needs what was there
}

// x[mask] = token: PyTorch selects the gradients of the token, of which there are as many as the
// mask has places. Those of a choice between the token and x need no number.
bool is_learnt(const Tensor& self, const Tensor& mask, const Tensor& value) {
  return at::GradMode::is_enabled() && value.requires_grad() && !is_transformed(self) &&
         !is_transformed(value) && value.scalar_type() == self.scalar_type() &&
         mask.scalar_type() == at::kBool && mask.device() == self.device() &&
         value.device() == self.device();
}

Tensor masked_fill(c10::DispatchKeySet keys, const Tensor& self, const Tensor& mask,
                   const Tensor& value) {
  return value.dim() == 0 && is_learnt(self, mask, value)
             ? at::where(mask, value, self)
             : with_its_own_gradient<at::_ops::masked_fill_Tensor>(keys, self, mask, value);
}

Tensor& masked_fill_(c10::DispatchKeySet keys, Tensor& self, const Tensor& mask,
                     const Tensor& value) {
  if (value.dim() == 0 && is_learnt(self, mask, value)) {
    return self.copy_(at::where(mask, value, self));
  }
  with_its_own_gradient<at::_ops::masked_fill__Tensor>(keys, self, mask, value);
  return self;
}

using Indices = c10::List<std::optional<Tensor>>;

// x with one value for all places of its first dimensions that one mask chooses, or an undefined
// tensor.
Tensor choice(const Tensor& self, const Indices& indices, const Tensor& values, bool accumulate) {
  const std::optional<Tensor> mask = indices.size() == 1 ? indices.get(0) : std::nullopt;
  if (accumulate || !mask || !mask->defined() || self.dim() == 0 || mask->dim() > self.dim() ||
      mask->sizes() != self.sizes().slice(0, mask->dim()) || !is_learnt(self, *mask, values)) {
    return {};
  }
  const auto rest = self.sizes().slice(mask->dim());
  const bool one = values.dim() == static_cast<int64_t>(rest.size()) + 1 && values.size(0) == 1;
  const Tensor value = one ? values.squeeze(0) : values;
  if (!at::is_expandable_to(value.sizes(), rest)) {
    return {};
  }
  std::vector<int64_t> sizes = mask->sizes().vec();
  sizes.resize(self.dim(), 1);
  return at::where(mask->reshape(sizes), value, self);
}

Tensor index_put(c10::DispatchKeySet keys, const Tensor& self, const Indices& indices,
                 const Tensor& values, bool accumulate) {
  const Tensor chosen = choice(self, indices, values, accumulate);
  return chosen.defined()
             ? chosen
             : with_its_own_gradient<at::_ops::index_put>(keys, self, indices, values, accumulate);
}

Tensor& index_put_(c10::DispatchKeySet keys, Tensor& self, const Indices& indices,
                   const Tensor& values, bool accumulate) {
  const Tensor chosen = choice(self, indices, values, accumulate);
  if (chosen.defined()) {
    return self.copy_(chosen);
  }
  with_its_own_gradient<at::_ops::index_put_>(keys, self, indices, values, accumulate);
  return self;
}

// The chosen elements in their order, then zeros. The others go to a place that is cut off.
Tensor masked_scatter_backward(const Tensor& gradient, const Tensor& mask, at::IntArrayRef sizes) {
  at::AutoDispatchBelowADInplaceOrView guard;
  const int64_t most = c10::multiply_integers(sizes);
  const Tensor chosen = mask.expand(gradient.sizes()).reshape(-1);
  const Tensor place = at::where(chosen, chosen.cumsum(0) - 1, most).clamp_max(most);
  return at::zeros({most + 1}, gradient.options())
      .scatter(0, place, gradient.reshape(-1))
      .narrow(0, 0, most)
      .reshape(sizes);
}

// The mean over what is not ignored, by weights. PyTorch's of smoothed labels selects these.
Tensor cross_entropy(c10::DispatchKeySet keys, const Tensor& input, const Tensor& target,
                     const std::optional<Tensor>& weight, int64_t reduction,
                     c10::SymInt ignore_index, double label_smoothing) {
  const bool selects = weight && weight->defined() && !weight->requires_grad() &&
                       reduction == at::Reduction::Mean && label_smoothing > 0 &&
                       !at::isFloatingType(target.scalar_type()) && !is_transformed(input) &&
                       !is_transformed(target) && !is_transformed(*weight);
  if (!selects) {
    return with_its_own_gradient<at::_ops::cross_entropy_loss>(
        keys, input, target, weight, reduction, std::move(ignore_index), label_smoothing);
  }
  const Tensor sum = at::cross_entropy_loss_symint(input, target, weight, at::Reduction::Sum,
                                                   ignore_index, label_smoothing);
  const Tensor ignored = target.eq(ignore_index.guard_int(__FILE__, __LINE__)).flatten();
  const Tensor weights = weight->gather(0, target.flatten().masked_fill(ignored, 0));
  return sum / weights.masked_fill(ignored, 0).sum();
}

// What autograd knows to be zero: PyTorch's kernels of the key ZeroTensor compute nothing with it,
// so that infinity times it is zero.
Tensor known_zeros(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout> layout, std::optional<at::Device> device,
                   std::optional<bool> /*pin_memory*/) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Tensor zeros = at::zeros(sizes, dtype, layout, device, std::nullopt);
  Tensor known = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(zeros.storage()),
      c10::DispatchKeySet({c10::DispatchKey::XLA, c10::DispatchKey::ZeroTensor}), zeros.dtype());
  known.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return known;
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("cross_entropy_loss", &cross_entropy);
  m.impl("masked_fill.Tensor", &masked_fill);
  m.impl("masked_fill_.Tensor", &masked_fill_);
  m.impl("index_put", &index_put);
  m.impl("index_put_", &index_put_);
  m.impl("max", &chosen<&at::max, at::_ops::max>);
  m.impl("min", &chosen<&at::min, at::_ops::min>);
  m.impl("median", &chosen<&at::median, at::_ops::median>);
  m.impl("nanmedian", &chosen<&at::nanmedian, at::_ops::nanmedian>);
  m.impl("prod", &prod);
  m.impl("prod.dim_int", &prod_along);
  m.impl("cumprod", &cumprod);
  m.impl("cumprod_", &cumprod_);
}

}  // namespace

void register_gradients(torch::Library& m) {
  m.impl("masked_scatter_backward", &masked_scatter_backward);
  m.impl("_efficientzerotensor", &known_zeros);
}

}  // namespace torch_xla
