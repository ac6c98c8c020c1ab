// PyTorch's decompositions (torch._decomp), for operators without a lowering.
#include "bindings.h"

#include "pure/decomposition.h"

#include <torch/csrc/jit/python/pybind_utils.h>

namespace torch_xla {

namespace {

pybind11::object& callback() {
  static auto* instance = new pybind11::object;
  return *instance;
}

// callback(name, overload, arguments) -> results, None without a decomposition, or NotImplemented
// without one of this call.
bool decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  pybind11::gil_scoped_acquire gil;
  pybind11::tuple arguments(stack->size());
  for (size_t i = 0; i < stack->size(); ++i) {
    arguments[i] = torch::jit::toPyObject((*stack)[i]);
  }
  pybind11::object results =
      callback()(op.operator_name().name, op.operator_name().overload_name, arguments);
  if (results.is_none()) {
    return false;
  }
  if (results.ptr() == Py_NotImplemented) {
    throw CallNotDecomposed();
  }
  const auto& returns = op.schema().returns();
  if (returns.size() == 1) {
    results = pybind11::make_tuple(results);
  }
  stack->clear();
  for (size_t i = 0; i < returns.size(); ++i) {
    pybind11::object result = results[pybind11::int_(i)];
    stack->push_back(torch::jit::toIValue(result, returns[i].type()));
  }
  return true;
}

}  // namespace

void bind_decompose(pybind11::module& m) {
  m.def("set_decomposer", [](pybind11::object function) {
    callback() = std::move(function);
    set_traced_decomposer(&decompose);
  });
}

}  // namespace torch_xla
