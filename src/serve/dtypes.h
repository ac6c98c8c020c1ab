// dtypes by the names that exported folders and files of arrays have for them. Stateless.
#pragma once

#include "ir/types.h"

#include <string>

namespace torch_xla::serve {

// "float32" -> Float; throws for what no program has.
DType dtype_named(const std::string& name);

// "<f4" -> "float32"; throws for what is not a tensor's.
std::string dtype_of_npy(const std::string& descr);

// "float32" -> "<f4"; the bits as integers where NumPy has no such dtype.
std::string npy_of_dtype(const std::string& name);

// "float32" -> "F32"; empty where the format has no such dtype.
std::string safetensors_of_dtype(const std::string& name);

}  // namespace torch_xla::serve
