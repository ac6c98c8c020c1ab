#include "bindings.h"

#include "pjrt/client.h"
#include "sharding/spmd.h"
#include "storage/sharding.h"

namespace torch_xla {

namespace {

// PyTorch/XLA's name for a sharding that Python holds.
struct OpSharding {
  ShardingPtr sharding;
};

pybind11::object to_python(ShardingPtr sharding) {
  return sharding == nullptr ? pybind11::none() : pybind11::cast(OpSharding{sharding});
}

pybind11::tuple to_python(const Shard& shard) {
  pybind11::list indices;
  for (size_t i = 0; i < shard.box.start.size(); ++i) {
    indices.append(pybind11::slice(shard.box.start[i], shard.box.stop[i], 1));
  }
  return pybind11::make_tuple(shard.data, indices, shard.device, shard.replica);
}

pybind11::list shards_of(const at::Tensor& tensor) {
  std::vector<Shard> shards;
  {
    pybind11::gil_scoped_release no_gil;
    shards = local_shards(tensor);
  }
  pybind11::list result;
  for (const Shard& shard : shards) {
    result.append(to_python(shard));
  }
  return result;
}

ShardingPtr sharding_without_gil(const at::Tensor& tensor) {
  pybind11::gil_scoped_release no_gil;
  return sharding_of(tensor);
}

std::string spec_text(const at::Tensor& tensor) {
  ShardingPtr sharding = sharding_without_gil(tensor);
  return sharding == nullptr ? "" : sharding->text();
}

void bind_op_sharding(pybind11::module& m) {
  pybind11::class_<OpSharding>(m, "OpSharding")
      .def_static("replicated", [] { return OpSharding{Sharding::replicated()}; })
      .def_static("manual", [] { return OpSharding{Sharding::manual()}; })
      .def_static("tiled",
                  [](std::vector<int64_t> tiles, std::vector<int64_t> devices) {
                    return OpSharding{Sharding::tiled(std::move(tiles), std::move(devices))};
                  })
      .def_static("parse", [](const std::string& t) { return OpSharding{Sharding::parse(t)}; })
      .def_property_readonly("is_replicated",
                             [](OpSharding s) { return s.sharding->is_replicated(); })
      .def_property_readonly(
          "is_manual", [](OpSharding s) { return s.sharding->kind() == Sharding::Kind::Manual; })
      .def_property_readonly("tiles", [](OpSharding s) { return s.sharding->tiles(); })
      .def_property_readonly("devices", [](OpSharding s) { return s.sharding->devices(); })
      .def_property_readonly("copies", [](OpSharding s) { return s.sharding->copies(); })
      .def("__eq__", [](OpSharding s, OpSharding o) { return s.sharding == o.sharding; })
      .def("__hash__", [](OpSharding s) { return s.sharding->hash(); })
      .def("__str__", [](OpSharding s) { return s.sharding->text(); })
      .def("__repr__", [](OpSharding s) { return "OpSharding(" + s.sharding->text() + ")"; });
}

}  // namespace

void bind_spmd(pybind11::module& m) {
  bind_op_sharding(m);
  m.def("spmd_enabled", &spmd_enabled);
  m.def("enable_spmd", &enable_spmd);
  m.def(
      "_xla_mark_sharding",
      [](const at::Tensor& tensor, OpSharding s) { mark_sharding(tensor, s.sharding); }, NoGil());
  m.def("_xla_clear_sharding", &clear_sharding, NoGil());
  m.def("_get_xla_sharding_spec", &spec_text);
  m.def("_get_xla_op_sharding",
        [](const at::Tensor& tensor) { return to_python(sharding_without_gil(tensor)); });
  m.def("local_shards", &shards_of);
  m.def("load_local_shards", &load_local_shards, NoGil());
  m.def(
      "full_to_shard",
      [](const at::Tensor& tensor, OpSharding s) { return full_to_shard(tensor, s.sharding); },
      NoGil());
  m.def(
      "shard_to_full",
      [](const at::Tensor& tensor, OpSharding s, const std::vector<int64_t>& sizes) {
        return shard_to_full(tensor, s.sharding, sizes);
      },
      NoGil());
}

}  // namespace torch_xla
