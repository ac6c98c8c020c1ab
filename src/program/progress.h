// A line on stderr while a compilation takes long: after `delay`, then each time the time spent has
// doubled. No delay: none.
#pragma once

#include "base/mutex.h"

#include <chrono>

#include <string>
#include <thread>

namespace torch_xla {

class ProgressLine {
 public:
  ProgressLine(const std::string& name, std::chrono::milliseconds delay);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void watch(const std::string& name, std::chrono::milliseconds delay);

  Mutex mutex_;
  Condition done_changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  std::thread watcher_;
};

}  // namespace torch_xla
