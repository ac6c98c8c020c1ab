// Eager mode and the regions of torch_xla.compile.
#include "bindings.h"

#include "eager/mode.h"
#include "execution/sync.h"
#include "sharding/spmd.h"
#include "torch_xla/torch_xla.h"
#include "trace/region.h"

namespace torch_xla {

namespace {

std::shared_ptr<CompiledFunction> make_function(std::string name, bool full_graph,
                                                std::optional<int64_t> max_different_graphs,
                                                std::map<std::string, std::string> xla_options,
                                                std::string tiers) {
  return make_compiled_function({std::move(name), full_graph, max_different_graphs,
                                 std::move(xla_options), std::move(tiers)});
}

int64_t host_address(const at::Tensor& tensor) {
  const HeldData data = materialize_data(tensor);
  TORCH_CHECK(!spmd_enabled() || !data->sharding()->is_tiled(),
              "a sharded tensor has no one address: copy it to the CPU first");
  return reinterpret_cast<int64_t>(data->host().data());
}

}  // namespace

void bind_eager(pybind11::module& m) {
  m.def("set_eager_mode", &eager_mode);
  m.def("is_eager_mode", &is_eager_mode);
  m.def("eager_mode_flag", &eager::flag);
  m.def("host_address", &host_address, NoGil());
  pybind11::class_<CompiledFunction, std::shared_ptr<CompiledFunction>>(m, "CompiledFunction")
      .def(pybind11::init(&make_function), pybind11::arg("name"), pybind11::arg("full_graph"),
           pybind11::arg("max_different_graphs"), pybind11::arg("xla_options"),
           pybind11::arg("tiers") = "");
  pybind11::class_<CompileRegion, std::shared_ptr<CompileRegion>>(m, "CompileRegion")
      .def(pybind11::init<std::shared_ptr<CompiledFunction>>(), NoGil())
      .def("end", &CompileRegion::end, NoGil());
}

}  // namespace torch_xla
