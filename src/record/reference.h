// What PyTorch itself makes of a call: its meta kernels tell sizes and dtypes, and its CPU kernels
// raise the errors that the meta kernels miss. Both at the user's line, before any value is known.
#pragma once

#include "record/meta.h"

namespace torch_xla {

// What `op` (info.op or info.functional) returns, on tensors without data or of zeros; nullopt when
// only values tell. Throws the error that the CPU's kernel raises, whatever the values.
std::optional<IValues> run_checked(const OpInfo& info, const c10::OperatorHandle& op,
                                   const IValues& arguments);

// Throws the CPU's error when values do not fit where indices (without masks) put them.
void check_written_values(const at::Tensor& meta_self,
                          const c10::List<std::optional<at::Tensor>>& meta_indices,
                          const at::Tensor& values);

// Numbers are no part of a plan, so each draw's are checked, on no elements: bernoulli_(2).
void check_draw(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);

// Throws the CPU's error when the call writes memory that it reads elsewhere: x[1:].add_(x[:-1]).
void check_overlaps(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);
// The same for a call that is wrong besides: throws what the CPU says first, if that is anything.
void refuse_overlaps(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_xla
