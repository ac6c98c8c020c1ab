// A graph -> the text of one StableHLO module. Stateless; call from any thread.
#pragma once

#include "base/error.h"
#include "ir/graph.h"

#include <string>
#include <vector>

namespace torch_xla {

// Which of a graph's numbers are inputs of the program rather than literals. Inputs travel in two
// packed parameters that follow the graph's own: f64[doubles], i64[integers].
struct NumberPlacement {
  std::vector<int32_t> position;  // per Graph::numbers: index in its pack, or -1 for a literal
  int32_t doubles = 0;
  int32_t integers = 0;
};

struct LoweredModule {
  std::string text;      // without locations and names
  std::string readable;  // with the names of functions, for people
  std::string text_with_locations;
  std::vector<TensorType> outputs;
  // Numbers the lowering wanted as literals (LowerContext::static_number): never promoted.
  std::vector<bool> pinned;
  // It calls kernels that raise for some values: errors that come when it has been launched.
  bool may_fail = false;
};

// An operation of the graph cannot be lowered.
class LoweringError : public Error {
 public:
  LoweringError(const std::string& message, size_t node) : Error(message), node_(node) {}
  size_t node() const { return node_; }

 private:
  size_t node_;
};

LoweredModule lower_graph(const Graph& graph, const std::string& name,
                          const NumberPlacement& numbers, HostCalls host_calls);

// The custom call target of host operators, and the type of number operands they are given.
inline constexpr const char* kHostCallTarget = "torch_xla_host_op";
// (state) -> (bits, state behind them)
inline constexpr const char* kRandomBitsTarget = "torch_xla_random_bits";
// (value, others...) -> (the value, in its memory)
inline constexpr const char* kBehindTarget = "torch_xla_behind";
// (x [outer, size, inner], index of slices or of each, updates [outer, count, inner]) -> (x written
// to, in its memory): host_ops/write_at.h. "combine": a Combine.
inline constexpr const char* kWriteAtTarget = "torch_xla_write_at";
// (matrix) -> (largest of each row, sums of exponentials below it), (matrix) -> (means of rows,
// sums of squares off them), (matrix) -> (sums of columns, of rows or of their squares), (matrix)
// -> (extremes of rows[, their places, int32]): of float or 16 bits, in float (host_ops/rows.h)
inline constexpr const char* kRowExponentialsTarget = "torch_xla_row_exponentials";
inline constexpr const char* kRowSumsTarget = "torch_xla_row_sums";
inline constexpr const char* kRowSquaresTarget = "torch_xla_row_squares";
inline constexpr const char* kRowMomentsTarget = "torch_xla_row_moments";
// (gradient, input, means) -> (sums of the gradient's rows, of its products with input - mean)
inline constexpr const char* kRowGradientSumsTarget = "torch_xla_row_gradient_sums";
inline constexpr const char* kRowLargestTarget = "torch_xla_row_largest";
inline constexpr const char* kRowSmallestTarget = "torch_xla_row_smallest";
// (matrix) -> (softmax of each row), (gradient, softmax) -> (gradient): in their type
inline constexpr const char* kRowSoftmaxTarget = "torch_xla_row_softmax";
inline constexpr const char* kRowSafeSoftmaxTarget = "torch_xla_row_safe_softmax";
inline constexpr const char* kRowSoftmaxGradientTarget = "torch_xla_row_softmax_gradient";
// Of columns as of rows.
inline constexpr const char* kColumnSumsTarget = "torch_xla_column_sums";
inline constexpr const char* kColumnMomentsTarget = "torch_xla_column_moments";
inline constexpr const char* kColumnGradientSumsTarget = "torch_xla_column_gradient_sums";

}  // namespace torch_xla
