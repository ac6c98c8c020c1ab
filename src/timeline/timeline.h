// What each thread does when: spans of recording, lowering, compiling, launching, transfers and
// waits, and of programs on the devices. Spans go to a buffer of their thread while a timeline is
// being recorded; else each costs one relaxed load. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::timeline {

enum class Kind : uint8_t {
  Trace,
  Lower,
  Compile,
  Load,
  Interpret,
  Launch,
  Upload,
  Download,
  Wait,
  Kernel,  // PyTorch's or ours, or a part of its work, called from a program
  Device
};
const char* kind_name(Kind kind);  // "trace"

struct Span {
  Kind kind = Kind::Trace;
  uint32_t name = 0;      // into Recording::names
  uint32_t location = 0;  // base/location.h
  int64_t start = 0;      // nanoseconds since the recording began
  int64_t end = 0;
  int64_t amount = 0;  // operations of a Trace, bytes of a transfer
};

struct Track {
  std::string name;     // of the thread, or "device xla:0"
  bool device = false;  // its spans are programs that ran there
  std::vector<Span> spans;
  int64_t dropped = 0;  // spans beyond the limit
};

struct Recording {
  double unix_start = 0;
  int64_t duration = 0;
  std::vector<std::string> names;
  std::vector<Track> tracks;  // the first is that of the thread that called start()
};

// Throws when a recording is under way.
void start();
// Waits for the programs launched meanwhile, so that their spans have ends.
Recording stop();

extern std::atomic<bool> active;
inline bool on() { return active.load(std::memory_order_relaxed); }
int64_t now();  // nanoseconds of the steady clock

// A span of its life, on the calling thread. `name` must outlive it. Unnamed Trace spans that
// follow each other on one line become one, with the Python between them.
class Scope {
 public:
  explicit Scope(Kind kind, std::string_view name = {}, int64_t amount = 0)
      : kind_(kind), name_(name), amount_(amount), start_(on() ? now() : 0) {}
  ~Scope() {
    if (start_ != 0) [[unlikely]] {
      finish();
    }
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void finish() const;
  Kind kind_;
  std::string_view name_;
  int64_t amount_;
  int64_t start_;
};

// A program is about to be launched. Then, from any thread, exactly once: it is ready on the device
// (or has failed).
struct Launch {
  int device = 0;
  std::string name;
  uint32_t location = 0;
  int64_t start = 0;
};
Launch begin_launch(int device, const std::string& name);
void note_ready(const Launch& launch);

}  // namespace torch_xla::timeline
