#include "bindings.h"

#include "execution/sync.h"
#include "pjrt/client.h"
#include "pjrt/processes.h"
#include "sharding/spmd.h"
#include "spmd/marks.h"

#include <pybind11/numpy.h>

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

// PyTorch/XLA's constructor: which device has each tile; or, of tiles that several devices hold
// (partial), which group has each tile and the devices of each group.
OpSharding op_sharding(const pybind11::object& tile_assignment,
                       const pybind11::object& group_assignment,
                       const std::vector<std::vector<int64_t>>& groups, int type) {
  enum { kReplicated = 0, kTiled = 3, kManual = 4, kPartial = 5 };  // spmd.ShardingType
  using Integers =
      pybind11::array_t<int64_t, pybind11::array::c_style | pybind11::array::forcecast>;
  if (type == kReplicated || type == kManual) {
    return {type == kManual ? Sharding::manual() : Sharding::replicated()};
  }
  if (type != kTiled && type != kPartial) {
    throw Error(
        "OpSharding: shardings are replicated (0), tiled (3), manual (4) or partial (5), got " +
        std::to_string(type));
  }
  const Integers places(type == kTiled ? tile_assignment : group_assignment);
  std::vector<int64_t> tiles(places.shape(), places.shape() + places.ndim());
  std::vector<int64_t> devices;
  for (pybind11::ssize_t i = 0; i < places.size(); ++i) {
    const int64_t place = places.data()[i];
    if (type == kTiled) {
      devices.push_back(place);
    } else {
      const auto& group = groups.at(static_cast<size_t>(place));
      devices.insert(devices.end(), group.begin(), group.end());
    }
  }
  return {Sharding::tiled(std::move(tiles), std::move(devices))};
}

void bind_op_sharding(pybind11::module& m) {
  pybind11::class_<OpSharding>(m, "OpSharding")
      .def(pybind11::init(&op_sharding))
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

// The store's calls come from threads of the plugin, without the GIL. Not destroyed with the
// interpreter: the client lives longer.
void init_processes(int index, int count, pybind11::function get, pybind11::function try_get,
                    pybind11::function put) {
  struct Store {
    pybind11::function get, try_get, put;
  };
  auto* store = new Store{std::move(get), std::move(try_get), std::move(put)};
  pjrt::Processes processes;
  processes.index = index;
  processes.count = count;
  processes.get = [store](const std::string& key, int timeout_ms) {
    pybind11::gil_scoped_acquire gil;
    return store->get(key, timeout_ms).cast<std::string>();
  };
  processes.try_get = [store](const std::string& key) {
    pybind11::gil_scoped_acquire gil;
    return store->try_get(key).cast<std::optional<std::string>>();
  };
  processes.put = [store](const std::string& key, const std::string& value) {
    pybind11::gil_scoped_acquire gil;
    store->put(key, pybind11::bytes(value));
  };
  pjrt::set_processes(std::move(processes));
}

}  // namespace

void bind_spmd(pybind11::module& m) {
  bind_op_sharding(m);
  m.def("spmd_enabled", &spmd_enabled);
  m.def("enable_spmd", &enable_spmd);
  m.def(
      "_xla_mark_sharding",
      [](const at::Tensor& tensor, OpSharding s) {
        mark_sharding(tensor, s.sharding, Remark::Refused);
      },
      NoGil());
  m.def(
      "_xla_annotate_custom_sharding",
      [](const at::Tensor& tensor, OpSharding s) {
        mark_sharding(tensor, s.sharding, Remark::Allowed);
      },
      NoGil());
  m.def("_xla_clear_sharding", &clear_sharding, NoGil());
  m.def("_get_xla_sharding_spec", &spec_text);
  m.def("_get_xla_op_sharding",
        [](const at::Tensor& tensor) { return to_python(sharding_without_gil(tensor)); });
  m.def("mark_gradient", &mark_gradient);
  m.def("local_shards", &shards_of);
  m.def(
      "send", [](const at::Tensor& tensor) { materialize(tensor); }, NoGil());
  m.def("init_processes", &init_processes);
  m.def("process_index", [] { return pjrt::processes().index; });
  m.def("process_count", [] { return pjrt::processes().count; });
  m.def(
      "global_device_count", [] { return pjrt::client().global_device_count(); }, NoGil());
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
