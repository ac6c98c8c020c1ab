#include "tiers/policy.h"

#include "base/env.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace torch_xla::tiers {

namespace {

// Orders of magnitude are enough, and must not depend on the machine.
constexpr double kCompileGraph = 0.05, kCompileOperation = 0.004;
constexpr double kCallKernel = 5e-6;
constexpr double kBytesPerSecond = 8e9, kMultiplicationsPerSecond = 1e11;

bool multiplies(const std::string& op) {
  for (const char* name : {"mm", "conv", "linear", "matmul", "attention", "rnn"}) {
    if (op.find(name) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// Of a product: the square root of the sizes of its factors and its result is the number of its
// multiplications, whatever is contracted.
double multiplications(const Signature& signature) {
  if (!multiplies(signature.op)) {
    return 0;
  }
  double product = static_cast<double>(signature.outputs[0].frame.numel());
  for (size_t i = 0; i < std::min<size_t>(signature.operands.size(), 3); ++i) {
    product *= std::max<double>(1, static_cast<double>(signature.operands[i].numel()));
  }
  return std::sqrt(product);
}

void add(const Graph& graph, Estimate& total) {
  for (const GraphNode& entry : graph.nodes) {
    const Signature& signature = *entry.node->signature;
    if (signature.computation) {
      add(signature.computation->graph, total);
      continue;
    }
    double bytes = 0;
    for (const OutputSpec& output : signature.outputs) {
      bytes += static_cast<double>(output.frame.nbytes());
    }
    for (const Window& window : signature.operands) {
      bytes += static_cast<double>(window.numel() *
                                   static_cast<int64_t>(c10::elementSize(window.dtype)));
    }
    ++total.operations;
    total.moving += bytes / kBytesPerSecond;
    total.interpreting += kCallKernel + bytes / kBytesPerSecond +
                          multiplications(signature) / kMultiplicationsPerSecond;
  }
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
  try {
    options.policy = parse_policy(env::string("TORCH_XLA_TIERS"));
  } catch (const Error& error) {
    throw Error("TORCH_XLA_TIERS: " + std::string(error.what()));
  }
  if (int64_t runs = env::integer("TORCH_XLA_TIER_RUNS"); runs > 0) {
    options.runs = runs;
  }
  options.compile_at_once_up_to = env::integer("TORCH_XLA_COMPILE_AT_ONCE");
  return options;
}

Estimate estimate(const Graph& graph) {
  Estimate total;
  add(graph, total);
  total.compiling = kCompileGraph + kCompileOperation * static_cast<double>(total.operations);
  return total;
}

bool compiles_at_once(const Estimate& estimate, const Options& options) {
  if (options.policy == Policy::Never) {
    return false;
  }
  return estimate.operations <= options.compile_at_once_up_to ||
         estimate.moving > estimate.compiling;
}

int64_t interpreted_runs(const Estimate& estimate, const Options& options) {
  constexpr double kFewest = 8, kMost = 100;
  // The compiler has what the interpreter leaves of the processors: it takes longer than alone.
  constexpr double kShared = 3;
  if (options.runs) {
    return *options.runs;
  }
  const double runs = kShared * estimate.compiling / std::max(estimate.interpreting, 1e-9);
  return static_cast<int64_t>(std::clamp(runs, kFewest, kMost));
}

}  // namespace torch_xla::tiers
