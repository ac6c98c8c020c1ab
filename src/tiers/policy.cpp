#include "tiers/policy.h"

#include "base/env.h"
#include "base/error.h"
#include "base/processor.h"
#include "tiers/gain.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace torch_xla::tiers {

namespace {

// Orders of magnitude are enough, and must not depend on the machine.
constexpr double kCompileGraph = 0.05, kCompileOperation = 0.004;

// A while loop runs as often as its values say; so many times is long enough to matter.
constexpr double kIterations = 100;

double runs_of(const Control& control) {
  switch (control.kind) {
    case Control::Kind::While:
      return kIterations;
    case Control::Kind::Scan:
      return static_cast<double>(control.length);
    default:
      return 1;
  }
}

// oneDNN's layers and ours (record/rnn.cpp), and their gradients.
bool is_recurrent(const Signature& signature) {
  return signature.op.find("::mkldnn_rnn_layer") != std::string::npos ||
         signature.op.starts_with("torch_xla::recurrent_layer");
}

// Numbers that the plugin expects the operation to compute: of a product each that it adds up.
double computed(const Signature& signature) {
  constexpr std::array<std::string_view, 6> kProducts = {
      "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv", "aten::dot"};
  double numbers = 0;
  for (const OutputSpec& output : signature.outputs) {
    numbers += static_cast<double>(output.frame.numel());
  }
  if (std::find(kProducts.begin(), kProducts.end(), signature.op) == kProducts.end()) {
    return numbers;
  }
  const Window& right = signature.operands.back();
  const size_t inner = right.sizes.size() < 2 ? 0 : right.sizes.size() - 2;
  return right.sizes.empty() ? numbers : numbers * static_cast<double>(right.sizes[inner]);
}

// `runs`: how often the graph's operations run.
void add(const Graph& graph, double runs, Estimate& total) {
  for (const GraphNode& entry : graph.nodes) {
    const Signature& signature = *entry.node->signature;
    if (signature.computation) {
      const Control& control = signature.computation->control;
      add(signature.computation->graph, runs * runs_of(control), total);
      if (control.otherwise) {
        add(control.otherwise->graph, runs, total);
      }
      continue;
    }
    total.computed += runs * computed(signature);
    total.runs += runs;
    ++total.operations;
    total.modules += signature.op == "torch_xla::stablehlo" ? 1 : 0;
    total.recurrent = total.recurrent || is_recurrent(signature);
    total.calls_host = total.calls_host || signature.tier == Tier::Host;
    total.moving += runs * moving(signature);
  }
}

bool is_small(const Estimate& estimate) {
  constexpr double kFewRuns = 16;
  return estimate.runs <= kFewRuns && estimate.modules == 0;
}

}  // namespace

Policy parse_policy(const std::string& name) {
  for (auto [known, policy] :
       {std::pair("counted", Policy::Counted), std::pair("async", Policy::Async),
        std::pair("off", Policy::Off), std::pair("never", Policy::Never)}) {
    if (name == known) {
      return policy;
    }
  }
  throw Error("tiers: expected counted, async, off or never, received '" + name + "'");
}

Options from_environment() {
  Options options;
  options.policy = parse_policy(env::choice("TORCH_XLA_TIERS"));
  if (int64_t runs = env::integer("TORCH_XLA_TIER_RUNS"); runs > 0) {
    options.runs = runs;
  }
  options.compile_at_once_up_to = env::integer("TORCH_XLA_COMPILE_AT_ONCE");
  return options;
}

Estimate estimate(const Graph& graph) {
  Estimate total;
  add(graph, 1, total);
  total.recorded = static_cast<double>(std::count_if(
      graph.nodes.begin(), graph.nodes.end(),
      [](const GraphNode& entry) { return entry.node->signature->computation == nullptr; }));
  if (is_small(total)) {
    total.gain = gain_of_program(graph);
  }
  total.compiling = kCompileGraph + kCompileOperation * static_cast<double>(total.operations);
  return total;
}

bool compiles_at_once(const Estimate& estimate, const Options& options) {
  if (options.policy == Policy::Never) {
    return false;
  }
  return estimate.operations <= options.compile_at_once_up_to ||
         estimate.moving > estimate.compiling ||
         (estimate.modules > 0 && estimate.modules == estimate.operations);
}

// Seconds that a program saves of a run, beside what it costs to run one at all.
constexpr double kOperation = 8e-7, kFused = 0.07;  // of an operation; of what is moved

// What a program could save of it is less than two handovers to a thread take, some fifty
// operations.
bool is_short(const Estimate& estimate) {
  constexpr double kShort = 2e-4, kHandovers = 5e-5;
  return estimate.moving < kShort &&
         estimate.runs * kOperation + estimate.moving * kFused < kHandovers;
}

// A program of so many elements, or that calls kernels, runs on a thread of the plugin's. Others
// run where they are launched, and gain.
bool is_slower_than_interpreting(const Estimate& estimate) {
  constexpr double kHandedOver = 400;
  return (estimate.calls_host || estimate.computed >= kHandedOver) && is_short(estimate);
}

// Most of it is no function's own.
bool is_recorded(const Estimate& estimate) { return 2 * estimate.recorded >= estimate.runs; }

bool is_better_called(const Estimate& estimate, const Options& options) {
  constexpr double kLaunch = 2e-4, kProduct = 8e-12;
  const double product = processor::is_held_back_by_mkl() ? estimate.computed * kProduct : 0;
  const double saved =
      (estimate.runs - estimate.recorded) * kOperation + estimate.moving * kFused + product;
  const bool could_be = options.may_be_called && is_recorded(estimate) &&
                        (!options.beside_programs || is_short(estimate));
  return could_be && !options.runs && estimate.operations > options.compile_at_once_up_to &&
         estimate.modules == 0 && !estimate.recurrent && saved < kLaunch;
}

bool is_better_interpreted(const Estimate& estimate, const Options& options) {
  constexpr double kNoticeable = 2e-5;  // seconds
  const bool at_once = estimate.operations <= options.compile_at_once_up_to;
  const bool slower =
      estimate.modules == 0 && !options.runs && !at_once && is_slower_than_interpreting(estimate);
  const bool kernels_gain = estimate.gain < -kNoticeable && !at_once &&
                            !(options.beside_programs && is_recorded(estimate));
  return estimate.recurrent || kernels_gain || slower || is_better_called(estimate, options);
}

// A larger graph compiles longer, and a small one gains little by it: many of them that come in
// turn (each token's, of a server that generates) would all be waited for at once if their runs had
// not taken longer than their compilation. The bounds: what comes a few times in many shapes is not
// worth its compilations, and steady work should be at its best within some minutes.
int64_t interpreted_runs(const Estimate& estimate, const Options& options) {
  constexpr int64_t kFewest = 32, kMost = 128, kMostOfSmall = 512;
  constexpr int64_t kOperationsARun = 4;
  constexpr double kRunOperation = 5e-6;  // seconds
  constexpr double kSlower = 3;           // compiling beside the program, at low priority
  const double operations = std::max(1.0, static_cast<double>(estimate.operations));
  const double run = operations * kRunOperation + estimate.moving;
  const auto in_time = static_cast<int64_t>(kSlower * estimate.compiling / run);
  const int64_t usual = std::clamp(estimate.operations / kOperationsARun, kFewest, kMost);
  if (options.runs) {
    return *options.runs;
  }
  const bool soon = options.beside_programs && is_recorded(estimate);
  return soon ? usual : std::clamp(in_time, usual, kMostOfSmall);
}

}  // namespace torch_xla::tiers
