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
};

constexpr std::array kKnown = {
    Known{DType::Float, "float32", "<f4"},
    Known{DType::Double, "float64", "<f8"},
    Known{DType::Half, "float16", "<f2"},
    Known{DType::Bool, "bool", "|b1"},
    Known{DType::Char, "int8", "|i1"},
    Known{DType::Byte, "uint8", "|u1"},
    Known{DType::Short, "int16", "<i2"},
    Known{DType::UInt16, "uint16", "<u2"},
    Known{DType::Int, "int32", "<i4"},
    Known{DType::UInt32, "uint32", "<u4"},
    Known{DType::Long, "int64", "<i8"},
    Known{DType::UInt64, "uint64", "<u8"},
    Known{DType::ComplexFloat, "complex64", "<c8"},
    Known{DType::ComplexDouble, "complex128", "<c16"},
    // After those whose letters they borrow.
    Known{DType::BFloat16, "bfloat16", "<i2"},
    Known{DType::Float8_e4m3fn, "float8_e4m3fn", "|u1"},
    Known{DType::Float8_e4m3fnuz, "float8_e4m3fnuz", "|u1"},
    Known{DType::Float8_e5m2, "float8_e5m2", "|u1"},
    Known{DType::Float8_e5m2fnuz, "float8_e5m2fnuz", "|u1"},
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

}  // namespace torch_xla::serve
