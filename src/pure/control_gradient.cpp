#include "pure/control_gradient.h"

#include "base/error.h"
#include "base/location.h"
#include "pure/record.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace torch_xla {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kFlow = "flow";

class ControlFunction : public torch::autograd::Function<ControlFunction> {
 public:
  static variable_list forward(AutogradContext* context, c10::intrusive_ptr<ControlFlow> flow,
                               at::TensorList inputs) {
    Tensors saved;
    Tensors results = flow->forward(inputs.vec(), saved);
    variable_list constant;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!flow->needs_gradient(i)) {
        constant.push_back(results[i]);
      }
    }
    context->mark_non_differentiable(constant);
    context->save_for_backward(std::move(saved));
    context->saved_data[kFlow] = c10::IValue::make_capsule(std::move(flow));
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto flow =
        c10::static_intrusive_pointer_cast<ControlFlow>(context->saved_data[kFlow].toCapsule());
    if (at::GradMode::is_enabled()) {
      throw Error("the gradient of the control flow over " + flow->name() +
                  " cannot be differentiated again: gradients of gradients "
                  "(create_graph=True) "
                  "need the loop or branch written out in Python");
    }
    current_location();
    Tensors results = flow->backward(context->get_saved_variables(), gradients);
    results.insert(results.begin(), at::Tensor());  // of `flow` itself
    return results;
  }
};

}  // namespace

Tensors apply(c10::intrusive_ptr<ControlFlow> flow, const Tensors& inputs, bool differentiable) {
  if (differentiable) {
    return ControlFunction::apply(std::move(flow), at::TensorList(inputs));
  }
  at::NoGradGuard no_grad;
  Tensors saved;
  return flow->forward(inputs, saved);
}

std::vector<SavedPlace> places_of_saved(const PureEntry& entry,
                                        const std::function<bool(int32_t)>& same) {
  std::vector<SavedPlace> places;
  if (!entry.gradient) {
    return places;
  }
  for (const PureEntry::Saved& saved : entry.gradient->saved) {
    SavedPlace& place = places.emplace_back();
    if (saved.input < 0 || entry.inputs[saved.input].written >= 0) {
      continue;
    }
    const PureEntry::Input& input = entry.inputs[saved.input];
    if (input.argument >= 0) {
      place.argument = same(input.argument) ? input.argument : -1;
    } else {
      place.handle = input.handle;
    }
  }
  return places;
}

at::Tensor saved_handle(const PureEntry& entry, size_t saved) {
  const PureEntry::Saved& place = entry.gradient->saved[saved];
  const at::Tensor& handle = entry.handles[entry.inputs[place.input].handle].place.tensor;
  const TensorType& type = saved_type(entry, place);
  at::Tensor whole =
      make_tensor(handle.storage(), type.dtype, type.dims, row_major_strides(type.dims));
  if (!handle.is_inference()) {
    whole.unsafeGetTensorImpl()->set_version_counter(
        handle.unsafeGetTensorImpl()->version_counter());
  }
  return whole;
}

Tensors call_with_saved(const PureEntry& entry, const Tensors& arguments,
                        const std::vector<SavedPlace>& places) {
  Tensors kept;
  Tensors results = call_keeping(entry, arguments, kept);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].is_result()) {
      results.push_back(kept[i]);
    }
  }
  return results;
}

PartArguments::Place PartArguments::add(Role role, at::Tensor tensor) {
  tensors_[role].push_back(std::move(tensor));
  return {role, tensors_[role].size() - 1};
}

Tensors PartArguments::all() const {
  Tensors all;
  for (const Tensors& some : tensors_) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Tensors PartArguments::examples() const {
  Tensors examples;
  for (Role role : {kCarried, kSliced, kSame}) {
    for (const at::Tensor& tensor : tensors_[role]) {
      examples.push_back(
          make_example(tensor, tensor.sizes().slice(role == kSliced ? 1 : 0), false));
    }
  }
  return examples;
}

const at::Tensor& PartArguments::get(const Tensors& arguments, Place place) const {
  size_t index = place.index;
  for (int role = 0; role < place.role; ++role) {
    index += tensors_[role].size();
  }
  return arguments[index];
}

Tensors PartArguments::get(const Tensors& arguments, const std::vector<Place>& places) const {
  Tensors tensors;
  for (Place place : places) {
    tensors.push_back(get(arguments, place));
  }
  return tensors;
}

at::Tensor zeros_of(const TensorType& type, int device) {
  return at::zeros(type.dims, at::TensorOptions().dtype(type.dtype).device(device_of(device)));
}

}  // namespace torch_xla
