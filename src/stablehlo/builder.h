// Writes StableHLO text. Knows no PyTorch operator; one method per StableHLO operation (named
// after it) plus a few shorthands. Shapes are inferred and checked here, so that a bad lowering
// fails with the operation's name instead of a parser's message. Not thread-safe: one module, one
// thread.
#pragma once

#include "ir/types.h"

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace torch_xla::stablehlo {

// An SSA value. Cheap to copy; valid as long as its Builder.
class Val {
 public:
  Val() = default;
  explicit operator bool() const { return type_ != nullptr; }
  const TensorType& type() const { return *type_; }
  DType dtype() const { return type_->dtype; }
  const Dims& dims() const { return type_->dims; }
  int64_t dim(int64_t i) const { return type_->dims[i]; }
  int64_t rank() const { return static_cast<int64_t>(type_->dims.size()); }
  int64_t numel() const { return type_->numel(); }

 private:
  friend class Builder;
  Val(int32_t id, const TensorType* type) : id_(id), type_(type) {}
  int32_t id_ = -1;
  const TensorType* type_ = nullptr;
};

using Vals = std::vector<Val>;
using Ints = c10::ArrayRef<int64_t>;
// Builds a region's body: block arguments in, returned values out.
using Region = std::function<Vals(class Builder&, const Vals&)>;

struct DotDims {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};

struct ConvolutionDims {  // input NC<spatial>, kernel OI<spatial>, result NC<spatial>
  Dims stride, padding_low, padding_high, lhs_dilation, rhs_dilation;
  int64_t feature_groups = 1, batch_groups = 1;
  // Positions of batch/feature in the operands; spatial dimensions follow in ascending order.
  int64_t input_batch = 0, input_feature = 1;
  int64_t kernel_output = 0, kernel_input = 1;
  int64_t result_batch = 0, result_feature = 1;
  bool reverse_kernel = false;
};

struct GatherDims {
  Dims offset_dims, collapsed_slice_dims, start_index_map;
  int64_t index_vector_dim = 0;
  Dims slice_sizes;
};

struct ScatterDims {
  Dims update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
  bool indices_sorted = false, unique_indices = false;
};

struct WindowDims {
  Dims size, stride, padding_low, padding_high, base_dilation, window_dilation;  // empty: default
};

class Builder {
 public:
  explicit Builder(std::string module_name);

  // ---- functions -------------------------------------------------------------------------
  // Functions nest: begin_function while one is open starts a separate private function and
  // end_function returns to the former.
  void begin_function(const std::string& name, bool is_public);
  Val parameter(const TensorType& type);
  void end_function(const Vals& results);
  // In the order of parameter() of the public function: input i may be reused for output j.
  void alias_parameter(int64_t parameter, int64_t output);
  // Of the public function: how an argument or a result lies on the devices, in XLA's words.
  void shard_parameter(size_t parameter, const std::string& sharding);
  void shard_result(size_t result, const std::string& sharding);
  size_t parameter_count() { return open().parameters.size(); }
  // Does the module, so far, call what may fail when it runs?
  bool may_fail() const { return may_fail_; }
  // Of products and convolutions from now on: "DEFAULT", "HIGH" or "HIGHEST".
  void set_precision(std::string precision) { precision_ = std::move(precision); }
  // What only moves bfloat16 or chooses one from now on moves bits, and rounding to them is integer
  // arithmetic. XLA-CPU would make them float32 and back, of a concatenation in passes of their
  // own, of a buffer of which one row is replaced all, and its rounding takes half of a chain's
  // time.
  void move_bits_of_bfloat16() { moves_bits_ = true; }
  void set_partitions(int64_t partitions) { partitions_ = partitions; }
  bool is_partitioned() const { return partitions_ > 1; }
  Vals call(const std::string& function, const Vals& arguments,
            const std::vector<TensorType>& results);

  // The finished module.
  std::string str(bool with_locations) const;
  // The module without locations and without names of the user's: the key of the disk cache.
  std::string key() const;

  // Following operations carry this location ("" clears): file, line, scope.
  void set_location(std::string_view file, int line, std::string_view scope);

  // ---- constants -------------------------------------------------------------------------
  Val constant(Number value, DType dtype);  // 0-d, converted to `dtype`
  Val constant(double value, DType dtype);  // 0-d; NaN and infinities allowed
  Val full(double value, const TensorType& type);
  Val full(Number value, const TensorType& type);
  bool is_constant(Val x);                           // one of the above
  Val ints(Ints values, DType dtype = DType::Long);  // 1-d
  Val iota(const TensorType& type, int64_t dim);
  Val lowest(DType dtype);   // -inf, or the smallest integer, or false
  Val highest(DType dtype);  // +inf, or the largest integer, or true

  // ---- element-wise ----------------------------------------------------------------------
  Val unary(std::string_view op, Val x);          // "negate", "exponential", "tanh", ...
  Val chlo(std::string_view op, Val x);           // "erf", "lgamma", "digamma", "erf_inv", ...
  Val binary(std::string_view op, Val x, Val y);  // same types; "add", "maximum", "and", ...
  Val compare(std::string_view direction, Val x, Val y);  // "EQ" "NE" "LT" "LE" "GT" "GE" -> bool
  Val select(Val predicate, Val on_true, Val on_false);   // predicate same shape, or 0-d
  Val clamp(Val low, Val x, Val high);
  Val is_finite(Val x);
  // PyTorch's semantics: float -> bool is x != 0, float -> integer is that of the CPU.
  Val convert(Val x, DType dtype);
  Val bitcast_convert(Val x, const TensorType& type);
  // The same as a conversion, for what was computed element by element.
  Val rounded(Val x, DType dtype);
  Val complex(Val real, Val imag);
  Val real(Val x);
  Val imag(Val x);

  // Shorthands; a 0-d or lower-rank operand is broadcast numpy-style, dtypes must agree.
  Val add(Val x, Val y);
  Val sub(Val x, Val y);
  Val mul(Val x, Val y);
  Val div(Val x, Val y);
  Val maximum(Val x, Val y);
  Val minimum(Val x, Val y);
  Val logical_and(Val x, Val y);
  Val logical_or(Val x, Val y);
  Val logical_not(Val x);
  Val scalar_like(Val x, double value);  // 0-d constant of x's dtype

  // ---- shape -----------------------------------------------------------------------------
  Val reshape(Val x, Ints dims);
  Val broadcast_in_dim(Val x, Ints dims, Ints dimension_map);
  Val expand(Val x, Ints dims);  // numpy-style, right-aligned
  Val transpose(Val x, Ints permutation);
  Val slice(Val x, Ints start, Ints limit, Ints step);
  Val slice_dim(Val x, int64_t dim, int64_t start, int64_t limit, int64_t step = 1);
  Val pad(Val x, Val value, Ints low, Ints high, Ints interior);
  Val concatenate(const Vals& xs, int64_t dim);
  Val reverse(Val x, Ints dims);
  Val dynamic_slice(Val x, const Vals& starts, Ints sizes);
  Val dynamic_update_slice(Val x, Val update, const Vals& starts);
  Val gather(Val x, Val indices, const GatherDims& dims, bool indices_sorted = false);

  // ---- contractions and reductions ----------------------------------------------------------
  Val dot_general(Val lhs, Val rhs, const DotDims& dims, DType result);
  Val convolution(Val input, Val kernel, const ConvolutionDims& dims, DType result);
  Val reduce(Val x, Val init, Ints dims, std::string_view op);  // op: "add", "maximum", ...
  Vals reduce(const Vals& xs, const Vals& inits, Ints dims, const Region& body);
  Val reduce_window(Val x, Val init, const WindowDims& window, std::string_view op);
  Vals reduce_window(const Vals& xs, const Vals& inits, const WindowDims& window,
                     const Region& body);
  Val select_and_scatter(Val x, Val source, Val init, const WindowDims& window,
                         std::string_view select_direction, std::string_view scatter_op);
  Val scatter(Val x, Val indices, Val updates, const ScatterDims& dims, const Region& body);
  Vals sort(const Vals& xs, int64_t dim, bool stable, const Region& comparator);
  Val cholesky(Val x, bool lower);
  Val triangular_solve(Val a, Val b, bool left_side, bool lower, bool unit_diagonal,
                       std::string_view transpose);  // "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"
  Val fft(Val x, std::string_view kind, Ints length);

  // ---- control, random numbers, escape hatches ------------------------------------------------
  // The values of one of two regions, which may use whatever was computed before.
  Vals if_else(Val predicate, const std::vector<TensorType>& results, const Region& on_true,
               const Region& on_false);
  Vals while_loop(const Vals& init, const Region& condition, const Region& body);
  // state u64[2] -> (new state, bits). Counter-based; `algorithm` THREE_FRY or PHILOX.
  std::pair<Val, Val> rng_bit_generator(Val state, const TensorType& bits,
                                        std::string_view algorithm = "PHILOX");
  Vals optimization_barrier(const Vals& xs);
  Val optimization_barrier(Val x) { return optimization_barrier(Vals{x})[0]; }
  // What `function` computes, under a name that others may know an implementation of. `attributes`:
  // a dictionary in MLIR's words.
  Vals composite(const std::string& name, const std::string& attributes,
                 const std::string& function, const Vals& arguments, const Vals& like);
  // @main of a module that others wrote (stablehlo/fragment.h). The same text is embedded once.
  Vals call_fragment(const std::string& module, const Vals& arguments);
  // Calls of the partitioner, by target: "Sharding" says how the value lies on the devices.
  Val sharding_call(std::string_view target, Val x, const TensorType& result,
                    const std::string& sharding);
  // `x` in its memory, by a custom call that needs `others`, too. `config`: as below.
  Val behind(std::string_view target, Val x, const Vals& others, const std::string& config = "");
  // XLA FFI (api_version 4). `config` is the body of the backend_config dictionary: "id = 7 : i64".
  Vals custom_call(std::string_view target, const Vals& operands,
                   const std::vector<TensorType>& results, const std::string& config,
                   bool may_fail);

 private:
  bool moves_as_bits(DType dtype) const { return moves_bits_ && dtype == DType::BFloat16; }
  Val bits_of(Val x) { return bitcast_convert(x, {DType::UInt16, x.dims()}); }
  Val from_bits(Val x) { return bitcast_convert(x, {DType::BFloat16, x.dims()}); }
  Val select_bits(Val predicate, Val on_true, Val on_false);
  Val to_integer(Val x, DType dtype);
  Val upper_half(Val bits);  // of 32: a bfloat16's
  Val choose(std::string_view op, Val x, Val y);
  struct Function {
    std::string name, body;
    bool is_public = false;
    Vals parameters;
    std::vector<int64_t> aliases;  // output per parameter, -1: none
    std::map<size_t, std::string> parameter_shardings, result_shardings;
    int32_t next_id = 0, next_argument = -1;
    std::unordered_set<int32_t> constants;
    int indent = 2;
  };
  Val make(const TensorType& type);
  Val make_argument(const TensorType& type);  // of a function or region
  Vals make_arguments(const std::vector<TensorType>& types);
  Function& open() { return open_.back(); }
  // Each appends an operation as StableHLO prints it. `append` is given all but the results' names.
  Vals append(const std::string& operation, const std::vector<TensorType>& results);
  // `stablehlo.op operands, details : (types) -> types`
  Vals emit_many(std::string_view op, const Vals& operands, const std::vector<TensorType>& results,
                 const std::string& details = "");
  Val emit(std::string_view op, const Vals& operands, const TensorType& result,
           const std::string& details = "");
  // The same, with one type where all agree.
  Val emit_like(std::string_view op, const Vals& operands, const TensorType& result,
                const std::string& details = "");
  // `"stablehlo.op"(operands) <{attributes}> (regions) : types`: those without a form of their own.
  Vals emit_generic(std::string_view op, const Vals& operands,
                    const std::vector<TensorType>& results, const std::string& attributes,
                    const std::vector<std::string>& regions = {});
  std::string region(const std::vector<TensorType>& arguments, const Region& body);
  // What stands between the braces of a region, and these.
  std::string block(const Vals& arguments, const Region& body, const std::string& header = "");
  std::string reducer(DType dtype, std::string_view op);
  static std::string name_list(const Vals& values);
  static std::string argument_list(const Vals& values);  // "%arg0: type, ..."
  void append_line(const std::string& line);
  std::string render(bool names, bool locations) const;
  Vals broadcast_pair(Val x, Val y);

  std::string module_name_;
  int64_t partitions_ = 1;
  std::string precision_ = "DEFAULT";
  bool may_fail_ = false;
  bool moves_bits_ = false;
  std::deque<TensorType> types_;  // stable addresses for Val
  std::vector<Function> open_;
  std::vector<std::string> finished_;
  std::map<std::string, std::string> fragments_;  // text -> name of its @main here
  std::map<std::string, int32_t> location_ids_;
  std::vector<std::string> location_definitions_;
  int32_t location_ = -1;
};

// The literal of a number in a dense<> attribute of this element type.
std::string number_text(Number value, DType dtype);

// "tensor<2x3xf32>".
std::string type_string(const TensorType& type);
std::string_view element_type_string(DType dtype);

}  // namespace torch_xla::stablehlo
