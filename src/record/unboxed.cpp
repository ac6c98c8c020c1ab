#include "record/unboxed.h"

#include "eager/unboxed_call.h"
#include "record/call.h"
#include "record/eager_call.h"
#include "record/lent.h"
#include "record/recorder.h"

#include <ATen/Operators.h>

#include <string_view>
#include <unordered_map>

namespace torch_xla {

namespace {

// What a call returns, of its fresh results or of its arguments.
template <typename Result>
struct Returned {
  static Result of(Returns& fresh) { return std::move(fresh[0]).template to<Result>(); }
};
template <typename... Results>
struct Returned<std::tuple<Results...>> {
  static std::tuple<Results...> of(Returns& fresh) {
    return of(fresh, std::index_sequence_for<Results...>());
  }
  template <size_t... I>
  static std::tuple<Results...> of(Returns& fresh, std::index_sequence<I...>) {
    return {std::move(fresh[I]).template to<Results>()...};
  }
};

// Whether the CPU's kernel takes the argument as it is.
bool is_plain(const OpInfo& info, const at::Tensor& given) {
  return !given.is_conj() && !given.is_neg() &&
         (info.host.widened == nullptr || !is_better_widened(given.scalar_type()));
}
bool is_plain(const OpInfo& info, const std::optional<at::Tensor>& given) {
  return !given || is_plain(info, *given);
}
bool is_plain(const OpInfo&, const auto&) { return true; }

int64_t elements_in(const at::Tensor& given) { return elements_of(given); }
int64_t elements_in(const std::optional<at::Tensor>& given) {
  return given ? elements_of(*given) : 0;
}
template <typename Tensors>
int64_t elements_of_all(const Tensors& given) {
  int64_t elements = 0;
  for (const at::Tensor& tensor : given) {
    elements += elements_of(tensor);
  }
  return elements;
}
int64_t elements_in(const at::TensorList& given) { return elements_of_all(given); }
int64_t elements_in(const at::ITensorListRef& given) { return elements_of_all(given); }
int64_t elements_in(const auto&) { return 0; }

template <typename Op, typename Schema = typename Op::schema>
struct Unboxed;
template <typename Op, typename Result, typename... Given>
struct Unboxed<Op, Result(Given...)> {
  static torch::CppFunction kernel(const c10::OperatorHandle& op) {
    auto recorded = std::make_shared<RecordedOperator>(op);
    return torch::CppFunction([recorded](Given... given) -> Result {
      OpInfo& info = recorded->info();
      const bool on_host = runs_on_host(info, (elements_in(given) + ...));
      if (on_host && has_plain_kernel(info) && (is_plain(info, given) && ...)) {
        info.counter->add();
        return eager::UnboxedCall<Op>::run(info.host, current_device(), given...);
      }
      Returns fresh;
      {
        LentArguments<std::remove_cvref_t<Given>...> lent(given...);
        record_op(info, lent.values(), fresh, on_host);
      }
      if constexpr (std::is_void_v<Result>) {
        return;
      } else if constexpr (std::is_lvalue_reference_v<Result>) {
        return eager::written_of(given...);
      } else {
        return Returned<Result>::of(fresh);
      }
    });
  }
};

using MakeKernel = torch::CppFunction (*)(const c10::OperatorHandle& op);

template <typename Op>
std::pair<const std::string, MakeKernel> entry() {
  return {std::string(Op::name) + "." + Op::overload_name, &Unboxed<Op>::kernel};
}

template <typename... Ops>
std::unordered_map<std::string, MakeKernel> entries() {
  return {entry<Ops>()...};
}

namespace aten = at::_ops;

// Element by element.
std::unordered_map<std::string, MakeKernel> elementwise() {
  return entries<
      aten::add_Tensor, aten::add__Tensor, aten::sub_Tensor, aten::sub__Tensor, aten::mul_Tensor,
      aten::mul__Tensor, aten::div_Tensor, aten::div__Tensor, aten::pow_Tensor_Scalar,
      aten::pow_Tensor_Tensor, aten::maximum, aten::minimum, aten::neg, aten::abs, aten::exp,
      aten::log, aten::sqrt, aten::rsqrt, aten::reciprocal, aten::sigmoid, aten::sigmoid_backward,
      aten::tanh, aten::tanh_backward, aten::relu, aten::relu_, aten::gelu, aten::gelu_backward,
      aten::silu, aten::silu_backward, aten::threshold_backward, aten::leaky_relu,
      aten::leaky_relu_backward, aten::sin, aten::cos, aten::clamp, aten::clamp_min,
      aten::eq_Tensor, aten::eq_Scalar, aten::ne_Tensor, aten::ne_Scalar, aten::lt_Tensor,
      aten::lt_Scalar, aten::le_Tensor, aten::le_Scalar, aten::gt_Tensor, aten::gt_Scalar,
      aten::ge_Tensor, aten::ge_Scalar, aten::bitwise_and_Tensor, aten::bitwise_or_Tensor,
      aten::bitwise_not, aten::logical_not, aten::logical_and, aten::where_self,
      aten::masked_fill_Scalar, aten::masked_fill_Tensor, aten::masked_fill__Scalar,
      aten::lerp_Scalar, aten::lerp__Scalar, aten::addcmul, aten::addcmul_, aten::addcdiv,
      aten::addcdiv_, aten::fill__Scalar, aten::zero_, aten::isfinite>();
}

std::unordered_map<std::string, MakeKernel> others() {
  return entries<aten::mm, aten::bmm, aten::addmm, aten::baddbmm, aten::sum_dim_IntList,
                 aten::mean_dim, aten::amax, aten::amin, aten::argmax, aten::max_dim, aten::any,
                 aten::all, aten::cumsum, aten::_softmax, aten::_softmax_backward_data,
                 aten::_log_softmax, aten::_log_softmax_backward_data, aten::nll_loss_forward,
                 aten::nll_loss_backward, aten::native_layer_norm, aten::native_layer_norm_backward,
                 aten::native_group_norm, aten::native_group_norm_backward, aten::embedding,
                 aten::embedding_dense_backward, aten::convolution_backward,
                 aten::max_pool2d_with_indices, aten::max_pool2d_with_indices_backward,
                 aten::_adaptive_avg_pool2d, aten::_adaptive_avg_pool2d_backward, aten::cat,
                 aten::stack, aten::index_Tensor, aten::index_select, aten::gather,
                 aten::scatter_src, aten::scatter_value, aten::scatter_add, aten::index_add,
                 aten::topk, aten::sort, aten::tril, aten::triu, aten::repeat, aten::flip,
                 aten::roll>();
}

// Optimizers' steps, over lists.
std::unordered_map<std::string, MakeKernel> of_lists() {
  return entries<aten::_foreach_add_Scalar, aten::_foreach_add__Scalar, aten::_foreach_add_List,
                 aten::_foreach_add__List, aten::_foreach_sub_List, aten::_foreach_sub__List,
                 aten::_foreach_mul_Scalar, aten::_foreach_mul__Scalar, aten::_foreach_mul_List,
                 aten::_foreach_mul__List, aten::_foreach_mul__Tensor,
                 aten::_foreach_mul__ScalarList, aten::_foreach_div_List, aten::_foreach_div__List,
                 aten::_foreach_div__Scalar, aten::_foreach_div__ScalarList,
                 aten::_foreach_lerp__Scalar, aten::_foreach_addcmul__Scalar,
                 aten::_foreach_addcdiv__Scalar, aten::_foreach_addcdiv__ScalarList,
                 aten::_foreach_sqrt, aten::_foreach_sqrt_, aten::_foreach_neg, aten::_foreach_neg_,
                 aten::_foreach_maximum__List, aten::_foreach_zero_, aten::_foreach_norm_Scalar,
                 aten::_fused_adam_, aten::_fused_adamw_, aten::_fused_sgd_>();
}

const std::unordered_map<std::string, MakeKernel>& kernels() {
  static const auto& all = *new std::unordered_map<std::string, MakeKernel>([] {
    std::unordered_map<std::string, MakeKernel> found = elementwise();
    found.merge(others());
    found.merge(of_lists());
    return found;
  }());
  return all;
}

}  // namespace

bool register_unboxed(torch::Library& library, const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const auto found = kernels().find(name.name + "." + name.overload_name);
  if (found == kernels().end()) {
    return false;
  }
  library.impl(c10::toString(name).c_str(), found->second(op));
  return true;
}

}  // namespace torch_xla
