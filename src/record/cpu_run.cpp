#include "record/cpu_run.h"

#include "base/interrupt.h"
#include "host_ops/one_thread.h"
#include "trace/tensor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

namespace torch_xla {

namespace {

// Draws of a run on the CPU come from here, not from the user's generator.
void give_private_generator(const c10::OperatorHandle& op, IValues& stack) {
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == "generator") {
      stack[i] = at::make_generator<at::CPUGeneratorImpl>();
    }
  }
}

at::TensorOptions options_like(const at::Tensor& tensor) {
  return at::TensorOptions().dtype(tensor.scalar_type());
}

}  // namespace

at::Tensor filled(const at::Tensor& tensor, int value) {
  const auto strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return at::empty_strided(tensor.sizes(), strides, options_like(tensor)).fill_(value);
}

at::Tensor laid_out(const at::Tensor& tensor, int value) {
  const at::Tensor result =
      at::empty_strided(tensor.sizes(), tensor.strides(), options_like(tensor));
  const auto places = static_cast<int64_t>(result.storage().nbytes() / result.itemsize());
  result.as_strided({places}, {1}, 0).fill_(value);
  return result;
}

at::Tensor full_of_zeros(const at::Tensor& tensor) { return filled(tensor, 0); }

at::Tensor full_of_ones(const at::Tensor& tensor) { return filled(tensor, 1); }

at::Tensor emptied(const at::Tensor& tensor) { return at::empty({0}, options_like(tensor)); }

CpuRun run_on_cpu(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                  const Fill& fill) {
  OneThread alone;  // autograd's thread may be asking
  auto on_cpu = [&fill](const at::Tensor& tensor) {
    return is_xla(tensor) ? fill(tensor) : tensor;
  };
  CpuRun run;
  IValues stack;
  for (const c10::IValue& argument : arguments) {
    stack.push_back(map_tensors(argument, on_cpu, c10::Device(c10::kCPU)));
  }
  give_private_generator(op, stack);
  try {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.callBoxed(&stack);
    run.results = std::move(stack);
  } catch (const c10::LinAlgError&) {  // about values: a singular matrix
  } catch (const c10::Error& error) {
    run.error = std::current_exception();
    run.message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    if (is_interrupt(error)) {
      throw;
    }
    run.error = std::current_exception();
    run.message = error.what();
  }
  return run;
}

void rethrow_if_both_refuse(const CpuRun& of_zeros, const CpuRun& of_ones) {
  if (of_zeros.error && of_ones.error && of_zeros.message == of_ones.message) {
    std::rethrow_exception(of_zeros.error);
  }
}

}  // namespace torch_xla
