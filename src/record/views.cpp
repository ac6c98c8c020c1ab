// Views as autograd sees them. PyTorch takes tensors of a device called `xla` for ones without
// strides, and keeps for each view the functions that led to it, copied from view to view, to be
// replayed after a write. Tensors of ours have strides: they are kept as views of the CPU's are, by
// sizes, strides and offset.
#include <ATen/Operators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch_xla {

namespace {

using at::Tensor;
using torch::autograd::CreationMeta;
using torch::autograd::DifferentiableViewMeta;
using torch::autograd::ViewInfo;
using Replay = std::function<Tensor(const Tensor&)>;

// A view that strides do not describe (conjugate, say): made again by its operator.
class ReplayedView final : public torch::autograd::ViewFunc {
 public:
  explicit ReplayedView(Replay replay) : replay_(std::move(replay)) {}

  Tensor operator()(const Tensor& base) const override { return replay_(base); }

  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> /*symints*/,
      std::optional<std::vector<Tensor>> /*tensors*/) const override {
    return std::make_unique<ReplayedView>(replay_);
  }

 private:
  Replay replay_;
};

// `replay` is empty where strides say all.
ViewInfo view_info(const ViewInfo* known, const Tensor& self, const Tensor& view,
                   const Replay& replay) {
  auto function = [](const Replay& made) {
    return made ? std::make_unique<ReplayedView>(made) : nullptr;
  };
  if (known == nullptr) {
    return {self, function(replay), nullptr};
  }
  if (!replay || known->has_view_fn()) {
    return known->chain(self, view, function(replay));
  }
  Replay whole = [replay, sizes = self.sym_sizes().vec(), strides = self.sym_strides().vec(),
                  offset = self.sym_storage_offset()](const Tensor& base) {
    return replay(base.as_strided_symint(sizes, strides, offset));
  };
  return {known->base_, function(whole), nullptr};
}

// What PyTorch's kernels made of the result for autograd, given to a view of `self`.
void make_view(const Tensor& self, const Tensor& view, const Replay& replay, bool forward,
               CreationMeta creation) {
  c10::intrusive_ptr<torch::autograd::Node> gradient;
  uint32_t output = 0;
  std::shared_ptr<torch::autograd::ForwardGrad> tangent;
  if (auto* made = torch::autograd::impl::get_autograd_meta(view)) {
    gradient = std::move(made->grad_fn_);
    output = made->output_nr_;
    tangent = std::move(made->fw_grad_);
    view.unsafeGetTensorImpl()->set_autograd_meta(nullptr);
  }
  const DifferentiableViewMeta* of = torch::autograd::impl::get_view_autograd_meta(self);
  const ViewInfo* backward_of = of && of->has_bw_view() ? &of->get_backward_view() : nullptr;
  if (backward_of != nullptr) {
    creation = torch::autograd::propagate_creation_meta(of->get_creation_meta(), creation);
  }
  const bool shared = forward && (of == nullptr || of->shared_view_info());
  std::optional<ViewInfo> forward_info;
  if (forward && !shared) {
    forward_info =
        view_info(of->has_fw_view() ? &of->get_forward_view() : nullptr, self, view, replay);
  }
  torch::autograd::make_variable_differentiable_view(
      view, view_info(backward_of, self, view, replay), std::move(forward_info), shared, creation);
  auto* meta = torch::autograd::impl::get_autograd_meta(view);
  meta->grad_fn_ = std::move(gradient);
  meta->output_nr_ = output;
  meta->fw_grad_ = std::move(tangent);
}

bool is_strided_on_device(const Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers =
      c10::python_ks |
      c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchGradWrapper,
                           c10::DispatchKey::FuncTorchBatched});
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has(c10::DispatchKey::XLA) && keys.has(c10::DispatchKey::ADInplaceOrView) &&
         !keys.has_any(kWrappers);
}

enum class Kind { Strided, Reinterpreted, BackwardOnly };

template <typename Operator, Kind kKind, typename Schema = typename Operator::schema>
struct View;

template <typename Operator, Kind kKind, typename Result, typename... Arguments>
struct View<Operator, kKind, Result(const Tensor&, Arguments...)> {
  static Result make(c10::DispatchKeySet keys, const Tensor& self, Arguments... arguments) {
    // PyTorch's kernel for autograd, and behind it the one that makes views.
    const c10::DispatchKeySet own =
        c10::DispatchKeySet(c10::DispatchKey::AutogradOther) | (keys & c10::after_autograd_keyset);
    if (!keys.has(c10::DispatchKey::ADInplaceOrView) || !is_strided_on_device(self)) {
      return Operator::redispatch(own, self, arguments...);
    }
    Result result = kKind == Kind::BackwardOnly || views_in_tangents(self)
                        ? Operator::redispatch(own, self, arguments...)
                        : without_views(own, self, arguments...);
    Replay replay;
    if constexpr (kKind == Kind::Reinterpreted) {
      replay = [arguments...](const Tensor& base) { return Operator::call(base, arguments...); };
    }
    constexpr bool kForward = kKind != Kind::BackwardOnly;
    const bool recorded = at::GradMode::is_enabled();
    if constexpr (std::is_same_v<Result, Tensor>) {
      make_view(self, result, replay, kForward,
                recorded ? CreationMeta::DEFAULT : CreationMeta::NO_GRAD_MODE);
    } else {
      for (const Tensor& part : result) {
        make_view(self, part, replay, kForward,
                  recorded ? CreationMeta::MULTI_OUTPUT_NODE : CreationMeta::NO_GRAD_MODE);
      }
    }
    return result;
  }

 private:
  // The kernel makes tangents by the same operator: they must be views, too.
  static bool views_in_tangents(const Tensor& self) { return self._fw_grad(/*level=*/0).defined(); }

  static Result without_views(c10::DispatchKeySet keys, const Tensor& self,
                              Arguments... arguments) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::ADInplaceOrView);
    return Operator::redispatch(keys.remove(c10::DispatchKey::ADInplaceOrView), self, arguments...);
  }
};

template <Kind kKind, typename... Operators>
void register_views(torch::Library& m) {
  auto add = [&m](const std::string& name, const std::string& overload, auto* kernel) {
    m.impl((overload.empty() ? name : name + "." + overload).c_str(), kernel);
  };
  (add(Operators::name, Operators::overload_name, &View<Operators, kKind>::make), ...);
}

namespace op = at::_ops;

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  register_views<Kind::Strided, op::_reshape_alias, op::alias, op::as_strided, op::diagonal,
                 op::expand, op::permute, op::select_int, op::slice_Tensor, op::split_Tensor,
                 op::split_with_sizes, op::squeeze, op::squeeze_dim, op::squeeze_dims, op::t,
                 op::transpose_int, op::unbind_int, op::unfold, op::unsqueeze, op::view>(m);
  register_views<Kind::Reinterpreted, op::_conj, op::_neg_view, op::view_as_complex,
                 op::view_as_real>(m);
  register_views<Kind::BackwardOnly, op::_fw_primal, op::_make_dual>(m);
}

}  // namespace

}  // namespace torch_xla
