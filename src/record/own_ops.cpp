// Operators of our own with what PyTorch needs of them: schemas, sizes of results, CPU kernels.
// lower/own.cpp makes them part of programs.
#include "pjrt/client.h"
#include "program/memory_cache.h"
#include "program/program.h"
#include "stablehlo/builder.h"
#include "stablehlo/fragment.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

TensorType type_of(const Tensor& tensor) {
  return {tensor.scalar_type(), Dims(tensor.sizes().begin(), tensor.sizes().end())};
}

Tensors empty(const std::vector<TensorType>& types, c10::Device device) {
  Tensors tensors;
  for (const TensorType& type : types) {
    tensors.push_back(at::empty(type.dims, at::TensorOptions().dtype(type.dtype).device(device)));
  }
  return tensors;
}

// ---- stablehlo(Tensor[] inputs, str text) -> Tensor[] -------------------------------------------

void check_inputs(const std::vector<TensorType>& parameters, at::TensorList inputs) {
  TORCH_CHECK(inputs.size() == parameters.size(), "a StableHLO function with ", parameters.size(),
              " parameters was called with ", inputs.size(), " tensors");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType given = type_of(inputs[i]);
    TORCH_CHECK(given == parameters[i], "a StableHLO function takes ",
                stablehlo::type_string(parameters[i]), " as argument ", i, ", and was given ",
                stablehlo::type_string(given),
                ": convert it (.to(dtype), .reshape) or export for these sizes");
  }
}

Tensors fragment_meta(at::TensorList inputs, std::string_view text) {
  const stablehlo::FunctionType type = stablehlo::main_type(std::string(text));
  check_inputs(type.parameters, inputs);
  return empty(type.results, c10::kMeta);
}

// The text as a program by itself.
ProgramPtr program_of(const std::string& text, const stablehlo::FunctionType& type) {
  static auto* programs = new MemoryCache<std::string, const Program>([] { return size_t{256}; });
  return programs->find_or_build(text, [&] {
    ProgramSource source;
    source.name = "stablehlo";
    source.text = source.text_with_locations = text;
    source.output_types = type.results;
    return load_or_compile(std::move(source));
  });
}

Tensors run_fragment(at::TensorList inputs, std::string_view text) {
  const std::string module(text);
  const stablehlo::FunctionType type = stablehlo::main_type(module);
  check_inputs(type.parameters, inputs);
  const ProgramPtr program = program_of(module, type);
  std::vector<pjrt::BufferPtr> buffers;
  std::vector<pjrt::Buffer*> arguments;
  for (const Tensor& input : inputs) {
    const auto dense = std::make_shared<Tensor>(input.contiguous());
    buffers.push_back(
        pjrt::client().buffer_from_host(dense->const_data_ptr(), type_of(*dense), 0, dense));
    arguments.push_back(buffers.back().get());
  }
  const std::vector<bool> kept(arguments.size(), false);
  Tensors results = empty(type.results, c10::kCPU);
  size_t next = 0;
  for (const pjrt::BufferPtr& output : program->executable().execute(arguments, kept, 0)) {
    Tensor& result = results[next++];
    output->copy_to_host(result.mutable_data_ptr(), result.nbytes());
  }
  return results;
}

// ---- optimization_barrier(Tensor[] tensors) -> Tensor[] -----------------------------------------

Tensors barrier_meta(at::TensorList tensors) {
  Tensors results;
  for (const Tensor& tensor : tensors) {
    results.push_back(at::empty_like(tensor));
  }
  return results;
}

Tensors barrier_on_cpu(at::TensorList tensors) {
  Tensors results;
  for (const Tensor& tensor : tensors) {
    results.push_back(at::clone(tensor));
  }
  return results;
}

// ---- mark_tensor(Tensor x, ...) -> Tensor -------------------------------------------------------

Tensor mark_meta(const Tensor& x, std::string_view, int64_t, std::string_view, bool,
                 std::string_view) {
  return at::empty_like(x);
}

Tensor mark_on_cpu(const Tensor& x, std::string_view, int64_t, std::string_view, bool,
                   std::string_view) {
  return at::clone(x);
}

TORCH_LIBRARY_FRAGMENT(torch_xla, m) {
  m.def("stablehlo(Tensor[] inputs, str text) -> Tensor[]");
  m.def("optimization_barrier(Tensor[] tensors) -> Tensor[]");
  m.def(
      "mark_tensor(Tensor x, str name, int pos, str id, bool is_input, str attributes) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_xla, Meta, m) {
  m.impl("stablehlo", &fragment_meta);
  m.impl("optimization_barrier", &barrier_meta);
  m.impl("mark_tensor", &mark_meta);
}

TORCH_LIBRARY_IMPL(torch_xla, CPU, m) {
  m.impl("stablehlo", &run_fragment);
  m.impl("optimization_barrier", &barrier_on_cpu);
  m.impl("mark_tensor", &mark_on_cpu);
}

}  // namespace

}  // namespace torch_xla
