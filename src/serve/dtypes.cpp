#include "serve/dtypes.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace torch_xla::serve {

namespace {

struct Known {
  DType dtype;
  const char* name;
  const char* npy;
  const char* safetensors;  // empty: it has no such dtype
};

constexpr std::array kKnown = {
    Known{DType::Float, "float32", "<f4", "F32"},
    Known{DType::Double, "float64", "<f8", "F64"},
    Known{DType::Half, "float16", "<f2", "F16"},
    Known{DType::Bool, "bool", "|b1", "BOOL"},
    Known{DType::Char, "int8", "|i1", "I8"},
    Known{DType::Byte, "uint8", "|u1", "U8"},
    Known{DType::Short, "int16", "<i2", "I16"},
    Known{DType::UInt16, "uint16", "<u2", "U16"},
    Known{DType::Int, "int32", "<i4", "I32"},
    Known{DType::UInt32, "uint32", "<u4", "U32"},
    Known{DType::Long, "int64", "<i8", "I64"},
    Known{DType::UInt64, "uint64", "<u8", "U64"},
    Known{DType::ComplexFloat, "complex64", "<c8", "C64"},
    Known{DType::ComplexDouble, "complex128", "<c16", ""},
    // After those whose letters they borrow.
    Known{DType::BFloat16, "bfloat16", "<i2", "BF16"},
    Known{DType::Float8_e4m3fn, "float8_e4m3fn", "|u1", "F8_E4M3"},
    Known{DType::Float8_e4m3fnuz, "float8_e4m3fnuz", "|u1", "F8_E4M3FNUZ"},
    Known{DType::Float8_e5m2, "float8_e5m2", "|u1", "F8_E5M2"},
    Known{DType::Float8_e5m2fnuz, "float8_e5m2fnuz", "|u1", "F8_E5M2FNUZ"},
};

const Known& named(const std::string& name) {
  const auto* found = std::find_if(kKnown.begin(), kKnown.end(),
                                   [&](const Known& known) { return name == known.name; });
  if (found == kKnown.end()) {
    throw Error("there is no dtype '" + name + "' in programs");
  }
  return *found;
}

}  // namespace

DType dtype_named(const std::string& name) { return named(name).dtype; }

std::string dtype_of_npy(const std::string& descr) {
  const auto* found = std::find_if(kKnown.begin(), kKnown.end(),
                                   [&](const Known& known) { return descr == known.npy; });
  if (found == kKnown.end()) {
    throw Error("NumPy's dtype '" + descr + "' is none of tensors");
  }
  return found->name;
}

std::string npy_of_dtype(const std::string& name) { return named(name).npy; }

std::string safetensors_of_dtype(const std::string& name) { return named(name).safetensors; }

}  // namespace torch_xla::serve
