// What operators return whose sizes PyTorch tells in Python only, or by composing others, which
// takes a fraction of a millisecond: for plain arguments (in order, of one floating dtype)
// it is said here. All else, mistakes too, is left to PyTorch.
#pragma once

#include "record/meta.h"

namespace torch_xla {

std::optional<IValues> plain_results(const c10::OperatorHandle& op, const IValues& meta_arguments);

}  // namespace torch_xla
