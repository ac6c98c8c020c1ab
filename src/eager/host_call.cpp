#include "eager/host_call.h"

#include "eager/host_access.h"
#include "metrics/metrics.h"
#include "trace/for_each_tensor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_xla::eager {

namespace {

class HostCall {
 public:
  HostCall(const HostOperator& op, c10::ArrayRef<c10::IValue> arguments, int device)
      : op_(op), arguments_(arguments), device_(device) {}

  void run(c10::SmallVector<c10::IValue, 2>& fresh) {
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
    call_kernel(op_.op, op_.widened, host);
    access_.update_written();
    for (size_t i = 0; i < host.size(); ++i) {
      if (op_.return_alias[i] < 0) {
        fresh.push_back(from_host(std::move(host[i])));
      }
    }
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
      return is_xla(tensor) ? c10::IValue(access_.view(viewed_++)) : value;
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

  c10::IValue from_host(c10::IValue value) {
    if (value.isTensor()) {
      at::Tensor tensor = std::move(value).toTensor();
      return tensor.defined() ? access_.adopt(std::move(tensor), device_) : tensor;
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> returned = std::move(value).toTensorList();
      for (size_t i = 0; i < returned.size(); ++i) {
        returned.set(i, from_host(returned.extract(i)).toTensor());
      }
      return returned;
    }
    return value;
  }

  const HostOperator& op_;
  c10::ArrayRef<c10::IValue> arguments_;
  int device_;
  bool has_tensor_ = false;
  size_t viewed_ = 0;  // how many of the tensors that were added
  HostAccess access_;
};

}  // namespace

void call_on_host(const HostOperator& op, c10::ArrayRef<c10::IValue> arguments,
                  c10::SmallVector<c10::IValue, 2>& fresh, int device) {
  static metrics::Metric& time = metrics::metric("EagerOpExecuteTime");
  metrics::Timed timed(time);
  HostCall(op, arguments, device).run(fresh);
}

}  // namespace torch_xla::eager
