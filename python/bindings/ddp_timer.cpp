// When DistributedDataParallel's passes began and ended on the host, for its logs: it warns about
// devices without a timer.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace torch_xla {

namespace {

class HostTimer final : public c10d::Timer {
 public:
  explicit HostTimer(c10::Device /*device*/) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::optional<int64_t> began = getTimestamp(start), ended = getTimestamp(end);
    return began && ended && *ended >= *began ? std::optional(*ended - *began) : std::nullopt;
  }
};

const c10d::RegistererTimerRegistry kTimer(
    c10::DeviceType::XLA, c10d::TimerRegistry(),
    c10d::RegistererTimerRegistry::DefaultCreator<HostTimer>);

}  // namespace

}  // namespace torch_xla
