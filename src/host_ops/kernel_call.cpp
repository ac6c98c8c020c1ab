#include "host_ops/kernel_call.h"

#include "host_ops/plain_dispatch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace torch_xla {

// The CPU's gradients of norms want the statistics in the type of the parameters: what their
// forward kernels return. The meta kernels, and so what was recorded, say otherwise of 16-bit
// inputs.
struct NormGradient {
  std::string_view op;
  std::array<size_t, 3> like;        // arguments: the first that is there has the type
  std::array<size_t, 2> statistics;  // arguments
};

namespace {

using torch::jit::Stack;

at::TensorOptions options_of(DType dtype) { return at::TensorOptions().dtype(dtype); }

bool names(const c10::Argument& argument, const char* word) {
  return argument.real_type()->str().find(word) != std::string::npos ||
         argument.type()->str().find(word) != std::string::npos;
}

bool is_list_of_optionals(const c10::Argument& argument) {
  return argument.type()->str().find("Optional") != std::string::npos ||
         argument.type()->str().find('?') != std::string::npos;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// An argument that is the same in every call.
struct Constant {
  const c10::Argument& schema;

  c10::IValue operator()(std::monostate) const {
    return schema.type()->kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor())
                                                              : c10::IValue();
  }
  c10::IValue operator()(DType value) const { return static_cast<int64_t>(value); }
  c10::IValue operator()(const std::string& value) const {
    return names(schema, "Device") ? c10::IValue(c10::Device(c10::kCPU)) : c10::IValue(value);
  }
  c10::IValue operator()(const std::vector<bool>& value) const {
    c10::List<bool> list;
    for (bool element : value) {
      list.push_back(element);
    }
    return list;
  }
  template <typename T>
  c10::IValue operator()(const T& value) const {
    if constexpr (std::is_constructible_v<c10::IValue, T>) {
      return c10::IValue(value);
    } else {
      return {};  // filled in at each call
    }
  }
};

c10::Scalar scalar_of(const Number& number) {
  switch (number.kind) {
    case Number::Kind::Bool:
      return number.integer != 0;
    case Number::Kind::Int:
      return number.integer;
    case Number::Kind::UInt:
      return std::bit_cast<uint64_t>(number.integer);
    case Number::Kind::Double:
      return number.floating.real();
    default:
      return c10::complex<double>(number.floating);
  }
}

bool writes_at_indices(const c10::OperatorHandle& op) {
  constexpr const char* kNames[] = {"aten::index_put",     "aten::index_copy", "aten::index_add",
                                    "aten::index_fill",    "aten::scatter",    "aten::scatter_add",
                                    "aten::scatter_reduce"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* name) { return op.operator_name().name == name; });
}

// "add_" of "add".
std::optional<c10::OperatorHandle> in_place_form(const c10::OperatorHandle& op) {
  if (!op.hasTag(at::Tag::pointwise) && !writes_at_indices(op)) {
    return std::nullopt;
  }
  const c10::OperatorName& name = op.operator_name();
  auto found = c10::Dispatcher::singleton().findSchema({name.name + "_", name.overload_name});
  const auto& schema = op.schema().arguments();
  const bool same = found && found->schema().arguments().size() == schema.size() &&
                    is_written(found->schema().arguments()[0]);
  return same ? found : std::nullopt;
}

// Whether it is `op` with one result that is given, and the CPU has a kernel for it.
bool writes_result_of(const c10::OperatorHandle& op, const c10::OperatorHandle& other) {
  const auto &own = op.schema().arguments(), &others = other.schema().arguments();
  return op.schema().returns().size() == 1 && others.size() == own.size() + 1 &&
         others.back().is_out() && other.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         std::equal(own.begin(), own.end(), others.begin(),
                    [](auto& a, auto& b) { return !is_written(a) && *a.type() == *b.type(); });
}

// "mm.out" of "mm", "fmod.Tensor_out" of "fmod.Tensor", "div.out_mode" of "div.Tensor_mode".
std::optional<c10::OperatorHandle> out_form(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  std::string renamed = overload;
  if (constexpr std::string_view kTensor = "Tensor"; renamed.starts_with(kTensor)) {
    renamed.replace(0, kTensor.size(), "out");
  }
  for (const std::string& candidate : {std::string("out"), overload + "_out", renamed}) {
    auto found = c10::Dispatcher::singleton().findSchema({name, candidate});
    if (found && writes_result_of(op, *found)) {
      return found;
    }
  }
  return std::nullopt;
}

bool is_batch_norm(const std::string& op) {
  return op == "aten::_batch_norm_no_update" ||
         (op.find("native_batch_norm") != std::string::npos &&
          op.find("backward") == std::string::npos);
}

// Evaluation uses no statistics of a batch. The CPU's kernels return none; the meta kernel, and so
// what was recorded, has some: the running ones.
void add_unused_statistics(std::vector<at::Tensor>& results, const Stack& arguments) {
  constexpr size_t kRunningMean = 3, kRunningVariance = 4;
  if (results[1].numel() == 0 && arguments[kRunningMean].isTensor()) {
    results[1] = arguments[kRunningMean].toTensor();
    results[2] =
        at::rsqrt(at::add(arguments[kRunningVariance].toTensor(), arguments.back().toDouble()));
  }
}

constexpr NormGradient kNormGradients[] = {
    {"aten::native_batch_norm_backward", {2, 3, 1}, {5, 6}},
    {"aten::batch_norm_backward", {2, 3, 1}, {5, 6}},
    {"aten::native_layer_norm_backward", {5, 6, 1}, {3, 4}},
    {"aten::native_group_norm_backward", {4, 1, 1}, {2, 3}},
};

const NormGradient* norm_gradient(std::string_view op) {
  const auto* found = std::find_if(std::begin(kNormGradients), std::end(kNormGradients),
                                   [&](const NormGradient& known) { return known.op == op; });
  return found == std::end(kNormGradients) ? nullptr : found;
}

bool is_given(const c10::IValue& argument) {
  return argument.isTensor() && argument.toTensor().defined();
}

void convert_statistics(const NormGradient& norm, Stack& arguments) {
  const size_t* like = std::find_if(norm.like.begin(), norm.like.end(),
                                    [&](size_t i) { return is_given(arguments[i]); });
  for (size_t i : norm.statistics) {
    if (is_given(arguments[i])) {
      arguments[i] = arguments[i].toTensor().to(arguments[*like].toTensor().scalar_type());
    }
  }
}

}  // namespace

KernelCall::KernelCall(const Signature& signature, const c10::OperatorHandle& op)
    : signature_(signature),
      op_(op),
      faster_(faster_kernel(op)),
      is_batch_norm_(is_batch_norm(signature.op)),
      norm_gradient_(norm_gradient(signature.op)) {
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    constants_.push_back(std::visit(Constant{schema[i]}, signature.arguments[i]));
    add(i, signature.arguments[i]);
    if (is_written(schema[i])) {
      mutated_.push_back(i);
    }
    if (schema[i].name() == "generator") {
      generator_ = static_cast<int>(i);
    }
  }
  for (const c10::Argument& result : op.schema().returns()) {
    return_is_new_.push_back(result.alias_info() == nullptr);
  }
  out_ = out_form(op);
  const auto* self =
      signature.arguments.empty() ? nullptr : std::get_if<OperandRef>(signature.arguments.data());
  needs_self_ =
      self != nullptr && self->index < 0 && schema[0].type()->kind() == c10::TypeKind::TensorType;
  if (self != nullptr && self->index >= 0) {
    overwritable_ = self->index;
    in_place_ = in_place_form(op);
    writes_parts_ = in_place_ && writes_at_indices(op);
  }
}

void KernelCall::add(size_t argument, const Attribute& attribute) {
  const c10::Argument& schema = op_.schema().arguments()[argument];
  Slot slot;
  slot.argument = argument;
  if (const auto* tensor = std::get_if<OperandRef>(&attribute)) {
    constants_[argument] = Constant{schema}(std::monostate());
    if (tensor->index < 0) {
      return;
    }
    slot.tensors = {*tensor};
  } else if (const auto* tensors = std::get_if<std::vector<OperandRef>>(&attribute)) {
    slot.kind = is_list_of_optionals(schema) ? Slot::Kind::OptionalTensors : Slot::Kind::Tensors;
    slot.tensors = *tensors;
  } else if (const auto* number = std::get_if<NumberRef>(&attribute)) {
    slot.kind = number->is_tensor                                         ? Slot::Kind::NumberTensor
                : schema.type()->str().find("float") != std::string::npos ? Slot::Kind::Float
                                                                          : Slot::Kind::Number;
    slot.numbers = {*number};
  } else if (const auto* numbers = std::get_if<std::vector<NumberRef>>(&attribute)) {
    slot.kind = Slot::Kind::Number;
    slot.numbers = *numbers;
    slot.list = true;
    slot.whole = schema.type()->str().starts_with("int");
  } else {
    return;
  }
  slots_.push_back(std::move(slot));
}

c10::IValue KernelCall::fill(const Slot& slot, c10::ArrayRef<at::Tensor> operands,
                             c10::ArrayRef<Number> numbers) const {
  switch (slot.kind) {
    case Slot::Kind::Tensor:
      return operands[slot.tensors[0].index];
    case Slot::Kind::Tensors: {
      c10::List<at::Tensor> list;
      list.reserve(slot.tensors.size());
      for (OperandRef ref : slot.tensors) {
        list.push_back(ref.index < 0 ? at::Tensor() : operands[ref.index]);
      }
      return list;
    }
    case Slot::Kind::OptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (OperandRef ref : slot.tensors) {
        list.push_back(ref.index < 0 ? std::nullopt : std::optional(operands[ref.index]));
      }
      return list;
    }
    case Slot::Kind::Float:
      return numbers[slot.numbers[0].slot].to_double();
    case Slot::Kind::NumberTensor: {
      const NumberRef ref = slot.numbers[0];
      at::Tensor tensor = at::scalar_tensor(scalar_of(numbers[ref.slot]), options_of(ref.dtype));
      tensor.unsafeGetTensorImpl()->set_wrapped_number(ref.wrapped);
      return tensor;
    }
    default:
      break;
  }
  if (!slot.list) {
    return scalar_of(numbers[slot.numbers[0].slot]);
  }
  if (slot.whole) {
    c10::List<int64_t> list;
    for (NumberRef ref : slot.numbers) {
      list.push_back(numbers[ref.slot].to_int());
    }
    return list;
  }
  c10::List<c10::Scalar> list;
  for (NumberRef ref : slot.numbers) {
    list.push_back(scalar_of(numbers[ref.slot]));
  }
  return list;
}

Stack KernelCall::arguments(c10::ArrayRef<at::Tensor> operands,
                            c10::ArrayRef<Number> numbers) const {
  Stack stack = constants_;
  for (const Slot& slot : slots_) {
    stack[slot.argument] = fill(slot, operands, numbers);
  }
  if (needs_self_) {
    const OutputSpec& like = signature_.outputs[0];
    stack[0] = at::empty_strided(like.sizes, like.strides, options_of(like.dtype));
  }
  return stack;
}

void KernelCall::seed(Stack& arguments, const uint64_t* state) const {
  if (generator_ >= 0) {
    arguments[generator_] = at::make_generator<at::CPUGeneratorImpl>(host_seed(state));
  }
}

// Arguments that the operator writes to are values that others may read: it gets copies.
std::vector<at::Tensor> KernelCall::copy_mutated(Stack& arguments) const {
  std::vector<at::Tensor> copies;
  for (size_t i : mutated_) {
    if (arguments[i].isTensor()) {
      arguments[i] = arguments[i].toTensor().clone();
      copies.push_back(arguments[i].toTensor());
      continue;
    }
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : arguments[i].toTensorVector()) {
      list.push_back(tensor.clone());
      copies.push_back(list.get(list.size() - 1));
    }
    arguments[i] = list;
  }
  return copies;
}

std::vector<at::Tensor> KernelCall::run(Stack stack) const {
  PlainDispatch guard;
  std::vector<at::Tensor> mutated = copy_mutated(stack);
  const Stack given = is_batch_norm_ ? stack : Stack();
  if (norm_gradient_ != nullptr) {
    convert_statistics(*norm_gradient_, stack);
  }
  call(stack);
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!return_is_new_[i]) {
      continue;  // one of the copies
    }
    if (stack[i].isTensorList()) {
      for (const c10::IValue& tensor : stack[i].toListRef()) {
        results.push_back(tensor.toTensor());
      }
    } else {
      results.push_back(stack[i].isTensor() ? std::move(stack[i]).toTensor() : at::Tensor());
    }
  }
  if (is_batch_norm_) {
    add_unused_statistics(results, given);
  }
  std::move(mutated.begin(), mutated.end(), std::back_inserter(results));
  return results;
}

void KernelCall::run_in_place(Stack stack) const {
  PlainDispatch guard;
  in_place_->callBoxed(&stack);
}

void KernelCall::run_into(Stack stack, at::Tensor result) const {
  PlainDispatch guard;
  if (call_faster(op_, faster_, stack)) {
    result.copy_(stack[0].toTensor());
    return;
  }
  stack.emplace_back(std::move(result));
  out_->callBoxed(&stack);
}

at::Tensor cpu_tensor(c10::Storage storage, DType dtype, c10::IntArrayRef sizes,
                      c10::IntArrayRef strides, int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

c10::Storage allocate_on_host(size_t nbytes) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  return c10::Storage(c10::Storage::use_byte_size_t(), nbytes, allocator->allocate(nbytes),
                      allocator, /*resizable=*/true);
}

c10::Storage copy_on_host(const c10::Storage& bytes, size_t nbytes) {
  c10::Storage copy = allocate_on_host(nbytes);
  std::memcpy(copy.mutable_data(), bytes.data(), nbytes);
  return copy;
}

c10::Storage borrow_on_host(void* bytes, size_t nbytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), nbytes,
                      c10::DataPtr(bytes, c10::Device(c10::kCPU)), nullptr, /*resizable=*/false);
}

at::Tensor narrowed(const at::Tensor& tensor, int64_t dim, int64_t start, int64_t length) {
  c10::DimVector sizes(tensor.sizes());
  sizes[static_cast<size_t>(dim)] = length;
  return cpu_tensor(tensor.storage(), tensor.scalar_type(), sizes, tensor.strides(),
                    tensor.storage_offset() + start * tensor.stride(dim));
}

c10::Storage as_bools(const c10::Storage& bytes) {
  c10::Storage bools = allocate_on_host(bytes.nbytes());
  const auto* first = static_cast<const uint8_t*>(bytes.data());
  std::transform(first, first + bytes.nbytes(), static_cast<uint8_t*>(bools.mutable_data()),
                 [](uint8_t byte) { return byte != 0; });
  return bools;
}

}  // namespace torch_xla
