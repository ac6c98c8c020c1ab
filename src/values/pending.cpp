#include "values/pending.h"

#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <deque>

namespace torch_xla {

namespace {

constexpr std::string_view kPassName = "torch_xla backward pass";
constexpr c10::DebugInfoKind kPassKind(&kPassName);

std::atomic<int> passes{0};
thread_local uint32_t own_number = kNobody;
thread_local bool ended = false;

struct PassInfo : c10::DebugInfoBase {
  explicit PassInfo(uint32_t thread) : thread(thread) {}
  const uint32_t thread;
};

}  // namespace

// Doubly linked, so that a tensor that dies leaves in constant time.
class PendingList {
 public:
  void append(StorageState* state, uint32_t thread) REQUIRES(trace_mutex) {
    state->previous_ = tail_;
    state->next_ = nullptr;
    (tail_ != nullptr ? tail_->next_ : head_) = state;
    tail_ = state;
    state->linked_ = true;
    state->thread_ = thread;
  }

  void remove(StorageState* state) REQUIRES(trace_mutex) {
    (state->previous_ != nullptr ? state->previous_->next_ : head_) = state->next_;
    (state->next_ != nullptr ? state->next_->previous_ : tail_) = state->previous_;
    if (looked_at_ == state) {
      looked_at_ = state->previous_;
    }
    state->linked_ = false;
  }

  void move_to(PendingList& other, uint32_t thread) REQUIRES(trace_mutex) {
    while (StorageState* state = head_) {
      remove(state);
      other.append(state, thread);
    }
  }

  bool empty() const { return head_ == nullptr; }

  void add_to(std::vector<StatePtr>& states) const REQUIRES(trace_mutex) {
    add_from(head_, states);
  }

  void add_new_to(std::vector<StatePtr>& states) REQUIRES(trace_mutex) {
    add_from(looked_at_ != nullptr ? looked_at_->next_ : head_, states);
    looked_at_ = tail_;
  }

  static uint32_t thread_of(const StorageState& state) REQUIRES(trace_mutex) {
    return state.thread_;
  }

 private:
  static void add_from(StorageState* state, std::vector<StatePtr>& result) REQUIRES(trace_mutex) {
    for (; state != nullptr; state = state->next_) {
      // One whose storage is gone is of no use, though another thread's sync may hold it; one that
      // is being destroyed waits for the trace lock and is not revived.
      StatePtr alive = state->storages_ > 0 ? state->weak_from_this().lock() : nullptr;
      if (alive) {
        result.push_back(std::move(alive));
      }
    }
  }

  StorageState* head_ = nullptr;
  StorageState* tail_ = nullptr;
  StorageState* looked_at_ = nullptr;  // the last of those that newly_pending_states() has told of
};

namespace {

// By thread.
struct DeviceLists {
  std::vector<PendingList> lists{1};
  size_t count = 0;

  static std::deque<DeviceLists>& all() REQUIRES(trace_mutex) {
    static auto* devices = new std::deque<DeviceLists>;
    return *devices;
  }
  static DeviceLists& of(int device) REQUIRES(trace_mutex) {
    while (all().size() <= static_cast<size_t>(device)) {
      all().emplace_back();
    }
    return all()[device];
  }
  PendingList& of_thread(uint32_t thread) {
    if (lists.size() <= thread) {
      lists.resize(thread + 1);
    }
    return lists[thread];
  }
};

class Numbers {
 public:
  static Numbers& instance() REQUIRES(trace_mutex) {
    static auto* numbers = new Numbers;
    return *numbers;
  }
  uint32_t take() {
    if (free_.empty()) {
      return ++last_;
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(uint32_t number) { free_.push_back(number); }

 private:
  uint32_t last_ = kNobody;
  std::vector<uint32_t> free_;
};

// What a thread leaves behind is nobody's.
struct EndOfThread {
  void watch() {}  // it exists once it is used
  ~EndOfThread() {
    ended = true;
    TraceLock lock;
    for (DeviceLists& device : DeviceLists::all()) {
      if (own_number < device.lists.size()) {
        device.lists[own_number].move_to(device.lists[kNobody], kNobody);
      }
    }
    Numbers::instance().give_back(own_number);
    own_number = kNobody;
  }
};
thread_local EndOfThread end_of_thread;

uint32_t number_of_this_thread() REQUIRES(trace_mutex) {
  if (own_number == kNobody && !ended) {
    end_of_thread.watch();
    own_number = Numbers::instance().take();
  }
  return own_number;
}

}  // namespace

uint32_t recording_thread() {
  if (passes.load(std::memory_order_relaxed) > 0) {
    if (const auto* pass = static_cast<PassInfo*>(c10::ThreadLocalDebugInfo::get(kPassKind))) {
      return pass->thread;
    }
  }
  return torch::autograd::get_current_graph_task_id() == -1 ? number_of_this_thread() : kNobody;
}

PassOfThread::PassOfThread() : outside_(c10::ThreadLocalDebugInfo::current()) {
  uint32_t thread = kNobody;
  {
    TraceLock lock;
    thread = recording_thread();
  }
  ++passes;
  c10::ThreadLocalDebugInfo::_push(kPassKind, std::make_shared<PassInfo>(thread));
}

PassOfThread::~PassOfThread() {
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(outside_);
  --passes;
}

std::vector<StatePtr> pending_states(int device) {
  DeviceLists& all = DeviceLists::of(device);
  std::vector<StatePtr> result;
  const uint32_t self = recording_thread();
  all.of_thread(self).add_to(result);
  if (self != kNobody) {
    all.of_thread(kNobody).add_to(result);
  }
  return result;
}

std::vector<StatePtr> all_pending_states(int device) {
  DeviceLists& all = DeviceLists::of(device);
  std::vector<StatePtr> result;
  result.reserve(all.count);
  for (const PendingList& list : all.lists) {
    list.add_to(result);
  }
  return result;
}

std::vector<StatePtr> newly_pending_states(int device) {
  std::vector<StatePtr> result;
  for (PendingList& list : DeviceLists::of(device).lists) {
    list.add_new_to(result);
  }
  return result;
}

bool is_taken_here(const StorageState& state) {
  const uint32_t thread = PendingList::thread_of(state);
  return thread == kNobody || thread == recording_thread();
}

bool is_anything_taken_here(int device) {
  DeviceLists& all = DeviceLists::of(device);
  return all.count > 0 &&
         !(all.of_thread(kNobody).empty() && all.of_thread(recording_thread()).empty());
}

size_t pending_count(int device) { return DeviceLists::of(device).count; }

void link_pending(StorageState& state) {
  DeviceLists& all = DeviceLists::of(state.device);
  const uint32_t thread = recording_thread();
  all.of_thread(thread).append(&state, thread);
  ++all.count;
}

void unlink_pending(StorageState& state) {
  DeviceLists& all = DeviceLists::of(state.device);
  all.of_thread(PendingList::thread_of(state)).remove(&state);
  --all.count;
}

}  // namespace torch_xla
