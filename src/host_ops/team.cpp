#include "host_ops/team.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <exception>

// What compilers call for `#pragma omp parallel`. PyTorch brings the library that has them; another
// copy, linked, would have threads of its own.
extern "C" {
void GOMP_parallel(void (*run)(void*), void* data, unsigned threads, unsigned flags)
    __attribute__((weak));
int omp_get_num_threads() __attribute__((weak));
int omp_get_thread_num() __attribute__((weak));
}

namespace torch_xla {

namespace {

struct Work {
  // On each thread of the team.
  static void run_part(void* data) noexcept {
    Work& work = *static_cast<Work*>(data);
    const int64_t parts = std::min<int64_t>(omp_get_num_threads(), work.most_parts);
    const int64_t length = (work.count + parts - 1) / parts, begin = omp_get_thread_num() * length;
    if (begin >= work.count) {
      return;
    }
    try {
      work.run(begin, std::min(begin + length, work.count));
    } catch (...) {
      if (!work.failed.test_and_set()) {
        work.error = std::current_exception();
      }
    }
  }

  const int64_t count, most_parts;
  const c10::function_ref<void(int64_t, int64_t)> run;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error = nullptr;
};

}  // namespace

void run_in_team(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> run) {
  const int64_t most_parts = (count + grain - 1) / grain;
  if (most_parts < 2 || at::get_num_threads() < 2 || at::in_parallel_region() ||
      GOMP_parallel == nullptr) {
    if (count > 0) {
      run(0, count);
    }
    return;
  }
  Work work{count, most_parts, run};
  GOMP_parallel(&Work::run_part, &work, 0, 0);
  if (work.error) {
    std::rethrow_exception(work.error);
  }
}

}  // namespace torch_xla
