#include "tiers/background.h"

#include "base/env.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "metrics/metrics.h"
#include "pjrt/client.h"
#include "program/progress.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace torch_xla::tiers {

namespace {

constexpr auto kPatienceAtExit = std::chrono::seconds(2);

void lower_priority() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

// Handlers run at exit in the opposite order of their registration, and the plugin registers
// destructors when it first compiles: ours has to come after them.
void warm_up() {
  constexpr const char* kProgram = R"(module @warm_up {
  func.func public @main() -> tensor<2x2xf32> {
    %0 = stablehlo.constant dense<1.0> : tensor<2x2xf32>
    %1 = stablehlo.exponential %0 : tensor<2x2xf32>
    %2 = stablehlo.dot %1, %1 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %2 : tensor<2x2xf32>
  }
})";
  try {
    pjrt::client().compile(kProgram, {}, {{DType::Float, {2, 2}}});
  } catch (const Error&) {
    // The jobs will say what is wrong.
  }
  watch_exit();
}

// The compiler's passes recurse along the program: a long chain of operations needs a deep stack,
// of which only what is used costs memory.
constexpr size_t kStack = size_t{1} << 30;

void start_thread(std::function<void()> body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  pthread_t thread;
  const int failed = pthread_create(
      &thread, &attributes,
      [](void* argument) -> void* {
        std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(argument));
        (*call)();
        return nullptr;
      },
      owned.get());
  pthread_attr_destroy(&attributes);
  if (failed != 0) {
    throw Error("no thread can be started to compile on: " + std::string(std::strerror(failed)));
  }
  static_cast<void>(owned.release());  // the thread's
}

}  // namespace

class Queue {
 public:
  static Queue& instance() {
    static auto* queue = new Queue;  // its threads may outlive main()
    return *queue;
  }

  // Handlers run in the opposite order of their registration.
  void watch_exit() { on_exit(&Queue::at_exit, nullptr); }

  void submit(JobPtr job) {
    MutexLock lock(mutex_);
    if (stopping_) {
      return;
    }
    jobs_.push_back(std::move(job));
    watch_exit_once();
    const size_t spare = std::max(std::thread::hardware_concurrency(), 2u) - 1;
    if (threads_ < std::min(spare, jobs_.size() + working_)) {
      start_thread([this] { work(); });
      ++threads_;
    }
    changed_.notify_all();
  }

  void wait_until_idle() {
    MutexLock lock(mutex_);
    while (working_ > 0 || !jobs_.empty()) {
      changed_.wait(lock);
    }
  }

  // Somebody waits: on a thread of its own, so that the wait can be broken off.
  void run_apart(JobPtr job) {
    {
      MutexLock lock(mutex_);
      watch_exit_once();
      ++working_;
    }
    start_thread([this, job = std::move(job)]() mutable {
      job->run(true);
      job.reset();
      MutexLock lock(mutex_);
      --working_;
      changed_.notify_all();
    });
  }

 private:
  void watch_exit_once() REQUIRES(mutex_) {
    if (!std::exchange(watching_, true)) {
      watch_exit();
    }
  }

  // The one most wanted, the oldest of those; those that nobody waits for any more are dropped.
  JobPtr next() REQUIRES(mutex_) {
    std::erase_if(jobs_, [](const JobPtr& job) { return job->abandoned() || job->done(); });
    auto most = std::max_element(jobs_.begin(), jobs_.end(), [](const JobPtr& x, const JobPtr& y) {
      return x->wanted() < y->wanted();
    });
    if (most == jobs_.end()) {
      return nullptr;
    }
    JobPtr job = std::move(*most);
    jobs_.erase(most);
    return job;
  }

  void work() {
    lower_priority();
    warm_up();
    MutexLock lock(mutex_);
    while (true) {
      while (!stopping_ && jobs_.empty()) {
        changed_.wait(lock);
      }
      if (stopping_) {
        return;
      }
      JobPtr job = next();
      if (!job || !job->begin()) {
        changed_.notify_all();
        continue;
      }
      ++working_;
      {
        MutexUnlock unlocked(mutex_);
        job->run(false);
        job.reset();
      }
      --working_;
      changed_.notify_all();
    }
  }

  friend void watch_exit();
  // A compiler must not be at work while the process takes it apart, and cannot be interrupted.
  // What it does not finish soon ends with the process, without destructors.
  static void at_exit(int status, void*) {
    Queue& queue = instance();
    if (getpid() != queue.process_) {
      return;  // a forked child has no such threads
    }
    MutexLock lock(queue.mutex_);
    queue.stopping_ = true;
    queue.jobs_.clear();
    queue.changed_.notify_all();
    const auto deadline = std::chrono::steady_clock::now() + kPatienceAtExit;
    while (queue.working_ > 0) {
      if (!queue.changed_.wait_until(lock, deadline)) {
        std::fflush(nullptr);
        _exit(status);
      }
    }
  }

  const pid_t process_ = getpid();
  Mutex mutex_;
  Condition changed_;
  std::vector<JobPtr> jobs_ GUARDED_BY(mutex_);
  size_t threads_ GUARDED_BY(mutex_) = 0;
  size_t working_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool watching_ GUARDED_BY(mutex_) = false;
};

Job::Job(std::weak_ptr<void> owner, Graph graph, std::string name, std::vector<bool> promoted)
    : owner_(std::move(owner)),
      graph_(std::move(graph)),
      name_(std::move(name)),
      promoted_(std::move(promoted)) {}

void Job::run(bool awaited) {
  DeferWarnings no_front_end;
  const auto start = std::chrono::steady_clock::now();
  VariantPtr result;
  std::exception_ptr error;
  try {
    result = compile_variant(graph_, name_, promoted_, awaited);
  } catch (...) {
    error = std::current_exception();
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  watch_exit();
  {
    MutexLock lock(mutex_);
    result_ = std::move(result);
    error_ = error;
    seconds_ = spent.count();
    graph_ = {};
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

VariantPtr Job::wait() {
  const bool begun_here = begin();
  if (begun_here) {
    Queue::instance().run_apart(shared_from_this());
  }
  if (!done()) {
    const int64_t delay = begun_here ? 0 : env::integer("TORCH_XLA_PROGRESS");
    ProgressLine progress(name_, std::chrono::seconds(delay));
    MutexLock lock(mutex_);
    while (!done()) {
      const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      if (!changed_.wait_until(lock, soon) && !done()) {
        MutexUnlock unlocked(mutex_);
        check_interrupt();
      }
    }
  }
  MutexLock lock(mutex_);
  if (error_) {
    std::rethrow_exception(error_);
  }
  return result_;
}

double Job::seconds() {
  MutexLock lock(mutex_);
  return seconds_;
}

// Handlers run in the opposite order of their registration.
void watch_exit() { on_exit(&Queue::at_exit, nullptr); }

void submit(JobPtr job) { Queue::instance().submit(std::move(job)); }

void wait_until_idle() { Queue::instance().wait_until_idle(); }

}  // namespace torch_xla::tiers
