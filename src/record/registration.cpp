// Which operators go to the recorder. The backend's fallback takes what has no kernel; operators
// that PyTorch would compose of others are registered by name where we know better: those with a
// lowering (and their in-place and out= forms), and structured ones, whose composite kernels only
// allocate and forward to out=, as those of helped ones do.
#include "record/registration.h"

#include "record/recorder.h"
#include "record/unboxed.h"

#include <torch/library.h>

#include <set>

namespace torch_xla {

namespace {

// Operators whose gradient is that of their parts: a kernel of ours would hide the parts from
// autograd. Where the CPU has a kernel of its own, autograd has a formula for it.
bool has_gradient_of_parts(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Kernels of device_kernels.cpp, changes of metadata, and such operators.
bool is_left_alone(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::XLA) || op.hasTag(at::Tag::inplace_view) ||
         has_gradient_of_parts(op);
}

bool takes_any_backend(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// PyTorch would compose it of others: the backend's fallback is not asked.
bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

std::set<std::string> lowered_names() {
  std::set<std::string> names;
  for (const auto& [name, entry] : lower_table()) {
    names.insert(name.substr(0, name.find('.')));
  }
  return names;
}

// "aten::add_" and "aten::add" for both forms of add.
std::string base_name(const std::string& name) {
  bool in_place = name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_';
  return in_place ? name.substr(0, name.size() - 1) : name;
}

// Composed of helpers that only write, which have no functional form.
bool is_helped(const c10::OperatorName& name) {
  return name.name == "aten::kaiser_window" ||
         (name.overload_name.empty() &&
          (name.name == "aten::cummax" || name.name == "aten::cummin"));
}

bool is_lowered(const c10::OperatorHandle& op) { return op_info(op).lowering != nullptr; }

void register_by_name(torch::Library& library) {
  std::set<std::string> lowered = lowered_names();
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || is_left_alone(*op)) {
      continue;
    }
    bool candidate = lowered.count(base_name(name.name)) > 0 || lowered.count(name.name) > 0;
    const bool ours = takes_any_backend(*op) || is_helped(name) || (candidate && is_lowered(*op));
    if ((ours || !is_composite(*op)) && register_unboxed(library, *op)) {
      continue;
    }
    if (ours) {
      library.impl(c10::toString(name).c_str(),
                   torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RecordKernel>(*op)));
    }
  }
}

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  register_attention(m);
  register_batch_norm(m);
  register_device_kernels(m);
  register_grouped_mm(m);
  register_gradients(m);
  register_histogram(m);
  register_traced_convolutions(m);
  register_jagged_tensors(m);
  register_nested_tensors(m);
  register_out_variants(m);
  register_recurrent_layers(m);
  register_sparse_tensors(m);
  register_compressed_tensors(m);
  register_by_name(m);  // what has no kernel of ours yet
}

// What functionalization tells 2.9's tensors; vmap has no rule for it, and ours need not know.
TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("_propagate_xla_data", [](const at::Tensor&, const at::Tensor&) {});
}

TORCH_LIBRARY_IMPL(_, XLA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&record_fallback>());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> operator_tiers() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (name.name.rfind("aten::", 0) != 0 || !op || op_info(*op).mutates()) {
      continue;
    }
    const OpInfo& info = op_info(*op);
    result.emplace_back(info.name, info.lowering != nullptr ? "direct" : "host");
  }
  return result;
}

}  // namespace torch_xla
