#include "timeline/timeline.h"

#include "base/error.h"
#include "base/location.h"
#include "base/mutex.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include <memory>
#include <unordered_map>

namespace torch_xla::timeline {

std::atomic<bool> active{false};

namespace {

constexpr size_t kKeptSpans = 1 << 20;  // of one thread
// Python and PyTorch between two recorded operators, up to this, belong to tracing.
constexpr int64_t kTracingGap = 250'000;
constexpr std::chrono::minutes kLongestWait{1};  // for programs that are still running at the end
constexpr int64_t kShortestWait = 2'000;  // what asking costs when there is nothing to wait for

struct Buffer {
  explicit Buffer(std::string name, bool device = false) : track{std::move(name), device, {}, 0} {}
  Mutex mutex;
  Track track GUARDED_BY(mutex);
};
using BufferPtr = std::shared_ptr<Buffer>;

// Of a recording. Its lock is the last to be taken, that of a buffer before it.
class Names {
 public:
  uint32_t id_of(std::string_view name) {
    if (name.empty()) {
      return 0;
    }
    MutexLock lock(mutex_);
    auto [found, inserted] =
        ids_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
    if (inserted) {
      names_.emplace_back(name);
    }
    return found->second;
  }

  std::vector<std::string> all() {
    MutexLock lock(mutex_);
    return names_;
  }

  void clear() {
    MutexLock lock(mutex_);
    ids_.clear();
    names_ = {""};
  }

 private:
  Mutex mutex_;
  std::unordered_map<std::string, uint32_t> ids_ GUARDED_BY(mutex_);
  std::vector<std::string> names_ GUARDED_BY(mutex_);
};

// Its lock is taken before that of a buffer.
struct Registry {
  Mutex mutex;
  std::vector<BufferPtr> threads GUARDED_BY(mutex);
  std::vector<BufferPtr> devices GUARDED_BY(mutex);
  Names names;
  int64_t start GUARDED_BY(mutex) = 0;
  double unix_start GUARDED_BY(mutex) = 0;
  int64_t running GUARDED_BY(mutex) = 0;  // programs between begin_launch() and note_ready()
  Condition program_done;

  // Leaked: threads may still be at work while the process ends.
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }

  BufferPtr device_buffer(int device) {
    MutexLock lock(mutex);
    while (devices.size() <= static_cast<size_t>(device)) {
      const std::string name = "device xla:" + std::to_string(devices.size());
      devices.push_back(std::make_shared<Buffer>(name, /*device=*/true));
    }
    return devices[static_cast<size_t>(device)];
  }
};

std::string thread_name() {
  if (gettid() == getpid()) {
    return "main thread";
  }
  std::array<char, 32> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return std::string(name.data()) + " " + std::to_string(gettid());
}

Buffer& own_buffer() {
  thread_local BufferPtr buffer;
  if (!buffer) {
    buffer = std::make_shared<Buffer>(thread_name());
    Registry& registry = Registry::instance();
    MutexLock lock(registry.mutex);
    registry.threads.push_back(buffer);
  }
  return *buffer;
}

// Joins a Trace span to what precedes it; true when nothing is left to append.
bool join_trace(std::vector<Span>& spans, Span& span) {
  while (!spans.empty() && spans.back().kind == Kind::Trace && spans.back().start >= span.start) {
    span.amount += spans.back().amount;  // recorded by the operator itself
    spans.pop_back();
  }
  if (spans.empty() || span.start - spans.back().end > kTracingGap) {
    return false;
  }
  Span& last = spans.back();
  if (last.kind == Kind::Trace && last.name == span.name && last.location == span.location) {
    last.end = span.end;
    last.amount += span.amount;
    return true;
  }
  span.start = std::min(span.start, last.end);
  return false;
}

void append_bounded(Track& track, const Span& span) {
  if (track.spans.size() < kKeptSpans) {
    track.spans.push_back(span);
  } else {
    ++track.dropped;
  }
}

void append(Buffer& buffer, Span span) REQUIRES(buffer.mutex) {
  if (span.kind == Kind::Trace && span.name == 0 && join_trace(buffer.track.spans, span)) {
    return;
  }
  append_bounded(buffer.track, span);
}

void clear(Buffer& buffer) {
  MutexLock lock(buffer.mutex);
  buffer.track.spans.clear();
  buffer.track.dropped = 0;
}

// What was open when the recording began counts from there.
Track take(Buffer& buffer, int64_t start) {
  MutexLock lock(buffer.mutex);
  Track track = std::move(buffer.track);
  buffer.track = {track.name, track.device, {}, 0};
  for (Span& span : track.spans) {
    span.start = std::max<int64_t>(span.start - start, 0);
    span.end = std::max<int64_t>(span.end - start, 0);
  }
  return track;
}

}  // namespace

const char* kind_name(Kind kind) {
  constexpr std::array kNames = {"trace",  "lower",    "compile", "load",   "interpret", "launch",
                                 "upload", "download", "wait",    "kernel", "device"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void start() {
  Buffer& own = own_buffer();
  Registry& registry = Registry::instance();
  MutexLock lock(registry.mutex);
  if (on()) {
    throw Error("a timeline is being recorded already: end it before another one begins");
  }
  std::erase_if(registry.threads, [](const BufferPtr& buffer) { return buffer.use_count() == 1; });
  std::stable_partition(registry.threads.begin(), registry.threads.end(),
                        [&own](const BufferPtr& buffer) { return buffer.get() == &own; });
  for (const auto& list : {registry.threads, registry.devices}) {
    for (const BufferPtr& buffer : list) {
      clear(*buffer);
    }
  }
  registry.names.clear();
  registry.unix_start =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  registry.start = now();
  active = true;
}

Recording stop() {
  Registry& registry = Registry::instance();
  bool running = false;
  {
    MutexLock lock(registry.mutex);
    running = registry.running > 0;
  }
  if (running) {
    Scope span(Kind::Wait, "programs still running");
    MutexLock lock(registry.mutex);
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    while (registry.running > 0 && registry.program_done.wait_until(lock, deadline)) {
    }
  }
  active = false;
  MutexLock lock(registry.mutex);
  Recording recording;
  recording.unix_start = registry.unix_start;
  recording.duration = now() - registry.start;
  for (const auto& list : {registry.threads, registry.devices}) {
    for (const BufferPtr& buffer : list) {
      Track track = take(*buffer, registry.start);
      if (!track.spans.empty() || recording.tracks.empty()) {
        recording.tracks.push_back(std::move(track));
      }
    }
  }
  recording.names = registry.names.all();
  return recording;
}

void Scope::finish() const {
  const int64_t end = now();
  if (!on() || (kind_ == Kind::Wait && end - start_ < kShortestWait)) {
    return;
  }
  const int64_t amount = kind_ == Kind::Trace ? 1 : amount_;
  Buffer& buffer = own_buffer();
  MutexLock lock(buffer.mutex);
  if (on()) {  // until the span is kept, no recording that is on now gives way to another one
    const uint32_t name = Registry::instance().names.id_of(name_);
    append(buffer, {kind_, name, last_location(), start_, end, amount});
  }
}

Launch begin_launch(int device, const std::string& name) {
  Registry& registry = Registry::instance();
  MutexLock lock(registry.mutex);
  ++registry.running;
  return {device, name, last_location(), now()};
}

void note_ready(const Launch& launch) {
  const int64_t end = now();
  Registry& registry = Registry::instance();
  if (on()) {
    const BufferPtr buffer = registry.device_buffer(launch.device);
    MutexLock lock(buffer->mutex);
    std::vector<Span>& spans = buffer->track.spans;
    // A device runs one program after the other: it began this one when the one before was done.
    const int64_t began = spans.empty() ? launch.start : std::max(launch.start, spans.back().end);
    if (on()) {
      append_bounded(buffer->track, {Kind::Device, registry.names.id_of(launch.name),
                                     launch.location, std::min(began, end), end, 0});
    }
  }
  {
    MutexLock lock(registry.mutex);
    --registry.running;
  }
  registry.program_done.notify_all();
}

}  // namespace torch_xla::timeline
