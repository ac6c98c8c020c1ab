#include "explain/history.h"

#include "base/env.h"
#include "base/error.h"
#include "base/location.h"
#include "base/mutex.h"
#include "base/recent_map.h"
#include "explain/compare.h"
#include "explain/words.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>

namespace torch_xla::explain {

namespace {

using SummaryPtr = std::shared_ptr<const GraphSummary>;

constexpr size_t kKeptEvents = 4096;
constexpr size_t kKeptGraphs = 256;
constexpr size_t kKeptOperations = 1 << 20;  // of all kept graphs
constexpr size_t kCompared = 16;             // newest graphs looked at to find the nearest
constexpr size_t kWarnedRecompilation = 8;

// False for graphs of whatever was pending at a line (execution/sync.cpp names them).
bool is_region(const std::string& name) { return name != "sync" && !name.starts_with("sync at "); }

struct Nearest {
  SummaryPtr graph;
  size_t common = 0;
};

class History {
 public:
  static History& instance() {
    static auto* history = new History;
    return *history;
  }

  // The nearest of this name, else of any other.
  Nearest nearest(const GraphSummary& graph) const {
    std::vector<SummaryPtr> same_name;
    std::vector<SummaryPtr> others;
    {
      MutexLock lock(mutex_);
      for (const SummaryPtr& known : graphs_) {
        auto& list = known->name == graph.name ? same_name : others;
        if (list.size() < kCompared || known->same_graph(graph)) {
          list.push_back(known);
        }
      }
    }
    return pick(graph, same_name.empty() ? others : same_name);
  }

  void remember(SummaryPtr graph) {
    MutexLock lock(mutex_);
    operations_ += graph->operations.size();
    graphs_.push_front(std::move(graph));
    while (graphs_.size() > 1 && (graphs_.size() > kKeptGraphs || operations_ > kKeptOperations)) {
      operations_ -= graphs_.back()->operations.size();
      graphs_.pop_back();
    }
  }

  uint64_t add(CompileEvent event) {
    MutexLock lock(mutex_);
    event.serial = ++last_serial_;
    events_.push_back(std::move(event));
    if (events_.size() > kKeptEvents) {
      events_.pop_front();
    }
    return last_serial_;
  }

  // The event with its program, and the most frequent cause under its name; nothing if the event
  // was dropped meanwhile.
  std::optional<std::pair<CompileEvent, std::string>> compiled(uint64_t serial, double seconds,
                                                               bool from_disk,
                                                               int64_t interpreted) {
    MutexLock lock(mutex_);
    const uint64_t first = last_serial_ - events_.size() + 1;
    if (serial < first) {
      return std::nullopt;
    }
    CompileEvent& event = events_[serial - first];
    event.compiled = true;
    event.seconds = seconds;
    event.from_disk = from_disk;
    event.interpreted = interpreted;
    Named& named = names_.get_or_add(event.name, {});
    event.compilation = ++named.compilations;
    ++named.causes[event.cause];
    std::string frequent = event.cause;
    for (const auto& [cause, count] : named.causes) {
      frequent = count > named.causes[frequent] ? cause : frequent;
    }
    return std::pair(event, std::move(frequent));
  }

  std::vector<CompileEvent> events(uint64_t after) const {
    MutexLock lock(mutex_);
    std::vector<CompileEvent> result;
    for (const CompileEvent& event : events_) {
      if (event.serial > after) {
        result.push_back(event);
      }
    }
    return result;
  }

  uint64_t last_serial() const {
    MutexLock lock(mutex_);
    return last_serial_;
  }

 private:
  struct Named {
    size_t compilations = 0;
    std::map<std::string, size_t> causes;
  };

  // The same lines count, and so do the same shapes on them. Of equally near ones the newest, which
  // comes first.
  static Nearest pick(const GraphSummary& graph, const std::vector<SummaryPtr>& candidates) {
    Nearest best;
    double best_score = -1;
    for (const SummaryPtr& candidate : candidates) {
      const size_t common = count_common(candidate->sorted_keys, graph.sorted_keys);
      const size_t same = count_common(candidate->sorted_calls, graph.sorted_calls);
      const size_t larger = std::max(candidate->operations.size(), graph.operations.size());
      const double score = candidate->same_graph(graph)
                               ? 3
                               : static_cast<double>(common + same) /
                                     static_cast<double>(std::max<size_t>(larger, 1));
      if (score > best_score) {
        best_score = score;
        best = {candidate, common};
      }
    }
    return best;
  }

  mutable Mutex mutex_;
  std::deque<SummaryPtr> graphs_ GUARDED_BY(mutex_);  // newest first
  size_t operations_ GUARDED_BY(mutex_) = 0;
  std::deque<CompileEvent> events_ GUARDED_BY(mutex_);
  uint64_t last_serial_ GUARDED_BY(mutex_) = 0;
  RecentMap<std::string, Named> names_ GUARDED_BY(mutex_){size_t{1} << 12};
};

Explanation explain_first(const GraphSummary& graph, const Nearest& nearest) {
  Explanation e{"first", "", ""};
  e.reason = is_region(graph.name) ? "first graph of " + graph.name
                                   : "first graph run " + place(last_location());
  const size_t total = graph.operations.size();
  if (nearest.graph != nullptr && nearest.common > 0 && nearest.common * 2 >= total) {
    e.reason += "; " +
                (nearest.common == total
                     ? "all"
                     : std::to_string(nearest.common) + " of " + std::to_string(total)) +
                " of its operations are also in " + nearest.graph->name;
    e.advice = "the same work run from another line is a graph of its own";
  }
  return e;
}

void warn_often(const CompileEvent& event, const std::string& frequent_cause) {
  warn(event.name + " has been compiled " + std::to_string(event.compilation) +
       " times, most often because of: " + frequent_cause + ". The last time: " + event.reason +
       "." + (event.advice.empty() ? "" : " Advice: " + event.advice + ".") +
       " torch_xla.debug.recompiles() lists all; this warning is given once.");
}

void say(const std::string& text) {
  if (env::flag("TORCH_XLA_EXPLAIN")) {
    std::fprintf(stderr, "torch_xla: %s\n", text.c_str());
  }
}

// A long compilation behind the program's back ends: say what changes now.
void announce(const CompileEvent& event) {
  const int64_t limit = env::integer("TORCH_XLA_PROGRESS");
  if (limit > 0 && event.interpreted > 0 && event.seconds >= static_cast<double>(limit)) {
    std::fprintf(stderr,
                 "torch_xla: %s runs compiled from here on, after %lld runs without its program "
                 "(%.1f s in the background; TORCH_XLA_PROGRESS=0 hides this)\n",
                 event.name.c_str(), static_cast<long long>(event.interpreted), event.seconds);
  }
}

}  // namespace

std::string describe(const CompileEvent& event) {
  char cost[64];
  std::snprintf(cost, sizeof(cost), " (%zu operation%s, %.2f s%s)", event.operations,
                event.operations == 1 ? "" : "s", event.seconds,
                event.from_disk ? ", from disk" : "");
  return (event.from_disk ? "loaded " : "compiled ") + event.name + cost + ": " + event.reason +
         (event.advice.empty() ? "" : ". Advice: " + event.advice);
}

uint64_t note_graph(const Graph& graph, const std::string& name, std::vector<bool> promoted) {
  auto summary = std::make_shared<const GraphSummary>(summarize(graph, name, std::move(promoted)));
  History& history = History::instance();
  const Nearest nearest = history.nearest(*summary);
  const bool known = nearest.graph != nullptr && nearest.graph->name == name;
  Explanation why =
      known ? compare(*nearest.graph, *summary, is_region(name)) : explain_first(*summary, nearest);
  history.remember(summary);

  CompileEvent event;
  event.time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  event.name = name;
  event.file = location_of(last_location()).file;
  event.line = location_of(last_location()).line;
  event.operations = summary->operations.size();
  event.eager = graph.numbers_are_inputs;
  event.cause = std::move(why.cause);
  event.reason = std::move(why.reason);
  event.advice = std::move(why.advice);
  return history.add(std::move(event));
}

void note_compiled(uint64_t serial, double seconds, bool from_disk, int64_t interpreted) {
  auto noted = History::instance().compiled(serial, seconds, from_disk, interpreted);
  if (!noted) {
    return;
  }
  const auto& [event, frequent_cause] = *noted;
  say(describe(event));
  announce(event);
  // An operation of eager mode has a program for each kind of call.
  if (event.compilation == kWarnedRecompilation + 1 && !event.eager) {
    warn_often(event, frequent_cause);
  }
}

std::vector<CompileEvent> events(uint64_t after) { return History::instance().events(after); }

uint64_t last_serial() { return History::instance().last_serial(); }

}  // namespace torch_xla::explain
