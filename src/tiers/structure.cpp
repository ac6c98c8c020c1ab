#include "tiers/structure.h"

#include "base/error.h"
#include "explain/history.h"
#include "graph/collect.h"
#include "metrics/metrics.h"
#include "pjrt/host_malloc.h"

#include <algorithm>
#include <utility>

namespace torch_xla {

using tiers::Policy;

namespace {

// Runs after which it is worth compiling: not one-off graphs (initialisation, the last batch), nor
// each of many lengths that come back a few times.
int64_t runs_before_compiling(const tiers::Estimate& estimate, const tiers::Options& options) {
  constexpr int64_t kPart = 4;  // of the runs until the program is used
  const int64_t due =
      options.policy == Policy::Async ? 0 : tiers::interpreted_runs(estimate, options);
  return std::max<int64_t>(1, due / kPart);
}

// What interpreted runs and the compiler have freed is of no use to the program: a gigabyte for a
// model of some size. Giving it back takes no time beside them.
bool leaves_memory(tiers::Job& job, int64_t interpreted_runs) {
  constexpr double kLongCompilation = 0.5;  // seconds
  return interpreted_runs > 0 || job.seconds() > kLongCompilation;
}

// A structure whose numbers must be literals has one program for each; only so many are kept.
constexpr size_t kVariants = 32;

}  // namespace

VariantPtr Structure::find(const std::vector<Number>& numbers) {
  for (size_t v = variants_.size(); v-- > 0;) {
    if (fits(*variants_[v], numbers)) {
      std::rotate(variants_.begin() + static_cast<std::ptrdiff_t>(v),
                  variants_.begin() + static_cast<std::ptrdiff_t>(v) + 1, variants_.end());
      return variants_.back();
    }
  }
  return nullptr;
}

void Structure::note_numbers(const std::vector<Number>& numbers) {
  changed_.resize(numbers.size(), false);
  for (size_t i = 0; i < last_numbers_.size(); ++i) {
    changed_[i] = changed_[i] || !same_number(last_numbers_[i], numbers[i]);
  }
  last_numbers_ = numbers;
}

void Structure::estimate(const Graph& graph) {
  if (!estimate_) {
    estimate_ = tiers::estimate(graph);
  }
}

bool Structure::must_compile(const Graph& graph, const tiers::Options& options) {
  estimate(graph);
  return options.policy == Policy::Off || !interpretable_ ||
         (is_worth_compiling(options) && tiers::compiles_at_once(*estimate_, options));
}

bool Structure::is_worth_compiling(const tiers::Options& options) const {
  return compilable_ && !tiers::is_better_interpreted(*estimate_, options);
}

bool Structure::is_due(const tiers::Options& options) const {
  if (options.policy == Policy::Never) {
    return false;
  }
  if (options.policy == Policy::Async) {
    return miss_.job != nullptr && miss_.job->done();
  }
  return miss_.runs >= tiers::interpreted_runs(*estimate_, options);
}

void Structure::start_job(const Graph& graph, const std::string& name) {
  std::vector<bool> promoted = choose_promoted(variants_, graph);
  for (size_t i = 0; i < changed_.size(); ++i) {
    promoted[i] = promoted[i] || changed_[i];
  }
  miss_.job = std::make_shared<tiers::Job>(weak_from_this(), without_values(graph), name,
                                           std::move(promoted));
}

// Takes the program over, waiting for it if need be. `alone`: there is no other tier.
VariantPtr Structure::finish(const Graph& graph, const std::string& name, bool alone) {
  if (!miss_.job) {
    start_job(graph, name);
  }
  tiers::JobPtr job = miss_.job;
  const Miss miss = miss_;
  VariantPtr program;
  try {
    MutexUnlock unlocked(mutex_);
    program = job->wait();
    issue_deferred_warnings();
    if (leaves_memory(*job, miss.runs)) {
      pjrt::release_freed_memory();
    }
  } catch (const Error& error) {
    if (miss_.job == job) {
      miss_ = {};
    }
    compilable_ = compilable_ && alone;
    MutexUnlock unlocked(mutex_);
    issue_deferred_warnings();
    if (alone) {
      throw;
    }
    warn(std::string(error.what()) + " (its operations go on one by one instead)");
    return nullptr;
  }
  if (miss_.job != job) {
    return find(graph.numbers);  // another thread was faster
  }
  miss_ = {};
  took_over_ = leaves_memory(*job, miss.runs);
  variants_.push_back(program);
  if (variants_.size() > kVariants) {
    variants_.erase(variants_.begin());
  }
  MutexUnlock unlocked(mutex_);
  if (graph.numbers_are_inputs) {
    constexpr double kNanoseconds = 1e9;
    metrics::counter("EagerOpCompileCount").add();
    metrics::metric("EagerOpCompileTime").add(job->seconds() * kNanoseconds);
  }
  explain::note_compiled(miss.event, job->seconds(), program->program->from_disk(), miss.runs);
  return fits(*program, graph.numbers) ? program : nullptr;
}

VariantPtr Structure::choose(const Graph& graph, const std::string& name,
                             const tiers::Options& options) {
  issue_deferred_warnings();
  MutexLock lock(mutex_);
  while (true) {
    if (VariantPtr found = find(graph.numbers)) {
      metrics::counter("CachedCompile").add();
      if (std::exchange(took_over_, false)) {
        MutexUnlock unlocked(mutex_);
        pjrt::release_freed_memory();  // the values of the last interpreted run are gone
      }
      return found;
    }
    const bool alone = must_compile(graph, options);
    if (!alone) {
      note_numbers(graph.numbers);
    }
    if (miss_.event == 0) {
      std::vector<bool> promoted = choose_promoted(variants_, graph);
      uint64_t event = 0;
      {
        MutexUnlock unlocked(mutex_);  // it may warn, through a front end with locks of its own
        event = explain::note_graph(graph, name, std::move(promoted));
      }
      miss_.event = miss_.event == 0 ? event : miss_.event;
      continue;
    }
    if (!alone && !(is_worth_compiling(options) && is_due(options))) {
      break;
    }
    if (VariantPtr program = finish(graph, name, alone)) {
      return program;
    }
    // The numbers have changed since it was begun: they are missed anew.
  }
  ++miss_.runs;
  const bool wanted = is_worth_compiling(options) && options.policy != Policy::Never;
  if (wanted && !miss_.job && miss_.runs > runs_before_compiling(*estimate_, options)) {
    start_job(graph, name);
    tiers::submit(miss_.job);
  }
  if (miss_.job) {
    miss_.job->want();
  }
  return nullptr;
}

bool Structure::stays_interpreted(const tiers::Options& options) {
  MutexLock lock(mutex_);
  return options.policy == Policy::Counted && !is_worth_compiling(options) && is_due(options);
}

bool Structure::is_better_called(const Graph& graph, const tiers::Options& options) {
  MutexLock lock(mutex_);
  estimate(graph);
  return tiers::is_better_called(*estimate_, options);
}

void Structure::give_up_interpreting() {
  MutexLock lock(mutex_);
  interpretable_ = false;
}

}  // namespace torch_xla
