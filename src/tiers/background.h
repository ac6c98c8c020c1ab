// Compilations behind the running program: a queue, and threads of low priority that work it off,
// as many as the machine has processors to spare. Thread-safe.
#pragma once

#include "base/mutex.h"
#include "graph/promote.h"

#include <atomic>

#include <exception>
#include <memory>
#include <string>

#include <sys/types.h>

namespace torch_xla::tiers {

class Job : public std::enable_shared_from_this<Job> {
 public:
  // `owner`: who wants the program; nobody left means that it is not compiled any more.
  Job(std::weak_ptr<void> owner, Graph graph, std::string name, std::vector<bool> promoted);

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Blocks, interruptibly: it goes on when the wait is broken off. Begins now if nobody has. Throws
  // what the compiler threw. Call without locks.
  VariantPtr wait() EXCLUDES(trace_mutex);
  double seconds();  // once done

  // More wanted jobs are taken first.
  void want() { wanted_.fetch_add(1, std::memory_order_relaxed); }
  int64_t wanted() const { return wanted_.load(std::memory_order_relaxed); }
  bool abandoned() const { return owner_.expired(); }

 private:
  friend class Queue;
  bool begin() { return !begun_.exchange(true); }
  void run(bool awaited);

  const std::weak_ptr<void> owner_;
  Graph graph_;  // of whoever runs it
  const std::string name_;
  const std::vector<bool> promoted_;
  std::atomic<int64_t> wanted_{0};
  std::atomic<bool> begun_{false}, done_{false};
  Mutex mutex_;
  Condition changed_;
  VariantPtr result_ GUARDED_BY(mutex_);
  std::exception_ptr error_ GUARDED_BY(mutex_);
  double seconds_ GUARDED_BY(mutex_) = 0;
  pid_t worker_ GUARDED_BY(mutex_) = 0;  // the thread of low priority that runs it
};
using JobPtr = std::shared_ptr<Job>;

// To be compiled when a processor is to spare.
void submit(JobPtr job);

// Blocks until nothing is being compiled and nothing waits for it. Call without locks.
void wait_until_idle() EXCLUDES(trace_mutex);

}  // namespace torch_xla::tiers
