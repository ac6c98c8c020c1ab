#include "torch_xla/torch_xla.h"

#include "base/error.h"
#include "execution/sync.h"
#include "explain/history.h"
#include "metrics/metrics.h"
#include "pjrt/client.h"
#include "record/call.h"

#include <ATen/core/grad_mode.h>

namespace torch_xla {

c10::Device device(std::optional<int> index) {
  const int chosen = index.value_or(current_device());
  const int count = device_count();
  if (chosen < 0 || chosen >= count) {
    throw Error("torch_xla::device(" + std::to_string(chosen) + "): the devices are 0 to " +
                std::to_string(count - 1));
  }
  return device_of(chosen);
}

int device_count() { return pjrt::client().device_count(); }

void sync(bool wait) { sync_all_devices(wait); }

void move_tensor(const at::Tensor& tensor, c10::Device target) {
  at::NoGradGuard no_grad;
  at::Tensor moved = tensor.detach().to(target);
  tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
}

std::string metrics_report() { return metrics::report(); }

int64_t counter_value(const std::string& name) { return metrics::counter_value(name); }

int64_t sample_count(const std::string& name) { return metrics::metric_data(name).count; }

void clear_metrics() {
  metrics::clear_counters();
  metrics::clear_metrics();
}

std::vector<Recompile> recompiles() {
  std::vector<Recompile> result;
  for (explain::CompileEvent& event : explain::events()) {
    result.push_back({std::move(event.name), std::move(event.file), event.line, event.seconds,
                      event.operations, event.compiled, event.from_disk, event.compilation,
                      std::move(event.cause), std::move(event.reason), std::move(event.advice)});
  }
  return result;
}

}  // namespace torch_xla
