#include "record/eager_call.h"

#include "base/mutex.h"
#include "eager/host_access.h"
#include "eager/mode.h"
#include "execution/export.h"
#include "pjrt/fork_guard.h"
#include "record/call.h"
#include "record/generator.h"
#include "sharding/spmd.h"
#include "tiers/reading_habit.h"
#include "trace/region.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>

namespace torch_xla {

namespace {

// A CPU generator seeded by the device's, which goes on by one: as programs do when they call a
// CPU kernel that draws.
at::Generator draw_generator(const at::Generator& of_device) {
  at::Tensor state = xla_generator(of_device).state_tensor();
  eager::HostAccess access;
  access.add(state, /*write=*/true);
  access.open();
  auto* words = static_cast<uint64_t*>(access.view(0).mutable_data_ptr());
  static Mutex drawing;
  MutexLock lock(drawing);
  uint64_t seed = words[0] ^ (words[1]++ * 0x9E3779B97F4A7C15ull);
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

// The arguments with the generator where the operator that runs takes it.
std::vector<c10::IValue> with_generator(const OpInfo& info, Arguments arguments) {
  std::vector<c10::IValue> given(arguments.begin(), arguments.end());
  const int device = device_of_call(given);
  const auto& schema = info.host.op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() != "generator") {
      continue;
    }
    if (schema.size() > arguments.size()) {
      given.insert(given.begin() + static_cast<std::ptrdiff_t>(i), c10::IValue());
    }
    given[i] =
        draw_generator(given[i].isGenerator() ? given[i].toGenerator() : default_generator(device));
  }
  return given;
}

// The CPU's kernel draws from the CPU's generator and cannot be given another.
void run_dropout(Arguments arguments, Returns& fresh) {
  const at::Tensor& input = arguments[0].toTensor();
  double p = arguments[1].toDouble();
  std::optional<bool> train = arguments[2].toOptional<bool>();
  at::Tensor output;
  at::Tensor mask;
  if (train.value_or(true)) {
    mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
    output = at::mul(input, mask).mul_(p < 1 ? 1 / (1 - p) : 0);
  } else {
    mask = at::ones_like(input, input.options().dtype(at::kBool));
    output = at::clone(input);
  }
  fresh.push_back(std::move(output));
  fresh.push_back(std::move(mask));
}

// Of what would be recorded.
bool may_run_at_once(const OpInfo& info) {
  return !info.random && region_may_be_called() && !is_traced_or_exported() &&
         !running_is_forbidden() && !spmd_enabled() && pjrt::client().host_memory();
}

}  // namespace

bool runs_on_host(const OpInfo& info, int64_t elements) {
  pjrt::refuse_forked_child();
  switch (eager::mode()) {
    case eager::Mode::Host:
      return true;
    case eager::Mode::Programs:
      return false;
    case eager::Mode::Off:
      break;
  }
  return tiers::ReadingHabit::of_this_thread().begins_operation(&info, elements) &&
         may_run_at_once(info);
}

bool has_plain_kernel(const OpInfo& info) {
  return !info.random && info.lowering != nullptr && info.host.op == info.op;
}

void run_on_host_memory(const OpInfo& info, Arguments arguments, Returns& fresh) {
  if (info.lowering != nullptr) {
    info.counter->add();
  }
  if (info.name == "aten::native_dropout") {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    run_dropout(arguments, fresh);
    return;
  }
  if (info.random) {
    const std::vector<c10::IValue> given = with_generator(info, arguments);
    eager::call_on_host(info.host, given, fresh, current_device());
    return;
  }
  eager::call_on_host(info.host, arguments, fresh, current_device());
}

void copy_on_host_memory(const at::Tensor& destination, const at::Tensor& source) {
  metrics::Timed timed(metrics::metric("TransferToDeviceTime"));
  metrics::metric("OutboundData", metrics::Unit::Bytes)
      .add(static_cast<double>(destination.nbytes()));
  eager::HostAccess access;
  access.add(destination, /*write=*/true);
  access.open();
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  access.view(0).copy_(source);
}

}  // namespace torch_xla
