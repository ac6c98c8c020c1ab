#include "bindings.h"

#include "explain/history.h"

namespace torch_xla {

namespace {

pybind11::dict as_dict(const explain::CompileEvent& event) {
  using namespace pybind11::literals;
  return pybind11::dict("serial"_a = event.serial, "time"_a = event.time, "name"_a = event.name,
                        "file"_a = event.file, "line"_a = event.line, "compiled"_a = event.compiled,
                        "interpreted"_a = event.interpreted, "seconds"_a = event.seconds,
                        "operations"_a = event.operations, "from_disk"_a = event.from_disk,
                        "compilation"_a = event.compilation, "cause"_a = event.cause,
                        "reason"_a = event.reason, "advice"_a = event.advice);
}

pybind11::list compile_events(uint64_t after) {
  pybind11::list list;
  for (const explain::CompileEvent& event : explain::events(after)) {
    list.append(as_dict(event));
  }
  return list;
}

}  // namespace

void bind_explain(pybind11::module& m) {
  m.def("compile_events", &compile_events, pybind11::arg("after") = 0);
  m.def("last_compile_serial", &explain::last_serial);
}

}  // namespace torch_xla
