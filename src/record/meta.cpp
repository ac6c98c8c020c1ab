#include "record/meta.h"

#include "trace/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_xla {

namespace {

at::Tensor meta_tensor(const at::Tensor& tensor) {
  if (!is_xla(tensor)) {
    return tensor;
  }
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

const c10::Device kMeta(c10::DeviceType::Meta);

}  // namespace

c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& change,
                        c10::Device device) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? c10::IValue(change(tensor)) : value;
  }
  if (value.isDevice()) {
    return value.toDevice().type() == c10::DeviceType::XLA ? c10::IValue(device) : value;
  }
  if (value.isGenerator()) {
    return c10::IValue();
  }
  if (!value.isList()) {
    return value;
  }
  c10::List<c10::IValue> source = value.toList();
  bool has_tensors = false;
  for (const c10::IValue& element : value.toListRef()) {
    has_tensors = has_tensors || element.isTensor();
  }
  if (!has_tensors) {
    return value;
  }
  c10::impl::GenericList result(source.elementType());
  for (const c10::IValue& element : value.toListRef()) {
    result.push_back(map_tensors(element, change, device));
  }
  return result;
}

IValues to_meta(c10::ArrayRef<c10::IValue> arguments) {
  IValues result;
  for (const c10::IValue& argument : arguments) {
    result.push_back(map_tensors(argument, meta_tensor, kMeta));
  }
  return result;
}

IValues functional_arguments(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (info.mutated.empty() || !info.has_functional) {
    return IValues(arguments.begin(), arguments.end());
  }
  IValues result;
  const auto& schema = info.functional.schema().arguments();
  for (size_t i = 0; i < info.argument_source.size(); ++i) {
    if (info.argument_source[i] >= 0) {
      result.push_back(arguments[info.argument_source[i]]);
      continue;
    }
    const at::Tensor& out = arguments[info.mutated.front()].toTensor();
    if (schema[i].name() == "dtype") {
      result.emplace_back(out.scalar_type());
    } else if (schema[i].name() == "device") {
      result.emplace_back(out.device());
    } else {
      result.emplace_back();
    }
  }
  return result;
}

std::optional<IValues> run_meta(const c10::OperatorHandle& op, IValues meta_arguments) {
  at::AutoDispatchBelowADInplaceOrView guard;
  try {
    op.callBoxed(&meta_arguments);
    return meta_arguments;
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
}

std::vector<at::Tensor> flatten_tensors(const IValues& values) {
  std::vector<at::Tensor> result;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      result.push_back(value.toTensor());
    } else if (value.isNone()) {
      result.emplace_back();
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        result.push_back(element.isTensor() ? element.toTensor() : at::Tensor());
      }
    }
  }
  return result;
}

}  // namespace torch_xla
