// How explanations name things: operators, lines, shapes, numbers, arguments. Any thread.
#pragma once

#include "explain/summary.h"

namespace torch_xla::explain {

std::string operator_name(const Signature& signature);  // "aten::add", without the overload
std::string place(uint32_t location);                   // "at train.py:42", without the folders
std::string operator_at(const Operation& operation);    // "aten::add at train.py:42"
std::string shape_text(c10::ArrayRef<int64_t> dims);    // "[32, 512]"
std::string dtype_text(DType dtype);                    // "float32"
std::string number_text(const Number& number);
std::string attribute_text(const Attribute& attribute);
std::string count_text(size_t count, const std::string& noun);  // "three operations"

// "argument 1": where the operator's schema takes operand `index` or number `slot`.
std::string operand_argument(const Signature& signature, size_t index);
std::string number_argument(const Signature& signature, size_t slot);

}  // namespace torch_xla::explain
