#include "host_ops/workers.h"

#include "base/mutex.h"
#include "base/spare_hands.h"
#include "host_ops/one_thread.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <exception>
#include <memory>
#include <thread>

namespace torch_xla {

namespace {

// A thread may be one of the user's, in modes of theirs, and one that takes subnormal numbers for
// what they are, which programs' threads do not: a result must not depend on who computed it.
class AsTheCallers {
 public:
  explicit AsTheCallers(const std::fenv_t& arithmetic)
      : no_modes_(c10::default_included_set, c10::default_excluded_set) {
    std::fegetenv(&own_);
    std::fesetenv(&arithmetic);
  }
  ~AsTheCallers() { std::fesetenv(&own_); }
  AsTheCallers(const AsTheCallers&) = delete;
  AsTheCallers& operator=(const AsTheCallers&) = delete;

 private:
  const c10::impl::ForceDispatchKeyGuard no_modes_;
  std::fenv_t own_;
};

// Outlives the call for workers that come too late.
struct Round final : SharedWork {
  explicit Round(size_t count, c10::function_ref<void(size_t)> run) : count(count), run(run) {
    std::fegetenv(&arithmetic);
  }

  bool work() override {
    const AsTheCallers as_the_callers(arithmetic);
    size_t i = next.fetch_add(1);
    const bool any = i < count;
    for (; i < count; i = next.fetch_add(1)) {
      try {
        OneThread alone;
        run(i);  // the caller is waiting, so that what it refers to is there
      } catch (...) {
        MutexLock lock(mutex);
        error = error ? error : std::current_exception();
      }
      done.fetch_add(1, std::memory_order_release);
    }
    return any;
  }

  void wait() const {
    constexpr int kSpins = 2000;
    for (int i = 0; done.load(std::memory_order_acquire) < count; ++i) {
      if (i > kSpins) {
        std::this_thread::yield();
      }
    }
  }

  const size_t count;
  const c10::function_ref<void(size_t)> run;
  std::fenv_t arithmetic;
  std::atomic<size_t> next{0}, done{0};
  Mutex mutex;
  std::exception_ptr error GUARDED_BY(mutex);
};

}  // namespace

std::vector<Range> ranges(int64_t size, int64_t count, int64_t grain) {
  const int64_t grains = (size + grain - 1) / grain;
  const int64_t length = (grains + count - 1) / std::max<int64_t>(count, 1) * grain;
  std::vector<Range> result;
  for (int64_t start = 0; start < size; start += length) {
    result.push_back({start, std::min(length, size - start)});
  }
  return result;
}

void run_pieces(Workers& workers, size_t count, c10::function_ref<void(size_t)> run) {
  auto round = std::make_shared<Round>(count, run);
  const Offer offer(round);
  const size_t threads = std::min(count, static_cast<size_t>(workers.count()));
  for (size_t i = 1 + offer.hands(); i < threads; ++i) {
    workers.schedule([round] { round->work(); });
  }
  round->work();
  round->wait();
  MutexLock lock(round->mutex);
  if (round->error) {
    std::rethrow_exception(round->error);
  }
}

}  // namespace torch_xla
