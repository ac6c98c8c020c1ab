// What operators return, as PyTorch's C++ code says it: in microseconds, where the meta kernels
// that Python registers take a fraction of a millisecond.
//
// A structured kernel consists of a function that tells sizes, dtypes and order and raises errors,
// and of the computation. Here the first is called. Operators that consist of others are run with
// each of these answered so.
#pragma once

#include "record/meta.h"

namespace torch_xla {

bool is_structured(const c10::OperatorHandle& op);

// nullopt where only PyTorch's meta kernel tells. Errors about the arguments are PyTorch's.
std::optional<IValues> results_in_cpp(const c10::OperatorHandle& op, const IValues& meta_arguments);
// The same where plain_results() has declined already.
std::optional<IValues> results_of_kernels(const c10::OperatorHandle& op,
                                          const IValues& meta_arguments);
// The same, also nullopt where an operator that this one consists of asks Python.
std::optional<IValues> results_without_python(const c10::OperatorHandle& op,
                                              const IValues& meta_arguments);

}  // namespace torch_xla
