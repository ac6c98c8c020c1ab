#include "tiers/background.h"

#include "base/env.h"
#include "base/error.h"
#include "base/interrupt.h"
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
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace torch_xla::tiers {

namespace {

// Short scripts are run again and again: what is nearly there is kept for the next one.
constexpr auto kPatienceAtExit = std::chrono::milliseconds(250);

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

void lower_priority() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(this_thread()), kNice);
}

// That of the calling thread, which waits for it: a busy machine would not come to it. Systems may
// allow that to privileged users only.
void raise_priority(pid_t thread) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread), getpriority(PRIO_PROCESS, 0));
}

// The compiler's passes recurse along the program: a long chain of operations needs a deep stack,
// of which only what is used costs memory.
constexpr size_t kStack = size_t{1} << 30;

// False: there is no thread to be had.
bool start_thread(std::function<void()> body) {
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
  if (failed == 0) {
    static_cast<void>(owned.release());  // the thread's
  }
  return failed == 0;
}

}  // namespace

class Queue {
 public:
  static Queue& instance() {
    static auto* queue = new Queue;  // its threads may outlive main()
    return *queue;
  }

  void submit(JobPtr job) {
    MutexLock lock(mutex_);
    if (stopping_) {
      return;
    }
    jobs_.push_back(std::move(job));
    watch_exit();
    const size_t spare = std::max(std::thread::hardware_concurrency(), 2u) - 1;
    if (threads_ < std::min(spare, jobs_.size() + working_) && start_thread([this] { work(); })) {
      ++threads_;
    }
    if (threads_ == 0) {
      jobs_.clear();  // whoever waits for one of them compiles it
    }
    changed_.notify_all();
  }

  void wait_until_idle() {
    MutexLock lock(mutex_);
    while (working_ > 0 || !jobs_.empty()) {
      changed_.wait(lock);
    }
  }

  // Somebody waits: on a thread of its own if there is one, so that the wait can be broken off.
  void run_apart(JobPtr job) {
    {
      MutexLock lock(mutex_);
      watch_exit();
      ++working_;
    }
    auto run = [this, job = std::move(job)]() mutable {
      job->run(true);
      job.reset();
      MutexLock lock(mutex_);
      --working_;
      changed_.notify_all();
    };
    if (!start_thread(run)) {
      run();
    }
  }

 private:
  // What the compiler uses and is destroyed at exit is older than this: the plugin is never taken
  // apart (pjrt/plugin.cpp), nor are our own objects that are made at their first use.
  void watch_exit() REQUIRES(mutex_) {
    if (!std::exchange(watching_, true)) {
      on_exit(&Queue::at_exit, nullptr);
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
        lower_priority();  // somebody may have waited for the last one
        job->run(false);
        job.reset();
      }
      --working_;
      changed_.notify_all();
    }
  }

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
      promoted_(std::move(promoted)) {
  pjrt::client();  // loaded by now, so that what it destroys at exit is older than watch_exit()
}

void Job::run(bool awaited) {
  DeferWarnings no_front_end;
  const auto start = std::chrono::steady_clock::now();
  {
    MutexLock lock(mutex_);
    worker_ = awaited ? 0 : this_thread();
  }
  VariantPtr result;
  std::exception_ptr error;
  try {
    result = compile_variant(graph_, name_, promoted_, awaited);
  } catch (...) {
    error = std::current_exception();
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  {
    MutexLock lock(mutex_);
    result_ = std::move(result);
    error_ = error;
    seconds_ = spent.count();
    worker_ = 0;
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
      if (worker_ != 0) {
        raise_priority(worker_);
      }
      wait_or_interrupt(changed_, mutex_, lock);
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

void submit(JobPtr job) { Queue::instance().submit(std::move(job)); }

void wait_until_idle() { Queue::instance().wait_until_idle(); }

}  // namespace torch_xla::tiers
