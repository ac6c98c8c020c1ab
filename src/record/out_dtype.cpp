// Reductions that are given where to write and no dtype compute in that of the result: integers
// are what is summed then, not a sum made one.
#include "record/recorder.h"
#include "record/registration.h"

#include <torch/library.h>

namespace torch_xla {

namespace {

void record_in_dtype_of_out(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const c10::IValue& out = torch::jit::peek(*stack, arguments.size() - 1, arguments.size());
  const size_t dtype = *op.schema().argumentIndexWithName("dtype");
  c10::IValue& wanted = torch::jit::peek(*stack, dtype, arguments.size());
  const bool is_refused =  // whatever it is written to
      op.schema().name() == "aten::mean" &&
      c10::isIntegralType(torch::jit::peek(*stack, 0, arguments.size()).toTensor().scalar_type(),
                          true);
  if (wanted.isNone() && !is_refused) {
    wanted = out.toTensor().scalar_type();
  }
  record_fallback(op, stack);
}

}  // namespace

void register_out_in_other_dtypes(torch::Library& m) {
  for (const char* name :
       {"sum.IntList_out", "prod.int_out", "mean.out", "cumsum.out", "cumprod.out"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&record_in_dtype_of_out>());
  }
}

}  // namespace torch_xla
