#include "program/progress.h"

#include <cstdio>

namespace torch_xla {

ProgressLine::ProgressLine(const std::string& name, std::chrono::milliseconds delay) {
  if (delay.count() > 0) {
    watcher_ = std::thread([this, name, delay] { watch(name, delay); });
  }
}

ProgressLine::~ProgressLine() {
  if (!watcher_.joinable()) {
    return;
  }
  {
    MutexLock lock(mutex_);
    done_ = true;
  }
  done_changed_.notify_one();
  watcher_.join();
}

void ProgressLine::watch(const std::string& name, std::chrono::milliseconds delay) {
  const auto start = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  while (!done_) {
    if (done_changed_.wait_until(lock, start + delay)) {
      continue;
    }
    std::fprintf(stderr, "torch_xla: compiling %s for %.1f s (TORCH_XLA_PROGRESS=0 hides this)\n",
                 name.c_str(), std::chrono::duration<double>(delay).count());
    delay *= 2;
  }
}

}  // namespace torch_xla
