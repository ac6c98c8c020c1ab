#include "eager/host_call.h"

#include "trace/for_each_tensor.h"

#include <ATen/core/stack.h>

namespace torch_xla::eager {

void HostTensors::use_device(const c10::Device& device) {
  if (device.type() == c10::DeviceType::XLA && device.has_index() && !has_tensor_) {
    device_ = device.index();
    check_device(device_);
  }
}

void HostTensors::add(const at::Tensor& tensor, bool written) {
  if (!is_xla(tensor)) {
    if (!tensor.device().is_cpu() || written || !(tensor.dim() == 0 || op_.takes_cpu_tensors)) {
      refuse_mixed(tensor.device());
    }
    return;
  }
  const int index = tensor.device().index();
  if (has_tensor_ && index != device_) {
    refuse_mixed(tensor.device());
  }
  device_ = index;
  has_tensor_ = true;
  access_.add(tensor, written);
}

void HostTensors::refuse_mixed(const c10::Device& other) const {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, xla:",
              device_, " and ", other, "! (in ", op_.op.operator_name(),
              other.type() == c10::DeviceType::XLA ? ")" : "; move it with .to('xla'))");
}

metrics::Metric& call_time() {
  static metrics::Metric& time = metrics::metric("EagerOpExecuteTime");
  return time;
}

namespace {

class HostCall {
 public:
  HostCall(const HostOperator& op, c10::ArrayRef<c10::IValue> arguments, int device)
      : op_(op), arguments_(arguments), tensors_(op, device) {}

  void run(c10::SmallVector<c10::IValue, 2>& fresh) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].isDevice()) {
        tensors_.use_device(arguments_[i].toDevice());
      }
      for_each_tensor(arguments_[i], [&](const at::Tensor& tensor) {
        if (is_xla(tensor)) {
          states_.push_back(state_of(tensor));
        }
        tensors_.add(tensor, op_.writes(i));
      });
    }
    tensors_.open();
    KernelDispatch dispatch;
    torch::jit::Stack host;
    host.reserve(arguments_.size());
    for (const c10::IValue& argument : arguments_) {
      host.push_back(to_host(argument));
    }
    call_kernel(op_.op, op_.faster, host);
    tensors_.update_written();
    for (size_t i = 0; i < host.size(); ++i) {
      if (op_.return_alias[i] < 0) {
        fresh.push_back(from_host(std::move(host[i])));
      }
    }
  }

 private:
  c10::IValue to_host(const c10::IValue& value) {
    if (value.isTensor()) {
      return tensors_.to_host(value.toTensor());
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
      return tensors_.adopt(std::move(value).toTensor());
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
  // A kernel of the user's may give a tensor another storage.
  c10::SmallVector<StatePtr, 4> states_;
  HostTensors tensors_;
};

}  // namespace

void call_on_host(const HostOperator& op, c10::ArrayRef<c10::IValue> arguments,
                  c10::SmallVector<c10::IValue, 2>& fresh, int device) {
  metrics::TimedNowAndThen timed(call_time());
  HostCall(op, arguments, device).run(fresh);
}

}  // namespace torch_xla::eager
