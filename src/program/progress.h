// A line on stderr while a compilation takes long: after `delay`, then each time the time spent has
// doubled. No delay: none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
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

  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::thread watcher_;
};

}  // namespace torch_xla
