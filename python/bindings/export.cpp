// StableHLO in and out, and what is set for all programs.
#include "execution/export.h"

#include "bindings.h"

#include "execution/settings.h"
#include "execution/sync.h"
#include "program/program.h"
#include "stablehlo/builder.h"
#include "stablehlo/fragment.h"

namespace torch_xla {

namespace {

pybind11::tuple exported(const std::vector<at::Tensor>& outputs,
                         const std::vector<at::Tensor>& inputs, const std::string& name) {
  ExportedGraph graph;
  {
    pybind11::gil_scoped_release no_gil;
    graph = export_graph(outputs, inputs, name);
  }
  return pybind11::make_tuple(graph.text, graph.captured, graph.host_operators);
}

std::vector<std::string> type_strings(const std::vector<TensorType>& types) {
  std::vector<std::string> texts;
  for (const TensorType& type : types) {
    texts.push_back(stablehlo::type_string(type));
  }
  return texts;
}

pybind11::tuple function_type(const std::string& text) {
  const stablehlo::FunctionType type = stablehlo::main_type(text);
  return pybind11::make_tuple(type_strings(type.parameters), type_strings(type.results));
}

}  // namespace

void bind_export(pybind11::module& m) {
  m.def("export_graph", &exported);
  pybind11::class_<ExportScope>(m, "ExportScope")
      .def(pybind11::init<const std::vector<at::Tensor>&>(), NoGil())
      .def("__enter__", &ExportScope::begin)
      .def("__exit__", [](ExportScope& scope, const pybind11::args&) { scope.end(); });
  m.def("stablehlo_function_type", &function_type);
  m.def("set_default_options", &set_default_options);
  m.def("set_precision", &set_precision);
  m.def("precision", &precision);
  m.def("live_program_count", &live_program_count);
  m.def(
      "wait_for", [](const at::Tensor& tensor) { materialize(tensor)->await_ready(); }, NoGil());
}

}  // namespace torch_xla
