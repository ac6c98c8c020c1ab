// Contractions, reductions, sorting, control flow, random bits, custom calls.
#include "base/error.h"
#include "stablehlo/builder.h"
#include "stablehlo/text.h"

#include <algorithm>

namespace torch_xla::stablehlo {

namespace {

bool contains(Ints list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::vector<TensorType> scalar_types(const Vals& values) {
  std::vector<TensorType> types;
  for (const Val& value : values) {
    types.push_back({value.dtype(), {}});
  }
  return types;
}

std::vector<TensorType> twice(std::vector<TensorType> types) {
  std::vector<TensorType> result = types;
  result.insert(result.end(), types.begin(), types.end());
  return result;
}

Vals joined_operands(const Vals& x, const Vals& y) {
  Vals result = x;
  result.insert(result.end(), y.begin(), y.end());
  return result;
}

Dims or_default(const Dims& dims, size_t rank, int64_t value) {
  return dims.empty() ? Dims(rank, value) : dims;
}

TensorType without(const TensorType& type, Ints dims) {
  TensorType result{type.dtype, {}};
  for (size_t i = 0; i < type.dims.size(); ++i) {
    if (!contains(dims, static_cast<int64_t>(i))) {
      result.dims.push_back(type.dims[i]);
    }
  }
  return result;
}

int64_t dilated(int64_t size, int64_t dilation) {
  return size == 0 ? 0 : (size - 1) * dilation + 1;
}

// Sizes after sliding a window, with every optional list filled in.
struct FullWindow {
  Dims size, stride, low, high, base, window;
  FullWindow(const WindowDims& w, size_t rank)
      : size(w.size),
        stride(or_default(w.stride, rank, 1)),
        low(or_default(w.padding_low, rank, 0)),
        high(or_default(w.padding_high, rank, 0)),
        base(or_default(w.base_dilation, rank, 1)),
        window(or_default(w.window_dilation, rank, 1)) {}
  Dims result(Ints input) const {
    Dims dims;
    for (size_t i = 0; i < input.size(); ++i) {
      int64_t padded = dilated(input[i], base[i]) + low[i] + high[i];
      int64_t span = dilated(size[i], window[i]);
      dims.push_back(padded < span ? 0 : (padded - span) / stride[i] + 1);
    }
    return dims;
  }
};

std::string dimension_letters(int64_t rank, int64_t first, char first_letter, int64_t second,
                              char second_letter) {
  std::string text = "[";
  int64_t spatial = 0;
  for (int64_t i = 0; i < rank; ++i) {
    text += i > 0 ? ", " : "";
    if (i == first) {
      text += first_letter;
    } else if (i == second) {
      text += second_letter;
    } else {
      text += std::to_string(spatial++);
    }
  }
  return text + "]";
}

std::string twice_in_list(const std::string& one) { return "[" + one + ", " + one + "]"; }

// "[l0, l1] x [r0, r1]"
std::string dimension_pairs(Ints lhs, Ints rhs) {
  return "[" + spaced(lhs) + "] x [" + spaced(rhs) + "]";
}

}  // namespace

std::string Builder::reducer(DType dtype, std::string_view op) {
  return region({{dtype, {}}, {dtype, {}}},
                [&](Builder& b, const Vals& args) { return Vals{b.binary(op, args[0], args[1])}; });
}

Val Builder::dot_general(Val lhs, Val rhs, const DotDims& d, DType result) {
  TensorType type{result, {}};
  for (int64_t dim : d.lhs_batch) {
    type.dims.push_back(lhs.dim(dim));
  }
  for (int64_t i = 0; i < lhs.rank(); ++i) {
    if (!contains(d.lhs_batch, i) && !contains(d.lhs_contract, i)) {
      type.dims.push_back(lhs.dim(i));
    }
  }
  for (int64_t i = 0; i < rhs.rank(); ++i) {
    if (!contains(d.rhs_batch, i) && !contains(d.rhs_contract, i)) {
      type.dims.push_back(rhs.dim(i));
    }
  }
  return emit("dot_general", {lhs, rhs}, type,
              (d.lhs_batch.empty()
                   ? ""
                   : "batching_dims = " + dimension_pairs(d.lhs_batch, d.rhs_batch) + ", ") +
                  "contracting_dims = " + dimension_pairs(d.lhs_contract, d.rhs_contract) +
                  (precision_ == "DEFAULT" ? "" : ", precision = " + twice_in_list(precision_)));
}

Val Builder::convolution(Val input, Val kernel, const ConvolutionDims& d, DType result) {
  int64_t rank = input.rank();
  TensorType type{result, Dims(rank, 0)};
  type.dims[d.result_batch] = input.dim(d.input_batch) / d.batch_groups;
  type.dims[d.result_feature] = kernel.dim(d.kernel_output);
  int64_t in = 0;
  int64_t kern = 0;
  int64_t out = 0;
  auto next_spatial = [](int64_t& at, int64_t first, int64_t second) {
    while (at == first || at == second) {
      ++at;
    }
    return at++;
  };
  for (size_t s = 0; s < d.stride.size(); ++s) {
    int64_t input_dim = input.dim(next_spatial(in, d.input_batch, d.input_feature));
    int64_t kernel_dim = kernel.dim(next_spatial(kern, d.kernel_output, d.kernel_input));
    int64_t padded = dilated(input_dim, d.lhs_dilation[s]) + d.padding_low[s] + d.padding_high[s];
    int64_t span = dilated(kernel_dim, d.rhs_dilation[s]);
    type.dims[next_spatial(out, d.result_batch, d.result_feature)] =
        padded < span ? 0 : (padded - span) / d.stride[s] + 1;
  }
  std::string reversal;
  for (size_t s = 0; s < d.stride.size(); ++s) {
    reversal += (s == 0 ? "" : ", ") + std::string(d.reverse_kernel ? "true" : "false");
  }
  const std::string precision =
      precision_ == "DEFAULT"
          ? ""
          : ", precision_config = " + twice_in_list("#stablehlo<precision " + precision_ + ">");
  return append(
      "stablehlo.convolution(" + name_list({input, kernel}) +
          ") dim_numbers = " + dimension_letters(rank, d.input_batch, 'b', d.input_feature, 'f') +
          "x" + dimension_letters(rank, d.kernel_output, 'o', d.kernel_input, 'i') + "->" +
          dimension_letters(rank, d.result_batch, 'b', d.result_feature, 'f') + ", window = {" +
          list_detail("stride", d.stride) + ", pad = " + pairs(d.padding_low, d.padding_high) +
          ", " + list_detail("lhs_dilate", d.lhs_dilation) + ", " +
          list_detail("rhs_dilate", d.rhs_dilation) + ", reverse = [" + reversal + "]} {" +
          int_attribute("batch_group_count", d.batch_groups) + ", " +
          int_attribute("feature_group_count", d.feature_groups) + precision +
          "} : " + function_type({input.type(), kernel.type()}, {type}),
      {type})[0];
}

Vals Builder::reduce(const Vals& xs, const Vals& inits, Ints dims, const Region& body) {
  std::vector<TensorType> results;
  std::string operands;
  std::string header;
  const Vals arguments = make_arguments(twice(scalar_types(inits)));
  for (size_t i = 0; i < xs.size(); ++i) {
    results.push_back(without(xs[i].type(), dims));
    operands +=
        (i > 0 ? ", (" : "(") + name_list({xs[i]}) + " init: " + name_list({inits[i]}) + ")";
    header += " (" + argument_list({arguments[i], arguments[i + xs.size()]}) + ")";
  }
  return append("stablehlo.reduce" + operands + " across " + list_detail("dimensions", dims) +
                    " : " + function_type(types_of(joined_operands(xs, inits)), results) +
                    " reducer" + header + " " + block(arguments, body),
                results);
}

Val Builder::reduce(Val x, Val init, Ints dims, std::string_view op) {
  const TensorType result = without(x.type(), dims);
  return append("stablehlo.reduce(" + name_list({x}) + " init: " + name_list({init}) +
                    ") applies stablehlo." + std::string(op) + " across " +
                    list_detail("dimensions", dims) + " : " +
                    function_type({x.type(), init.type()}, {result}),
                {result})[0];
}

Vals Builder::reduce_window(const Vals& xs, const Vals& inits, const WindowDims& window,
                            const Region& body) {
  FullWindow full(window, window.size.size());
  std::vector<TensorType> results;
  for (const Val& x : xs) {
    results.push_back({x.dtype(), full.result(x.dims())});
  }
  return emit_generic("reduce_window", joined_operands(xs, inits), results,
                      array_attribute("window_dimensions", full.size) + ", " +
                          array_attribute("window_strides", full.stride) + ", " +
                          array_attribute("base_dilations", full.base) + ", " +
                          array_attribute("window_dilations", full.window) + ", " +
                          padding_attribute(full.low, full.high),
                      {region(twice(scalar_types(inits)), body)});
}

Val Builder::reduce_window(Val x, Val init, const WindowDims& window, std::string_view op) {
  return reduce_window({x}, {init}, window, [&](Builder& b, const Vals& args) {
    return Vals{b.binary(op, args[0], args[1])};
  })[0];
}

Val Builder::select_and_scatter(Val x, Val source, Val init, const WindowDims& window,
                                std::string_view select_direction, std::string_view scatter_op) {
  FullWindow full(window, window.size.size());
  TensorType scalar{x.dtype(), {}};
  std::string choose = region({scalar, scalar}, [&](Builder& b, const Vals& args) {
    return Vals{b.compare(select_direction, args[0], args[1])};
  });
  return emit_generic("select_and_scatter", {x, source, init}, {x.type()},
                      array_attribute("window_dimensions", full.size) + ", " +
                          array_attribute("window_strides", full.stride) + ", " +
                          padding_attribute(full.low, full.high),
                      {choose, reducer(x.dtype(), scatter_op)})[0];
}

Val Builder::scatter(Val x, Val indices, Val updates, const ScatterDims& d, const Region& body) {
  TensorType scalar{x.dtype(), {}};
  return emit_generic("scatter", {x, indices, updates}, {x.type()},
                      "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [" +
                          spaced(d.update_window_dims) + "], inserted_window_dims = [" +
                          spaced(d.inserted_window_dims) + "], scatter_dims_to_operand_dims = [" +
                          spaced(d.scatter_dims_to_operand_dims) +
                          "], index_vector_dim = " + std::to_string(d.index_vector_dim) + ">, " +
                          bool_attribute("indices_are_sorted", d.indices_sorted) + ", " +
                          bool_attribute("unique_indices", d.unique_indices),
                      {region({scalar, scalar}, body)})[0];
}

Vals Builder::sort(const Vals& xs, int64_t dim, bool stable, const Region& comparator) {
  std::vector<TensorType> results;
  std::vector<TensorType> arguments;
  for (const Val& x : xs) {
    results.push_back(x.type());
    arguments.insert(arguments.end(), 2, TensorType{x.dtype(), {}});
  }
  return emit_generic("sort", xs, results,
                      int_attribute("dimension", dim) + ", " + bool_attribute("is_stable", stable),
                      {region(arguments, comparator)});
}

Val Builder::cholesky(Val x, bool lower) {
  return emit_like("cholesky", {x}, x.type(), bool_attribute("lower", lower));
}

Val Builder::triangular_solve(Val a, Val rhs, bool left_side, bool lower, bool unit_diagonal,
                              std::string_view transpose) {
  return emit_generic(
      "triangular_solve", {a, rhs}, {rhs.type()},
      bool_attribute("left_side", left_side) + ", " + bool_attribute("lower", lower) + ", " +
          bool_attribute("unit_diagonal", unit_diagonal) + ", transpose_a = #stablehlo<transpose " +
          std::string(transpose) + ">")[0];
}

Val Builder::fft(Val x, std::string_view kind, Ints length) {
  TensorType type = x.type();
  if (kind == "RFFT") {
    type.dtype = c10::toComplexType(x.dtype());
    type.dims.back() = length.back() / 2 + 1;
  } else if (kind == "IRFFT") {
    type.dtype = c10::toRealValueType(x.dtype());
    type.dims.back() = length.back();
  }
  return emit("fft", {x}, type,
              "type = " + std::string(kind) + ", " + list_detail("length", length));
}

Vals Builder::if_else(Val predicate, const std::vector<TensorType>& results, const Region& on_true,
                      const Region& on_false) {
  return emit_generic("if", {predicate}, results, "", {region({}, on_true), region({}, on_false)});
}

Vals Builder::while_loop(const Vals& init, const Region& condition, const Region& body) {
  const std::vector<TensorType> types = types_of(init);
  const Vals carried = make_arguments(types);
  std::string operands;
  for (size_t i = 0; i < init.size(); ++i) {
    operands += (i > 0 ? ", " : "") + name_list({carried[i]}) + " = " + name_list({init[i]});
  }
  return append("stablehlo.while(" + operands + ") : " + type_list(types) + " cond " +
                    block(carried, condition) + " do " + block(carried, body),
                types);
}

std::pair<Val, Val> Builder::rng_bit_generator(Val state, const TensorType& bits,
                                               std::string_view algorithm) {
  Vals results = emit_many("rng_bit_generator", {state}, {state.type(), bits},
                           "algorithm = " + std::string(algorithm));
  return {results[0], results[1]};
}

Vals Builder::optimization_barrier(const Vals& xs) {
  const std::vector<TensorType> types = types_of(xs);
  return append("stablehlo.optimization_barrier " + name_list(xs) + " : " + type_list(types),
                types);
}

}  // namespace torch_xla::stablehlo
