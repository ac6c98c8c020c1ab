#include "host_ops/call_frame.h"

#include "host_ops/divide.h"
#include "lower/table.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstring>

namespace torch_xla {

namespace {

using torch::jit::Stack;

c10::TensorOptions options_of(DType dtype) { return at::TensorOptions().dtype(dtype); }

class CallFrame {
 public:
  CallFrame(const Signature& signature, const c10::OperatorHandle& op,
            const std::vector<void*>& inputs, const std::vector<void*>& outputs)
      : signature_(signature), op_(op), inputs_(inputs), outputs_(outputs) {}

  void run(Workers& workers) {
    const auto& schema = op_.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i) {
      stack_.push_back(argument(signature_.arguments[i], schema[i]));
    }
    if (std::vector<Piece> pieces = divide(op_, stack_, workers.count()); !pieces.empty()) {
      run_pieces(workers, pieces.size(), [&](size_t i) { run_piece(pieces[i]); });
      return;
    }
    if (signature_.random) {
      seed_generator();
    }
    std::vector<at::Tensor> mutated = copy_mutated();
    at::AutoDispatchBelowADInplaceOrView guard;
    op_.callBoxed(&stack_);
    store(collect_results(mutated));
    if (signature_.random) {
      advance_generator();
    }
  }

 private:
  at::Tensor operand(OperandRef ref) const {
    if (ref.index < 0) {
      return {};
    }
    const Window& window = signature_.operands[ref.index];
    auto* base = static_cast<char*>(inputs_[ref.index]);
    int64_t offset = window.start < 0 ? window.offset : start_of(window);
    char* start = base + offset * static_cast<int64_t>(c10::elementSize(window.dtype));
    return at::from_blob(start, window.sizes, window.strides, options_of(window.dtype));
  }

  int64_t start_of(const Window& window) const {
    return *static_cast<const int64_t*>(inputs_[operand_count() + window.start]);
  }

  c10::Scalar number(NumberRef ref) const {
    const void* data = inputs_[operand_count() + ref.slot];
    switch (signature_.number_kinds[ref.slot]) {
      case Number::Kind::Double:
        return *static_cast<const double*>(data);
      case Number::Kind::Complex:
        return *static_cast<const c10::complex<double>*>(data);
      case Number::Kind::Bool:
        return *static_cast<const int64_t*>(data) != 0;
      default:
        return *static_cast<const int64_t*>(data);
    }
  }

  size_t operand_count() const { return signature_.operands.size() - (signature_.random ? 1 : 0); }

  c10::IValue argument(const Attribute& attribute, const c10::Argument& schema) const {
    return std::visit([&](const auto& value) { return convert(value, schema); }, attribute);
  }

  c10::IValue convert(std::monostate, const c10::Argument& schema) const {
    return schema.type()->kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor())
                                                              : c10::IValue();
  }
  c10::IValue convert(bool value, const c10::Argument&) const { return value; }
  c10::IValue convert(int64_t value, const c10::Argument&) const { return value; }
  c10::IValue convert(double value, const c10::Argument&) const { return value; }
  c10::IValue convert(DType value, const c10::Argument&) const {
    return static_cast<int64_t>(value);
  }
  c10::IValue convert(const std::string& value, const c10::Argument& schema) const {
    return schema.real_type()->str().find("Device") != std::string::npos
               ? c10::IValue(c10::Device(c10::kCPU))
               : c10::IValue(value);
  }
  c10::IValue convert(const std::vector<int64_t>& value, const c10::Argument&) const {
    return value;
  }
  c10::IValue convert(const std::vector<double>& value, const c10::Argument&) const {
    return value;
  }
  c10::IValue convert(const std::vector<bool>& value, const c10::Argument&) const {
    c10::List<bool> list;
    for (bool element : value) {
      list.push_back(element);
    }
    return list;
  }
  c10::IValue convert(OperandRef ref, const c10::Argument& schema) const {
    at::Tensor tensor = operand(ref);
    return tensor.defined() ? c10::IValue(tensor) : convert(std::monostate(), schema);
  }
  c10::IValue convert(const std::vector<OperandRef>& refs, const c10::Argument& schema) const {
    if (schema.type()->str().find("Optional") == std::string::npos &&
        schema.type()->str().find('?') == std::string::npos) {
      c10::List<at::Tensor> list;
      for (OperandRef ref : refs) {
        list.push_back(operand(ref));
      }
      return list;
    }
    c10::List<std::optional<at::Tensor>> list;
    for (OperandRef ref : refs) {
      list.push_back(ref.index < 0 ? std::nullopt : std::optional(operand(ref)));
    }
    return list;
  }
  c10::IValue convert(NumberRef ref, const c10::Argument& schema) const {
    c10::Scalar value = number(ref);
    if (!ref.is_tensor) {
      return schema.type()->str().find("float") != std::string::npos ? c10::IValue(value.toDouble())
                                                                     : c10::IValue(value);
    }
    at::Tensor tensor = at::scalar_tensor(value, options_of(ref.dtype));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(ref.wrapped);
    return tensor;
  }
  c10::IValue convert(const std::vector<NumberRef>& refs, const c10::Argument&) const {
    c10::List<c10::Scalar> list;
    for (NumberRef ref : refs) {
      list.push_back(number(ref));
    }
    return list;
  }

  // Arguments that the operator writes to belong to the program: it gets copies.
  std::vector<at::Tensor> copy_mutated() {
    std::vector<at::Tensor> copies;
    const auto& schema = op_.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i) {
      if (schema[i].alias_info() == nullptr || !schema[i].alias_info()->isWrite()) {
        continue;
      }
      if (stack_[i].isTensor()) {
        stack_[i] = stack_[i].toTensor().clone();
        copies.push_back(stack_[i].toTensor());
        continue;
      }
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : stack_[i].toTensorVector()) {
        list.push_back(tensor.clone());
        copies.push_back(list.get(list.size() - 1));
      }
      stack_[i] = list;
    }
    return copies;
  }

  std::vector<at::Tensor> collect_results(const std::vector<at::Tensor>& mutated) const {
    std::vector<at::Tensor> results;
    const auto& returns = op_.schema().returns();
    for (size_t i = 0; i < stack_.size(); ++i) {
      if (returns[i].alias_info() != nullptr) {
        continue;  // one of the copies
      }
      if (stack_[i].isTensorList()) {
        for (const at::Tensor& tensor : stack_[i].toTensorVector()) {
          results.push_back(tensor);
        }
      } else {
        results.push_back(stack_[i].isTensor() ? stack_[i].toTensor() : at::Tensor());
      }
    }
    results.insert(results.end(), mutated.begin(), mutated.end());
    return results;
  }

  // On any thread.
  void run_piece(Piece& piece) const {
    at::AutoDispatchBelowADInplaceOrView guard;
    op_.callBoxed(&piece.arguments);
    for (const Piece::Part& part : piece.parts) {
      target(part.result)
          .narrow(part.dim, part.start, part.length)
          .copy_(piece.arguments[part.result].toTensor());
    }
  }

  at::Tensor target(size_t result) const {
    const OutputSpec& spec = signature_.outputs[result];
    return at::from_blob(outputs_[result], spec.sizes, spec.strides, options_of(spec.dtype));
  }

  void store(const std::vector<at::Tensor>& results) const {
    for (size_t i = 0; i < results.size(); ++i) {
      const OutputSpec& spec = signature_.outputs[i];
      if (!spec.defined || spec.frame.numel() == 0) {
        continue;
      }
      TORCH_CHECK(results[i].defined() && results[i].sizes() == c10::IntArrayRef(spec.sizes),
                  "result ", i, " of the CPU kernel does not have the sizes that were recorded");
      target(i).copy_(results[i]);
    }
  }

  uint64_t* state() const { return static_cast<uint64_t*>(inputs_.back()); }

  void seed_generator() {
    uint64_t seed = state()[0] ^ (state()[1] * 0x9E3779B97F4A7C15ull);
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const auto& schema = op_.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i) {
      if (schema[i].name() == "generator") {
        stack_[i] = generator;
      }
    }
  }

  void advance_generator() const {
    auto* next = static_cast<uint64_t*>(outputs_.back());
    next[0] = state()[0];
    next[1] = state()[1] + 1;
  }

  const Signature& signature_;
  const c10::OperatorHandle& op_;
  const std::vector<void*>& inputs_;
  const std::vector<void*>& outputs_;
  Stack stack_;
};

}  // namespace

void run_host_op(const Signature& signature, const c10::OperatorHandle& op,
                 const std::vector<void*>& inputs, const std::vector<void*>& outputs,
                 Workers& workers) {
  CallFrame(signature, op, inputs, outputs).run(workers);
}

}  // namespace torch_xla
