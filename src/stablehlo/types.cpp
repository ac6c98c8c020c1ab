#include "base/error.h"
#include "pjrt/doubles.h"
#include "stablehlo/builder.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

namespace torch_xla::stablehlo {

std::string_view element_type_string(DType dtype) {
  switch (pjrt::device_dtype(dtype)) {
    case DType::Bool:
      return "i1";
    case DType::Byte:
      return "ui8";
    case DType::Char:
      return "i8";
    case DType::Short:
      return "i16";
    case DType::Int:
      return "i32";
    case DType::Long:
      return "i64";
    case DType::UInt16:
      return "ui16";
    case DType::UInt32:
      return "ui32";
    case DType::UInt64:
      return "ui64";
    case DType::Half:
      return "f16";
    case DType::BFloat16:
      return "bf16";
    case DType::Float:
      return "f32";
    case DType::Double:
      return "f64";
    case DType::ComplexFloat:
      return "complex<f32>";
    case DType::ComplexDouble:
      return "complex<f64>";
    case DType::Float8_e4m3fn:
      return "f8E4M3FN";
    case DType::Float8_e5m2:
      return "f8E5M2";
    default:
      throw Error(std::string("dtype ") + c10::toString(dtype) +
                  " has no counterpart on the xla device");
  }
}

std::string type_string(const TensorType& type) {
  std::string text = "tensor<";
  for (int64_t dim : type.dims) {
    text += std::to_string(dim) + "x";
  }
  text += element_type_string(type.dtype);
  return text + ">";
}

namespace {

std::string hex(uint64_t bits, int digits) {
  static const char* kDigits = "0123456789ABCDEF";
  std::string text = "0x";
  for (int i = digits - 1; i >= 0; --i) {
    text += kDigits[(bits >> (4 * i)) & 15];
  }
  return text;
}

// The value rounded to `dtype`.
double rounded(double value, DType dtype) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::Double:
      return value;
    case DType::Half:
      return static_cast<float>(c10::Half(narrow));
    case DType::BFloat16:
      return static_cast<float>(c10::BFloat16(narrow));
    case DType::Float8_e4m3fn:
      return static_cast<float>(c10::Float8_e4m3fn(narrow));
    case DType::Float8_e5m2:
      return static_cast<float>(c10::Float8_e5m2(narrow));
    default:
      return narrow;
  }
}

std::string bits_text(double value, DType dtype) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::Double:
      return hex(std::bit_cast<uint64_t>(value), 16);
    case DType::Half:
      return hex(c10::Half(narrow).x, 4);
    case DType::BFloat16:
      return hex(c10::BFloat16(narrow).x, 4);
    case DType::Float8_e4m3fn:
      return hex(c10::Float8_e4m3fn(narrow).x, 2);
    case DType::Float8_e5m2:
      return hex(c10::Float8_e5m2(narrow).x, 2);
    default:
      return hex(std::bit_cast<uint32_t>(narrow), 8);
  }
}

// The shortest of MLIR's decimals that is read as this value, as a double; what has none
// (infinities, NaN) as bits.
std::string float_text(double value, DType dtype) {
  const double exact = rounded(value, dtype);
  if (!std::isfinite(exact)) {
    return bits_text(value, dtype);
  }
  for (int digits : {6, 8, 16}) {
    char text[32];
    const auto end =
        std::to_chars(text, std::end(text), exact, std::chars_format::scientific, digits);
    double read = 0;
    std::from_chars(text, end.ptr, read);
    if (rounded(read, dtype) == exact) {
      return std::string(text, end.ptr);
    }
  }
  return bits_text(value, dtype);
}

std::string integer_text(Number value, DType dtype) {
  int64_t integer = value.is_integral() ? value.integer
                    : std::isfinite(value.floating.real())
                        ? static_cast<int64_t>(value.floating.real())
                        : std::numeric_limits<int64_t>::min();
  switch (dtype) {
    case DType::Bool: {
      bool truth = value.is_integral() ? value.integer != 0 : value.floating != 0.0;
      return truth ? "true" : "false";
    }
    case DType::Byte:
      return std::to_string(static_cast<uint8_t>(integer));
    case DType::Char:
      return std::to_string(static_cast<int8_t>(integer));
    case DType::Short:
      return std::to_string(static_cast<int16_t>(integer));
    case DType::Int:
      return std::to_string(static_cast<int32_t>(integer));
    case DType::UInt16:
      return std::to_string(static_cast<uint16_t>(integer));
    case DType::UInt32:
      return std::to_string(static_cast<uint32_t>(integer));
    case DType::UInt64:
      return std::to_string(static_cast<uint64_t>(integer));
    default:
      return std::to_string(integer);
  }
}

}  // namespace

std::string number_text(Number value, DType dtype) {
  dtype = pjrt::device_dtype(dtype);
  if (c10::isComplexType(dtype)) {
    DType part = c10::toRealValueType(dtype);
    std::complex<double> c = value.to_complex();
    return "(" + float_text(c.real(), part) + ", " + float_text(c.imag(), part) + ")";
  }
  return c10::isFloatingType(dtype) ? float_text(value.to_double(), dtype)
                                    : integer_text(value, dtype);
}

}  // namespace torch_xla::stablehlo
