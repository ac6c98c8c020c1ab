#include "bindings.h"

#include "execution/growth.h"
#include "execution/sync.h"
#include "record/backward_pass.h"
#include "record/registration.h"
#include "tiers/background.h"
#include "trace/region.h"
#include "values/pending.h"

namespace torch_xla {

namespace {

void sync(int device, bool wait, const std::string& name) {
  if (device < 0) {
    sync_all_devices(wait, name);
  } else {
    sync_device(device, wait, name);
  }
}

void sync_tensors(const std::vector<at::Tensor>& tensors) {
  std::vector<StatePtr> states;
  for (const at::Tensor& tensor : tensors) {
    states.push_back(state_of(tensor));
  }
  sync_storages(states);
}

void wait(int device) {
  if (device >= 0) {
    wait_device(device);
    return;
  }
  for (int i = 0; i < pjrt::device_count_hint(); ++i) {
    wait_device(i);
  }
}

int64_t pending_nodes(int device) {
  TraceLock lock;
  return static_cast<int64_t>(pending_count(device));
}

int64_t tensor_id(const at::Tensor& tensor) {
  return reinterpret_cast<int64_t>(tensor.unsafeGetTensorImpl());
}

std::string hash_of(const std::vector<at::Tensor>& tensors) {
  pybind11::gil_scoped_release released;
  return pending_hash(tensors);
}

const char* name_of_state(const at::Tensor& tensor) {
  switch (value_state(tensor)) {
    case ValueState::Unwritten:
      return "unwritten";
    case ValueState::Pending:
      return "pending";
    case ValueState::There:
      return "there";
    case ValueState::Lost:
      break;
  }
  return "lost";
}

}  // namespace

void bind_sync(pybind11::module& m) {
  m.def("begin_backward", &begin_backward, NoGil());
  m.def("end_backward", &end_backward, NoGil());
  m.def("drain_autograd_threads", &drain_autograd_threads, NoGil());
  m.def("sync", &sync, pybind11::arg("device") = -1, pybind11::arg("wait") = false,
        pybind11::arg("name") = "", NoGil());
  m.def("wait_for_compiler", &tiers::wait_until_idle,
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("optimizer_stepped", &growth::optimizer_stepped, NoGil());
  m.def("run_recorded", &growth::run_recorded, NoGil());
  m.def("sync_tensors", &sync_tensors, NoGil());
  m.def("wait_device_ops", &wait, pybind11::arg("device") = -1, NoGil());
  m.def("tensor_id", &tensor_id);
  m.def("resize_storage", &resize_storage, NoGil());
  m.def("pending_node_count", &pending_nodes, NoGil());
  m.def(
      "tensors_ir_text",
      [](const std::vector<at::Tensor>& t) { return pending_text(t, GraphText::Ir); }, NoGil());
  m.def(
      "tensors_stablehlo_text",
      [](const std::vector<at::Tensor>& t) { return pending_text(t, GraphText::StableHlo); },
      NoGil());
  m.def(
      "pending_stablehlo_text",
      [](int device) { return pending_text(device, GraphText::StableHlo); }, NoGil());
  m.def(
      "tensors_optimized_hlo_text",
      [](const std::vector<at::Tensor>& t) { return pending_text(t, GraphText::OptimizedHlo); },
      NoGil());
  m.def("pending_hash",
        [](const std::vector<at::Tensor>& tensors) { return pybind11::bytes(hash_of(tensors)); });
  m.def("value_state", &name_of_state, NoGil());
  m.def("set_running_allowed", &set_running_allowed);
  m.def("running_is_forbidden", &running_is_forbidden);
  m.def("operator_tiers", &operator_tiers);
}

}  // namespace torch_xla
