#include "execution/growth.h"

#include "base/env.h"
#include "base/recent_map.h"
#include "execution/export.h"
#include "execution/sync.h"
#include "pjrt/client.h"
#include "tiers/reading_habit.h"
#include "trace/region.h"

#include <algorithm>

namespace torch_xla::growth {

namespace {

// Batches are small beside this, and it is small beside what machines have.
constexpr size_t kMostUploaded = size_t{1} << 27;

// Of what has been recorded since all of it ran.
struct Counts {
  size_t operations = 0;
  size_t uploaded = 0;  // bytes, since there was an operation
};
thread_local Counts counts;
thread_local int64_t runs_for_steps = 0;  // that ended steps here

// What is known of an optimizer since its last step. A program that reads now and then (each 25
// steps a line) still has its steps ended; one that reads or syncs in each need not.
struct Stepping {
  static constexpr int kByProgram = 2;
  int ended_by_program = kByProgram;  // of its last steps, up to so many
  int64_t stretches = 0;
  int64_t runs_for_steps = 0;
};

bool may_run() {
  return pjrt::client_started() && current_region() == nullptr && !is_traced_or_exported() &&
         !running_is_forbidden();
}

// Where reads have run most of it, it is no such program, and keeps its graphs.
void run_if_pending(int device) {
  if (!may_run()) {
    return;
  }
  if (pending_operation_count(device) >= counts.operations / 2) {
    sync_device(device, false);
  }
  reset();
}

}  // namespace

void run_recorded() {
  if (may_run()) {
    sync_each_device(false);
  }
}

void optimizer_stepped(size_t optimizer) {
  const auto& habit = tiers::ReadingHabit::of_this_thread();
  if (!habit.is_in_stretch() || !may_run()) {
    return;
  }
  static thread_local RecentMap<size_t, Stepping> optimizers(256);
  Stepping* last = optimizers.find(optimizer);
  if (last == nullptr) {
    last = &optimizers.get_or_add(optimizer, {});
  } else if (runs_for_steps == last->runs_for_steps) {  // of several, the first ends them for all
    const bool ended = habit.stretches() != last->stretches;
    last->ended_by_program = ended ? std::min(last->ended_by_program + 1, Stepping::kByProgram) : 0;
    if (last->ended_by_program < Stepping::kByProgram) {
      ++runs_for_steps;
      run_recorded();
    }
  }
  last->stretches = habit.stretches();
  last->runs_for_steps = runs_for_steps;
}

void before_upload(int device, size_t bytes) {
  if (counts.operations == 0) {
    return;
  }
  counts.uploaded += bytes;
  if (counts.uploaded > kMostUploaded) {
    run_if_pending(device);
  }
}

void operation_recorded(int device) {
  static const auto most = static_cast<size_t>(env::integer("TORCH_XLA_PENDING_OPERATIONS"));
  if (++counts.operations; most > 0 && counts.operations % most == 0) {
    run_if_pending(device);
  }
}

void reset() { counts = {}; }

}  // namespace torch_xla::growth
