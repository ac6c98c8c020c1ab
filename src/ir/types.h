// The vocabulary of values: element type, dense shape, strided window.
// Plain data, safe to use from any thread.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <complex>
#include <cstdint>

namespace torch_xla {

using DType = c10::ScalarType;
using Dims = c10::SmallVector<int64_t, 6>;

inline int64_t product(c10::ArrayRef<int64_t> dims) {
  int64_t result = 1;
  for (int64_t dim : dims) {
    result *= dim;
  }
  return result;
}

// Row-major strides of a dense array.
inline Dims row_major_strides(c10::ArrayRef<int64_t> sizes) {
  Dims strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return strides;
}

// A dense, row-major array: what a StableHLO value and a PJRT buffer hold. The array held by a
// storage is its *frame*; its order of dimensions is the order in memory.
struct TensorType {
  DType dtype = DType::Float;
  Dims dims;

  int64_t numel() const { return product(dims); }
  int64_t nbytes() const { return numel() * static_cast<int64_t>(c10::elementSize(dtype)); }
  bool operator==(const TensorType& other) const {
    return dtype == other.dtype && dims == other.dims;
  }
  bool operator!=(const TensorType& other) const { return !(*this == other); }
};

// A strided reading of a frame, in elements of `dtype`, as a PyTorch tensor sees its storage.
struct Window {
  DType dtype = DType::Float;
  Dims sizes;
  Dims strides;
  int64_t offset = 0;

  // A window that could begin elsewhere lies in a storage of `extent` elements. Where it begins is
  // then a number of the node (ir/window.h): in a signature `offset` is 0, and `start` its position
  // in Node::numbers. It lies in the same way wherever it begins.
  enum class Lies : uint8_t {
    InRows,      // within the rows that its strides cut the storage into
    AcrossRows,  // over the ends of some
    InFrame,     // as a range of each of the frame's dimensions (said of windows that are written)
  };
  int64_t extent = 0;
  Lies lies = Lies::InRows;
  int32_t start = -1;

  int64_t numel() const { return product(sizes); }
  bool operator==(const Window&) const = default;
};

// A number of the user's program: an argument such as a learning rate, or a 0-d CPU tensor.
struct Number {
  enum class Kind : uint8_t { Bool, Int, UInt, Double, Complex };  // UInt: from 2^63 on
  Kind kind = Kind::Int;
  // In a Computation: its value is this one of the numbers that a call gives (Double); what stands
  // here is what it was when the computation was traced.
  int32_t parameter = -1;
  int64_t integer = 0;            // Bool, Int, UInt (its bits)
  std::complex<double> floating;  // Double (real part), Complex
  // Its value is computed on the device: that of this operand of the node, a double without
  // dimensions. What stands above means nothing then.
  int32_t operand = -1;

  static Number of(bool value) { return {Kind::Bool, -1, value, {}, -1}; }
  static Number of(int64_t value) { return {Kind::Int, -1, value, {}, -1}; }
  static Number of(uint64_t value) {
    return {Kind::UInt, -1, std::bit_cast<int64_t>(value), {}, -1};
  }
  static Number of(double value) { return {Kind::Double, -1, 0, value, -1}; }
  static Number of(std::complex<double> value) { return {Kind::Complex, -1, 0, value, -1}; }

  bool is_integral() const { return kind <= Kind::UInt; }
  double to_double() const {
    return kind == Kind::UInt ? static_cast<double>(std::bit_cast<uint64_t>(integer))
           : is_integral()    ? static_cast<double>(integer)
                              : floating.real();
  }
  int64_t to_int() const { return is_integral() ? integer : static_cast<int64_t>(floating.real()); }
  std::complex<double> to_complex() const {
    return is_integral() ? std::complex<double>(to_double()) : floating;
  }
};

// The same kind and bits: a NaN is itself, 0.0 is not -0.0.
inline bool same_number(const Number& x, const Number& y) {
  auto bits = [](double v) { return std::bit_cast<uint64_t>(v); };
  return x.kind == y.kind && x.parameter == y.parameter && x.operand == y.operand &&
         x.integer == y.integer && bits(x.floating.real()) == bits(y.floating.real()) &&
         bits(x.floating.imag()) == bits(y.floating.imag());
}

}  // namespace torch_xla
