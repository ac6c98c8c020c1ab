#include "record/backward_pass.h"

#include "base/mutex.h"
#include "pjrt/client.h"
#include "trace/tensor.h"
#include "values/pending.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace torch_xla {

namespace {

using torch::autograd::Engine;
using torch::autograd::ReadyQueue;
using Queues = std::vector<std::shared_ptr<ReadyQueue>>;

// The engine's queues of nodes that are ready, which it shows to subclasses.
struct EngineQueues : Engine {
  static Queues& of_devices() {
    return Engine::get_default_engine().*(&EngineQueues::device_ready_queues_);
  }
  static void set_of_this_thread(const std::shared_ptr<ReadyQueue>& queue) {
    (Engine::get_default_engine().*(&EngineQueues::init_local_ready_queue))(queue);
  }
};

// While the owner's pass runs, its own queue stands for those of all devices. The engine reads them
// without a lock; so none of these objects is ever given up, and whichever it finds is served: by
// its device's thread, or by the owner.
struct Passes {
  Mutex mutex;
  std::thread::id owner GUARDED_BY(mutex);
  bool several_threads GUARDED_BY(mutex) = false;
  int depth GUARDED_BY(mutex) = 0;
  Queues devices GUARDED_BY(mutex);
  std::shared_ptr<ReadyQueue> own GUARDED_BY(mutex);

  void enter() REQUIRES(mutex) {
    if (depth++ == 0) {
      EngineQueues::set_of_this_thread(own);
      auto& queues = EngineQueues::of_devices();
      std::fill(queues.begin(), queues.end(), own);
    }
  }
  void leave() REQUIRES(mutex) {
    if (--depth == 0) {
      restore();
    }
  }
  void restore() const REQUIRES(mutex) {
    std::copy(devices.begin(), devices.end(), EngineQueues::of_devices().begin());
  }
};

Passes& passes() {
  static auto* instance = new Passes;
  return *instance;
}

// A backward pass of its own, without operators: the device's thread takes it up after all others.
void pass_through(int device) {
  namespace autograd = torch::autograd;
  c10::InferenceMode records_gradients(false);  // a program may leave it on to its end
  at::AutoGradMode with_grad(true);
  at::Tensor leaf = empty_tensor(DType::Float, {1}, {1}, device).set_requires_grad(true);
  at::Tensor result = leaf.view({1});
  Engine::get_default_engine().execute(
      {autograd::impl::gradient_edge(result)}, {empty_tensor(DType::Float, {1}, {1}, device)},
      /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/false, {autograd::impl::gradient_edge(leaf)});
}

// Whether the calling thread has the device's part of its passes from here on.
bool begin_here() {
  // Other accelerators' kernels expect their device's thread.
  if (at::hasCUDA()) {
    return false;
  }
  Passes& all = passes();
  MutexLock lock(all.mutex);
  const std::thread::id self = std::this_thread::get_id();
  if (all.owner == std::thread::id()) {
    Engine::get_default_engine().initialize_device_threads_pool();
    all.owner = self;
    all.devices = EngineQueues::of_devices();
    all.own = std::make_shared<ReadyQueue>();
  }
  if (all.owner != self && !all.several_threads) {
    all.several_threads = true;
    all.restore();
  }
  if (all.several_threads) {
    return false;
  }
  all.enter();
  return true;
}

// A pass that has begun and not ended.
class Pass {
 public:
  Pass() {
    // Within a pass, or before the device is used, all stays as it is.
    if (pjrt::client_started() && torch::autograd::get_current_graph_task_id() == -1) {
      thread_.emplace();
      here_ = begin_here();
    }
  }
  ~Pass() {
    if (here_) {
      MutexLock lock(passes().mutex);
      passes().leave();
    }
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

 private:
  std::optional<PassOfThread> thread_;
  bool here_ = false;
};

thread_local std::vector<std::unique_ptr<Pass>> begun;

}  // namespace

void begin_backward() { begun.push_back(std::make_unique<Pass>()); }

void end_backward() { begun.pop_back(); }

void drain_autograd_threads() {
  if (EngineQueues::of_devices().empty()) {
    return;  // no pass has been
  }
  for (int device = 0; device < pjrt::device_count_hint(); ++device) {
    pass_through(device);
  }
}

}  // namespace torch_xla
