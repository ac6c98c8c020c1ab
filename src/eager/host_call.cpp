#include "eager/host_call.h"

#include "eager/host_access.h"
#include "metrics/metrics.h"
#include "trace/for_each_tensor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_xla::eager {

namespace {

class HostCall {
 public:
  HostCall(const HostOperator& op, torch::jit::Stack* stack, int device)
      : op_(op), stack_(stack), device_(device) {
    size_t count = op.op.schema().arguments().size();
    arguments_.assign(std::make_move_iterator(stack->end() - static_cast<std::ptrdiff_t>(count)),
                      std::make_move_iterator(stack->end()));
    torch::jit::drop(*stack, count);
  }

  void run() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      bool written = std::find(op_.written.begin(), op_.written.end(), i) != op_.written.end();
      if (arguments_[i].isDevice()) {
        use_device(arguments_[i].toDevice());
      }
      for_each_tensor(arguments_[i], [&](const at::Tensor& tensor) { add(tensor, written); });
    }
    access_.open();
    // Below every kernel that looks at the kind of a tensor: autograd has had its turn, and the
    // CPU's autocast is not meant for xla tensors.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    torch::jit::Stack host;
    host.reserve(arguments_.size());
    for (const c10::IValue& argument : arguments_) {
      host.push_back(to_host(argument));
    }
    written_views_.reserve(op_.written.size());
    for (size_t i : op_.written) {
      written_views_.push_back(host[i]);
    }
    op_.op.callBoxed(&host);
    update_written();
    push_returns(host);
  }

 private:
  void use_device(const c10::Device& device) {
    if (device.type() == c10::DeviceType::XLA && device.has_index() && !has_tensor_) {
      device_ = device.index();
      check_device(device_);
    }
  }

  void add(const at::Tensor& tensor, bool written) {
    if (is_xla(tensor)) {
      int index = tensor.device().index();
      TORCH_CHECK(!has_tensor_ || index == device_, mixed_devices(tensor.device()));
      device_ = index;
      has_tensor_ = true;
      access_.add(tensor, written);
      return;
    }
    TORCH_CHECK(
        tensor.device().is_cpu() && !written && (tensor.dim() == 0 || op_.takes_cpu_tensors),
        mixed_devices(tensor.device()));
  }

  std::string mixed_devices(const c10::Device& other) const {
    return c10::str(
        "Expected all tensors to be on the same device, but found at least two devices, xla:",
        device_, " and ", other, "! (in ", op_.op.operator_name(),
        other.type() == c10::DeviceType::XLA ? ")" : "; move it with .to('xla'))");
  }

  c10::IValue to_host(const c10::IValue& value) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      return is_xla(tensor) ? c10::IValue(access_.view(tensor)) : value;
    }
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::XLA) {
      return c10::Device(c10::kCPU);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      list.reserve(value.toListRef().size());
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(to_host(element).toTensor());
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(element.isTensor() ? std::optional(to_host(element).toTensor())
                                          : std::nullopt);
      }
      return list;
    }
    return value;
  }

  void update_written() {
    for (size_t w = 0; w < op_.written.size(); ++w) {
      std::vector<at::Tensor> views;
      for_each_tensor(written_views_[w], [&](const at::Tensor& view) { views.push_back(view); });
      size_t next = 0;
      for_each_tensor(arguments_[op_.written[w]], [&](const at::Tensor& tensor) {
        const at::Tensor& view = views[next++];
        if (is_xla(tensor)) {
          access_.update(tensor, view);
        }
      });
    }
  }

  void push_returns(torch::jit::Stack& host) {
    for (size_t i = 0; i < host.size(); ++i) {
      int alias = op_.return_alias[i];
      stack_->push_back(alias >= 0 ? arguments_[alias] : from_host(std::move(host[i])));
    }
  }

  c10::IValue from_host(c10::IValue value) {
    if (value.isTensor()) {
      return value.toTensor().defined() ? c10::IValue(access_.adopt(value.toTensor(), device_))
                                        : value;
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(from_host(element).toTensor());
      }
      return list;
    }
    return value;
  }

  const HostOperator& op_;
  torch::jit::Stack* stack_;
  int device_;
  bool has_tensor_ = false;
  std::vector<c10::IValue> arguments_;
  std::vector<c10::IValue> written_views_;
  HostAccess access_;
};

}  // namespace

void call_on_host(const HostOperator& op, torch::jit::Stack* stack, int device) {
  static metrics::Metric& time = metrics::metric("EagerOpExecuteTime");
  metrics::Timed timed(time);
  HostCall(op, stack, device).run();
}

}  // namespace torch_xla::eager
