// StableHLO in and out, and what is set for all programs.
#include "execution/export.h"

#include "bindings.h"

#include "execution/settings.h"
#include "execution/sync.h"
#include "pjrt/analysis.h"
#include "program/program.h"
#include "pure/stages.h"
#include "stablehlo/builder.h"
#include "stablehlo/fragment.h"

namespace torch_xla {

namespace {

struct CompiledCall {
  ProgramPtr program;
};

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

namespace {

void bind_stages(pybind11::module& m) {
  using pjrt::cost_analysis;
  using pjrt::memory_use;
  using pjrt::MemoryUse;
  pybind11::class_<MemoryUse>(m, "MemoryUse")
      .def_readonly("generated_code_size_in_bytes", &MemoryUse::generated_code)
      .def_readonly("argument_size_in_bytes", &MemoryUse::arguments)
      .def_readonly("output_size_in_bytes", &MemoryUse::outputs)
      .def_readonly("alias_size_in_bytes", &MemoryUse::aliases)
      .def_readonly("temp_size_in_bytes", &MemoryUse::temporaries)
      .def_readonly("peak_memory_in_bytes", &MemoryUse::peak)
      .def_readonly("host_generated_code_size_in_bytes", &MemoryUse::host_generated_code)
      .def_readonly("host_argument_size_in_bytes", &MemoryUse::host_arguments)
      .def_readonly("host_output_size_in_bytes", &MemoryUse::host_outputs)
      .def_readonly("host_alias_size_in_bytes", &MemoryUse::host_aliases)
      .def_readonly("host_temp_size_in_bytes", &MemoryUse::host_temporaries);
  pybind11::class_<CompiledCall>(m, "CompiledCall")
      .def(
          "optimized_hlo",
          [](const CompiledCall& call) { return call.program->executable().optimized_hlo(); },
          NoGil())
      .def(
          "costs",
          [](const CompiledCall& call) { return cost_analysis(call.program->executable()); },
          NoGil())
      .def(
          "memory", [](const CompiledCall& call) { return memory_use(call.program->executable()); },
          NoGil());
  pybind11::class_<LoweredCall>(m, "LoweredCall")
      .def_readonly("name", &LoweredCall::name)
      .def("text",
           [](const LoweredCall& call, bool locations) {
             return locations ? call.module.text_with_locations : call.module.readable;
           })
      .def(
          "compile", [](const LoweredCall& call) { return CompiledCall{compile_call(call)}; },
          NoGil());
}

}  // namespace

void bind_export(pybind11::module& m) {
  bind_stages(m);
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
