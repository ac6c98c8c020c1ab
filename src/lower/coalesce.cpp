#include "lower/coalesce.h"

#include "lower/table.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

namespace torch_xla {

namespace {

using Joined = std::vector<bool>;  // by boundary: behind dimension d
using MayJoin = std::function<bool(size_t d)>;

// Operations that read whole channels or images, or do not care: the first dimension that may be
// one with those behind it.
struct Reader {
  std::string_view prefix;  // of the name
  size_t first;
};
constexpr std::array kReaders = {
    Reader{"aten::convolution", 0},
    Reader{"aten::fill", 0},
    Reader{"aten::full", 0},
    Reader{"aten::zeros", 0},
    Reader{"aten::ones", 0},
    Reader{"aten::native_dropout", 0},
    Reader{"aten::native_batch_norm", 2},
    Reader{"aten::_native_batch_norm", 2},
    Reader{"aten::batch_norm", 2},
    Reader{"aten::_batch_norm", 2},
    Reader{"aten::native_group_norm", 2},
    Reader{"aten::max_pool2d", 2},
    Reader{"aten::avg_pool2d", 2},
    Reader{"aten::_adaptive_avg_pool2d", 2},
    Reader{"aten::upsample", 2},
};

// From the right, as broadcasting counts; 1 in front.
int64_t size_of(const Window& window, size_t d, size_t rank) {
  const size_t missing = rank - window.sizes.size();
  return d < missing ? 1 : window.sizes[d - missing];
}

bool goes_on(Ints sizes, Ints strides, size_t d) {
  return strides[d] == sizes[d + 1] * strides[d + 1];
}

// Whether all that an elementwise operation reads and writes goes on in memory behind dimension d,
// or is broadcast there.
bool goes_on(const Signature& signature, Ints sizes, size_t d) {
  const size_t rank = sizes.size();
  for (const OutputSpec& output : signature.outputs) {
    if (Ints(output.sizes) != sizes || !goes_on(sizes, output.strides, d)) {
      return false;
    }
  }
  return std::all_of(
      signature.operands.begin(), signature.operands.end(), [&](const Window& window) {
        const int64_t here = size_of(window, d, rank), next = size_of(window, d + 1, rank);
        return (here == 1 && next == 1) ||
               (here == sizes[d] && next == sizes[d + 1] && window.sizes.size() == rank &&
                goes_on(window.sizes, window.strides, d));
      });
}

// The dimensions that a sum or a mean is over.
std::optional<Dims> reduced_dims(const Signature& signature) {
  const bool reduces = signature.op == "aten::sum.dim_IntList" || signature.op == "aten::mean.dim";
  const auto* dims = signature.arguments.size() < 2
                         ? nullptr
                         : std::get_if<std::vector<int64_t>>(&signature.arguments[1]);
  if (!reduces || dims == nullptr || signature.operands.size() != 1) {
    return std::nullopt;
  }
  const auto rank = static_cast<int64_t>(signature.operands[0].sizes.size());
  Dims result;
  for (int64_t dim : *dims) {
    result.push_back(dim < 0 ? dim + rank : dim);
  }
  return result;
}

MayJoin rule_of(const Signature& signature, Ints sizes) {
  if (is_elementwise(signature)) {
    return [&signature, sizes](size_t d) { return goes_on(signature, sizes, d); };
  }
  if (std::optional<Dims> reduced = reduced_dims(signature)) {
    return [dims = *reduced](size_t d) {
      auto is_reduced = [&](size_t dim) { return std::count(dims.begin(), dims.end(), dim) > 0; };
      return is_reduced(d) == is_reduced(d + 1);
    };
  }
  const auto reader = std::find_if(kReaders.begin(), kReaders.end(), [&](const Reader& known) {
    return signature.op.starts_with(known.prefix);
  });
  const size_t first = reader == kReaders.end() ? sizes.size() : reader->first;
  return [first](size_t d) { return d >= first; };
}

// A loop inside that fills vectors well enough.
bool is_good_inside(int64_t size) {
  constexpr int64_t kVectors = 32, kLong = 128;
  return size >= kLong || (size >= kVectors && size % kVectors == 0);
}

Dims joined_sizes(Ints sizes, const Joined& joined) {
  Dims result;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d > 0 && joined[d - 1]) {
      result.back() *= sizes[d];
    } else {
      result.push_back(sizes[d]);
    }
  }
  return result;
}

// Of the last dimension of those that are one.
Dims joined_strides(Ints strides, const Joined& joined) {
  Dims result;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (d + 1 == strides.size() || !joined[d]) {
      result.push_back(strides[d]);
    }
  }
  return result;
}

// With the dimensions that broadcasting puts in front; not of a single number.
bool widen(Window& window, size_t rank) {
  const size_t missing = rank - window.sizes.size();
  if (missing == rank) {
    return false;
  }
  window.sizes.insert(window.sizes.begin(), missing, 1);
  window.strides.insert(window.strides.begin(), missing, 0);
  return true;
}

void join(Window& window, const Joined& joined, size_t rank) {
  if (!widen(window, rank)) {
    return;
  }
  window.sizes = joined_sizes(window.sizes, joined);
  window.strides = joined_strides(window.strides, joined);
}

Dims permuted(const Dims& dims, const Dims& order) {
  Dims result;
  for (int64_t dim : order) {
    result.push_back(dims[dim]);
  }
  return result;
}

// An elementwise operation with its dimensions in the order in which its result lies in memory
// (channels last, for instance): what lies like it is not turned to be read. Nullopt: it has it.
std::optional<Signature> in_order_of_memory(const Signature& signature) {
  if (!is_elementwise(signature)) {
    return std::nullopt;
  }
  const Dims order = signature.outputs[0].frame_to_sizes;
  const bool agree =
      std::all_of(signature.outputs.begin(), signature.outputs.end(),
                  [&](const OutputSpec& output) { return output.frame_to_sizes == order; });
  if (!agree || std::is_sorted(order.begin(), order.end())) {
    return std::nullopt;
  }
  Signature result = signature;
  for (Window& operand : result.operands) {
    if (widen(operand, order.size())) {
      operand.sizes = permuted(operand.sizes, order);
      operand.strides = permuted(operand.strides, order);
    }
  }
  for (OutputSpec& output : result.outputs) {
    output = make_output_spec(output.dtype, permuted(output.sizes, order),
                              permuted(output.strides, order));
  }
  return result;
}

}  // namespace

std::vector<bool> flat_inputs(const Graph& graph) {
  constexpr int64_t kShort = 16, kWorthwhile = 1 << 10;
  std::vector<bool> flat(graph.inputs.size(), false);
  for (int32_t input : graph.donated) {
    if (input >= 0) {
      const TensorType& type = graph.inputs[static_cast<size_t>(input)]->type(0);
      flat[static_cast<size_t>(input)] =
          type.dims.size() > 1 && type.dims.back() < kShort && type.numel() >= kWorthwhile;
    }
  }
  return flat;
}

Coalescing::Coalescing(const Graph& graph) {
  for (const GraphNode& entry : graph.nodes) {
    const Signature& recorded = *entry.node->signature;
    if (recorded.tier == Tier::Host || recorded.tier == Tier::Call) {
      continue;  // nothing is fused with these
    }
    const std::optional<Signature> ordered = in_order_of_memory(recorded);
    const Signature& signature = ordered ? *ordered : recorded;
    for (const OutputSpec& output : signature.outputs) {
      restrict(output.sizes, rule_of(signature, output.sizes));
    }
    if (!is_elementwise(signature)) {  // else what is smaller than the result is broadcast
      for (const Window& operand : signature.operands) {
        restrict(operand.sizes, rule_of(signature, operand.sizes));
      }
    }
  }
  const std::vector<bool> flat = flat_inputs(graph);
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphValue output = graph.outputs[i];
    const bool is_flat = i < graph.donated.size() && graph.donated[i] >= 0 &&
                         flat[static_cast<size_t>(graph.donated[i])];
    if (output.producer < 0 || is_flat) {
      continue;
    }
    const Signature& signature = *graph.nodes[output.producer].node->signature;
    if (is_elementwise(signature)) {  // the loop that writes it has its dimensions
      const OutputSpec& spec = signature.outputs[output.index];
      restrict(in_order_of_memory(signature) ? spec.frame.dims : spec.sizes,
               [](size_t) { return false; });
    }
  }
}

void Coalescing::restrict(const Dims& sizes, const std::function<bool(size_t d)>& may_join) {
  if (sizes.size() < 2) {
    return;
  }
  Joined& joined = joined_.try_emplace(sizes, sizes.size() - 1, true).first->second;
  for (size_t d = 0; d < joined.size(); ++d) {
    joined[d] = joined[d] && may_join(d);
  }
}

std::optional<Signature> Coalescing::of(const Signature& recorded) const {
  if (!is_elementwise(recorded)) {
    return std::nullopt;
  }
  const std::optional<Signature> ordered = in_order_of_memory(recorded);
  const Signature& signature = ordered ? *ordered : recorded;
  constexpr int64_t kWorthwhile = 1 << 10;  // numbers
  const Dims& sizes = signature.outputs[0].sizes;
  const auto found = joined_.find(sizes);
  if (found == joined_.end() || !found->second.back() || is_good_inside(sizes.back()) ||
      product(sizes) < kWorthwhile) {
    return ordered;
  }
  const Joined& joined = found->second;
  Signature result = signature;
  for (Window& operand : result.operands) {
    join(operand, joined, sizes.size());
  }
  for (OutputSpec& output : result.outputs) {
    output = make_output_spec(output.dtype, joined_sizes(sizes, joined),
                              joined_strides(output.strides, joined));
  }
  return result;
}

}  // namespace torch_xla
