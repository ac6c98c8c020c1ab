// The place of control flow in PyTorch's autograd graph, and what its gradient keeps.
#pragma once

#include "pure/control_node.h"

#include <ATen/core/ivalue.h>

namespace torch_xla {

// One node of control flow that may need a gradient.
class ControlFlow : public torch::CustomClassHolder {
 public:
  // `saved`: what backward() will need.
  virtual Tensors forward(const Tensors& inputs, Tensors& saved) = 0;
  // `gradients`: one per result. Gives one per input; undefined where there is none.
  virtual Tensors backward(const Tensors& saved, const Tensors& gradients) = 0;
  virtual bool needs_gradient(size_t result) const = 0;
  virtual const std::string& name() const = 0;
};

// Runs it; with a gradient if `differentiable`.
Tensors apply(c10::intrusive_ptr<ControlFlow> flow, const Tensors& inputs, bool differentiable);

// Where a value that a function's gradient saves is found once the function has run: it is an
// argument (one of the `same`, which are in no iteration another), or the storage of a closed-over
// tensor, or a further result.
struct SavedPlace {
  int32_t argument = -1, handle = -1;
  bool is_result() const { return argument < 0 && handle < 0; }
};
std::vector<SavedPlace> places_of_saved(const PureEntry& entry,
                                        const std::function<bool(int32_t)>& same);

// The storage of a closed-over tensor that is saved, as a whole.
at::Tensor saved_handle(const PureEntry& entry, size_t saved);

// The function's results, and what its gradient saves that is a result, as traced parts call it.
Tensors call_with_saved(const PureEntry& entry, const Tensors& arguments,
                        const std::vector<SavedPlace>& places);

// Arguments of a traced part by role, while they are put together.
class PartArguments {
 public:
  enum Role : uint8_t { kCarried, kSliced, kSame };
  struct Place {
    Role role = kSame;
    size_t index = 0;
  };
  Place add(Role role, at::Tensor tensor);
  size_t count(Role role) const { return tensors_[role].size(); }
  Tensors all() const;  // in the order of roles
  // Tensors like those of one iteration.
  Tensors examples() const;
  const at::Tensor& get(const Tensors& arguments, Place place) const;
  Tensors get(const Tensors& arguments, const std::vector<Place>& places) const;

 private:
  Tensors tensors_[3];
};

at::Tensor zeros_of(const TensorType& type, int device);

}  // namespace torch_xla
