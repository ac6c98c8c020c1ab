#include "host_ops/one_thread.h"

#include <ATen/Parallel.h>

// Of the OpenMP that PyTorch was built with, if any.
extern "C" {
int omp_get_max_threads() __attribute__((weak));
void omp_set_num_threads(int) __attribute__((weak));
int omp_pause_resource(int kind, int device) __attribute__((weak));
int omp_get_initial_device() __attribute__((weak));
}

namespace torch_xla {

OneThread::OneThread() {
  if (omp_set_num_threads != nullptr) {
    at::get_num_threads();  // on a new thread it sets the number, once
    before_ = omp_get_max_threads();
    omp_set_num_threads(1);
  }
}

OneThread::~OneThread() {
  if (omp_set_num_threads != nullptr) {
    omp_set_num_threads(before_);
  }
}

PassingTeam::~PassingTeam() {
  if (omp_pause_resource != nullptr && omp_get_initial_device != nullptr) {
    constexpr int kSoft = 1;
    omp_pause_resource(kSoft, omp_get_initial_device());
  }
}

}  // namespace torch_xla
