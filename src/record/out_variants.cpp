// Operators that heed the tensor they are given to write to.
#include "record/recorder.h"
#include "record/registration.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

// Reductions without a dtype compute in that of the result: integers are what is summed then, not
// a sum made one.
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

// Sequences are written to as many places as they have numbers, whatever their shape.
void record_sequence(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::IValue& target = stack->back();
  const at::Tensor out = target.toTensor();
  if (out.dim() == 1) {
    record_fallback(op, stack);
    return;
  }
  target = at::empty({0}, out.options());
  record_fallback(op, stack);
  const at::Tensor sequence = torch::jit::pop(*stack).toTensor();
  const bool fits = sequence.numel() == out.numel();
  const at::Tensor& written = fits ? out : out.resize_(sequence.sizes());
  stack->emplace_back(written.copy_(sequence.view(written.sizes())));
}

}  // namespace

void register_out_variants(torch::Library& m) {
  for (const char* name :
       {"arange.out", "arange.start_out", "linspace.out", "linspace.Scalar_Tensor_out",
        "linspace.Tensor_Scalar_out", "linspace.Tensor_Tensor_out", "logspace.out",
        "logspace.Scalar_Tensor_out", "logspace.Tensor_Scalar_out", "logspace.Tensor_Tensor_out",
        "range.out", "range.out_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&record_sequence>());
  }
  for (const char* name :
       {"sum.IntList_out", "prod.int_out", "mean.out", "cumsum.out", "cumprod.out"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&record_in_dtype_of_out>());
  }
  // PyTorch's own asks for a CPU, CUDA or XPU.
  m.impl("mode.values", torch::CppFunction::makeFromBoxedFunction<&record_fallback>());
}

}  // namespace torch_xla
