// What tracing a graph of torch.compile needs beyond calling its operators.
#include "bindings.h"

#include "pjrt/client.h"
#include "record/op_info.h"
#include "record/recorder.h"

#include <torch/csrc/jit/python/pybind_utils.h>

namespace torch_xla {

namespace py = pybind11;

namespace {

// Calls an operator as a whole, where a kernel for all devices would otherwise be looked into: as
// PyTorch's kernel on the CPU, inside the program, if the plugin can do that.
py::object call_opaque(const std::string& name, const std::string& overload, const py::args& args,
                       const py::kwargs& kwargs) {
  c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  torch::jit::Stack stack = torch::jit::createStackForSchema(
      op.schema(), torch::jit::tuple_slice(args), kwargs, std::nullopt);
  {
    py::gil_scoped_release no_gil;
    if (pjrt::client().has_ffi()) {
      record_boxed(op_info(op), &stack);
    } else {
      op.callBoxed(&stack);
    }
  }
  return torch::jit::createPyObjectForStack(std::move(stack));
}

}  // namespace

void bind_dynamo(py::module& m) { m.def("call_opaque", &call_opaque); }

}  // namespace torch_xla
