#include "base/error.h"
#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {

namespace {

void require(bool condition, const char* op, const Val& x, Ints argument) {
  if (!condition) {
    throw Error(std::string("stablehlo.") + op + ": [" + spaced(argument) + "] does not fit " +
                type_string(x.type()));
  }
}

bool is_identity(Ints permutation) {
  for (size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<int64_t>(i)) {
      return false;
    }
  }
  return true;
}

Dims dims_of(Ints values) { return Dims(values.begin(), values.end()); }

}  // namespace

Val Builder::reshape(Val x, Ints dims) {
  require(product(dims) == x.numel(), "reshape", x, dims);
  return Ints(x.dims()) == dims ? x : emit("reshape", {x}, {x.dtype(), dims_of(dims)});
}

Val Builder::broadcast_in_dim(Val x, Ints dims, Ints dimension_map) {
  require(static_cast<int64_t>(dimension_map.size()) == x.rank(), "broadcast_in_dim", x, dims);
  for (int64_t i = 0; i < x.rank(); ++i) {
    require(x.dim(i) == 1 || x.dim(i) == dims[dimension_map[i]], "broadcast_in_dim", x, dims);
  }
  if (Ints(x.dims()) == dims && is_identity(dimension_map)) {
    return x;
  }
  return emit("broadcast_in_dim", {x}, {x.dtype(), dims_of(dims)},
              list_detail("dims", dimension_map));
}

Val Builder::expand(Val x, Ints dims) {
  Dims map;
  for (int64_t i = 0; i < x.rank(); ++i) {
    map.push_back(static_cast<int64_t>(dims.size()) - x.rank() + i);
  }
  return broadcast_in_dim(x, dims, map);
}

Val Builder::transpose(Val x, Ints permutation) {
  require(static_cast<int64_t>(permutation.size()) == x.rank(), "transpose", x, permutation);
  if (is_identity(permutation)) {
    return x;
  }
  TensorType type{x.dtype(), {}};
  for (int64_t from : permutation) {
    type.dims.push_back(x.dim(from));
  }
  return emit("transpose", {x}, type, list_detail("dims", permutation));
}

Val Builder::slice(Val x, Ints start, Ints limit, Ints step) {
  TensorType type{x.dtype(), {}};
  for (size_t i = 0; i < start.size(); ++i) {
    require(start[i] >= 0 && start[i] <= limit[i] && limit[i] <= x.dim(static_cast<int64_t>(i)),
            "slice", x, limit);
    type.dims.push_back((limit[i] - start[i] + step[i] - 1) / step[i]);
  }
  if (type.dims == x.dims()) {
    return x;
  }
  if (moves_as_bits(x.dtype())) {
    return from_bits(slice(bits_of(x), start, limit, step));
  }
  std::string ranges;
  for (size_t i = 0; i < start.size(); ++i) {
    ranges += (i > 0 ? ", " : "") + std::to_string(start[i]) + ":" + std::to_string(limit[i]) +
              (step[i] != 1 ? ":" + std::to_string(step[i]) : "");
  }
  return append("stablehlo.slice " + name_list({x}) + " [" + ranges +
                    "] : " + function_type({x.type()}, {type}),
                {type})[0];
}

Val Builder::slice_dim(Val x, int64_t dim, int64_t start, int64_t limit, int64_t step) {
  Dims starts(x.rank(), 0);
  Dims limits(x.dims());
  Dims steps(x.rank(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  steps[dim] = step;
  return slice(x, starts, limits, steps);
}

Val Builder::pad(Val x, Val value, Ints low, Ints high, Ints interior) {
  if (moves_as_bits(x.dtype())) {
    return from_bits(pad(bits_of(x), bits_of(value), low, high, interior));
  }
  TensorType type{x.dtype(), {}};
  for (int64_t i = 0; i < x.rank(); ++i) {
    int64_t size = x.dim(i);
    int64_t spread = size > 0 ? size + (size - 1) * interior[i] : 0;
    type.dims.push_back(low[i] + spread + high[i]);
    require(type.dims.back() >= 0, "pad", x, high);
  }
  return emit("pad", {x, value}, type,
              list_detail("low", low) + ", " + list_detail("high", high) + ", " +
                  list_detail("interior", interior));
}

Val Builder::concatenate(const Vals& xs, int64_t dim) {
  if (xs.size() == 1) {
    return xs[0];
  }
  if (moves_as_bits(xs.at(0).dtype())) {
    Vals bits;
    for (const Val& x : xs) {
      bits.push_back(bits_of(x));
    }
    return from_bits(concatenate(bits, dim));
  }
  TensorType type = xs.at(0).type();
  type.dims[dim] = 0;
  for (const Val& x : xs) {
    require(x.dtype() == type.dtype && x.rank() == xs[0].rank(), "concatenate", x, type.dims);
    type.dims[dim] += x.dim(dim);
  }
  return emit("concatenate", xs, type, "dim = " + std::to_string(dim));
}

Val Builder::reverse(Val x, Ints dims) {
  if (dims.empty()) {
    return x;
  }
  if (moves_as_bits(x.dtype())) {
    return from_bits(reverse(bits_of(x), dims));
  }
  return emit_like("reverse", {x}, x.type(), list_detail("dims", dims));
}

Val Builder::dynamic_slice(Val x, const Vals& starts, Ints sizes) {
  if (moves_as_bits(x.dtype())) {
    return from_bits(dynamic_slice(bits_of(x), starts, sizes));
  }
  Vals operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit("dynamic_slice", operands, {x.dtype(), dims_of(sizes)}, list_detail("sizes", sizes));
}

Val Builder::dynamic_update_slice(Val x, Val update, const Vals& starts) {
  require(x.rank() == update.rank() && x.dtype() == update.dtype(), "dynamic_update_slice", x,
          update.dims());
  if (moves_as_bits(x.dtype())) {
    return from_bits(dynamic_update_slice(bits_of(x), bits_of(update), starts));
  }
  Vals operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit("dynamic_update_slice", operands, x.type());
}

Val Builder::gather(Val x, Val indices, const GatherDims& dims, bool indices_sorted) {
  if (moves_as_bits(x.dtype())) {
    return from_bits(gather(bits_of(x), indices, dims, indices_sorted));
  }
  // Result: batch dimensions of `indices`, with the slices' kept dimensions at offset_dims.
  Dims batch;
  for (int64_t i = 0; i < indices.rank(); ++i) {
    if (i != dims.index_vector_dim) {
      batch.push_back(indices.dim(i));
    }
  }
  Dims kept;
  for (size_t i = 0; i < dims.slice_sizes.size(); ++i) {
    bool collapsed = false;
    for (int64_t c : dims.collapsed_slice_dims) {
      collapsed = collapsed || c == static_cast<int64_t>(i);
    }
    if (!collapsed) {
      kept.push_back(dims.slice_sizes[i]);
    }
  }
  TensorType type{x.dtype(), Dims(batch.size() + kept.size(), -1)};
  for (size_t i = 0; i < dims.offset_dims.size(); ++i) {
    type.dims[dims.offset_dims[i]] = kept[i];
  }
  size_t next = 0;
  for (int64_t& dim : type.dims) {
    if (dim < 0) {
      dim = batch[next++];
    }
  }
  std::string numbers = "dimension_numbers = #stablehlo.gather<offset_dims = [" +
                        spaced(dims.offset_dims) + "], collapsed_slice_dims = [" +
                        spaced(dims.collapsed_slice_dims) + "], start_index_map = [" +
                        spaced(dims.start_index_map) +
                        "], index_vector_dim = " + std::to_string(dims.index_vector_dim) + ">";
  return emit_generic("gather", {x, indices}, {type},
                      numbers + ", " + array_attribute("slice_sizes", dims.slice_sizes) + ", " +
                          bool_attribute("indices_are_sorted", indices_sorted))[0];
}

}  // namespace torch_xla::stablehlo
