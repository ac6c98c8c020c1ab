#include "tiers/gain.h"

#include "base/processor.h"
#include "lower/library_function.h"
#include "lower/reduction.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace torch_xla::tiers {

namespace {

// What a program gains, in parts of the time that the operation's memory takes, as measured by
// benchmarks/operators.py: XLA adds the numbers of a row one after the other and copies 16-bit
// types and what indices name an element at a time, where PyTorch's kernels use vectors.
struct Family {
  std::string_view prefix;  // of the name behind "aten::"; the first that fits
  double gain;
  double gain_by_kernel = gain;  // of the types that kernels of ours take (host_ops/rows.h)
};
constexpr std::array kFamilies = {
    // Along rows
    Family{"_softmax", -2, -0.2},
    Family{"_log_softmax", -2},
    Family{"_safe_softmax", -2, -0.2},
    Family{"native_layer_norm", -2, -0.2},
    Family{"native_group_norm", -4, -0.5},
    Family{"native_batch_norm", -1, -0.2},
    Family{"_native_batch_norm", -1, -0.2},
    Family{"_batch_norm", -1, -0.2},
    Family{"sum", -4, -0.3},
    Family{"mean", -4, -0.3},
    Family{"prod", -4},
    Family{"amax", -4, -0.3},
    Family{"amin", -4, -0.3},
    Family{"aminmax", -4, -0.6},
    Family{"max_pool", -0.2},
    Family{"avg_pool", -0.2},
    Family{"max.", -1, 2},
    Family{"min.", -1, 2},
    Family{"argm", -1, 2},
    Family{"linalg_vector_norm", -4, 0.5},
    Family{"norm", -4, 0.5},
    Family{"logsumexp", -1},
    Family{"cumsum", -0.2},
    Family{"cumprod", -0.2},
    Family{"cum", -4},
    Family{"nll_loss", -1},
    Family{"_adaptive_avg_pool", -1},
    Family{"sort", -1},
    Family{"topk", -1},
    // Copies
    Family{"cat", -1},
    Family{"constant_pad_nd", -1},
    Family{"embedding", -1},
    Family{"gather", -1},
    Family{"index", -1},
    // What calls a kernel, or is divided better by it
    Family{"convolution_backward", 2},
    Family{"convolution", -1},
    Family{"_scaled_dot_product", -0.2},
    Family{"linalg", -4},
    Family{"_linalg", -4},
    Family{"cholesky", -4},
    // What computes more than it moves
    Family{"var", 4},
    Family{"std", 4},
    Family{"native_dropout", 10},
    Family{"bernoulli", 10},
};
constexpr double kOthers = 1;  // element by element
// Where the kernels that PyTorch calls have the processor's vectors, a program has no better ones.
constexpr std::array<std::string_view, 4> kProducts = {"mm", "addmm", "bmm", "baddbmm"};
constexpr double kProductGain = 2, kProductLoss = -0.5;
// XLA reads a line of memory for each number.
constexpr double kTransposedCopy = -4;

// Not worth a program alone; together they move memory only once.
constexpr std::array<std::string_view, 7> kCheap = {"add.", "sub.", "mul.", "div.",
                                                    "relu", "neg",  "abs"};
constexpr double kCheapGain = 0.5, kAlone = 1;

template <typename List, typename Prefix>
auto find(const List& list, std::string_view name, Prefix prefix) {
  return std::find_if(list.begin(), list.end(),
                      [&](const auto& entry) { return name.starts_with(prefix(entry)); });
}

bool has_kernel(const Signature& signature) {
  return !signature.operands.empty() && fits_kernels(signature.operands[0].dtype);
}

double gain_of_product(const Signature& signature) {
  const bool narrow =
      signature.outputs[0].dtype == DType::Float && processor::is_held_back_by_mkl();
  return narrow ? kProductGain : kProductLoss;
}

bool copies_transposed(std::string_view name, const Signature& signature) {
  if (name != "clone" || signature.operands.empty() || signature.outputs[0].strides.empty()) {
    return false;
  }
  const Window& window = signature.operands[0];
  return window.sizes.size() == signature.outputs[0].sizes.size() && window.strides.back() != 1 &&
         window.sizes.back() > 1 && signature.outputs[0].strides.back() == 1;
}

}  // namespace

double moving(const Signature& signature) {
  constexpr double kBytesPerSecond = 8e9;
  return static_cast<double>(moved_bytes(signature)) / kBytesPerSecond;
}

double gain_of_program(const Graph& graph) {
  constexpr std::string_view kNamespace = "aten::";
  double gain = 0, longest_cheap = 0;
  for (const GraphNode& entry : graph.nodes) {
    const Signature& signature = *entry.node->signature;
    const double time = moving(signature);
    std::string_view name = signature.op;
    if (name.starts_with(kNamespace)) {
      name.remove_prefix(kNamespace.size());
    }
    if (std::find(kProducts.begin(), kProducts.end(), name) != kProducts.end()) {
      gain += gain_of_product(signature) * time;
      continue;
    }
    if (is_library_function(signature.op, signature.outputs[0].dtype)) {
      continue;  // a call here and there
    }
    if (copies_transposed(name, signature)) {
      gain += kTransposedCopy * time;
      continue;
    }
    const auto family = find(kFamilies, name, [](const Family& f) { return f.prefix; });
    if (family != kFamilies.end()) {
      gain += (has_kernel(signature) ? family->gain_by_kernel : family->gain) * time;
    } else if (find(kCheap, name, [](std::string_view s) { return s; }) != kCheap.end()) {
      gain += kCheapGain * time;
      longest_cheap = std::max(longest_cheap, time);
    } else {
      gain += kOthers * time;
    }
  }
  return gain - kAlone * longest_cheap;
}

}  // namespace torch_xla::tiers
