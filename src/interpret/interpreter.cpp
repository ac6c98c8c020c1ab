#include "interpret/interpreter.h"

#include "base/interrupt.h"
#include "base/location.h"
#include "host_ops/draw.h"
#include "host_ops/host_ops.h"
#include "interpret/control.h"
#include "ir/window.h"
#include "lower/internal.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

namespace torch_xla {

namespace {

at::Tensor window_tensor(c10::Storage memory, const Window& window) {
  return cpu_tensor(std::move(memory), window.dtype, window.sizes, window.strides, window.offset);
}

c10::Storage bytes_of(const TensorType& type) {
  return allocate_on_host(static_cast<size_t>(type.nbytes()));
}

at::Tensor output_tensor(const c10::Storage& memory, const OutputSpec& spec) {
  return cpu_tensor(memory, spec.dtype, spec.sizes, spec.strides, 0);
}

bool same_strides(const at::Tensor& tensor, const OutputSpec& spec) {
  for (size_t i = 0; i < spec.sizes.size(); ++i) {
    if (spec.sizes[i] != 1 && tensor.stride(static_cast<int64_t>(i)) != spec.strides[i]) {
      return false;
    }
  }
  return true;
}

// The kernel's result is already what the output must be, in memory that is nobody else's.
bool is_the_output(const at::Tensor& result, const OutputSpec& spec) {
  const c10::Storage& storage = result.storage();
  return result.scalar_type() == spec.dtype && result.storage_offset() == 0 &&
         same_strides(result, spec) && result.use_count() == 1 && storage.use_count() == 1 &&
         static_cast<int64_t>(storage.nbytes()) == spec.frame.nbytes() && !result.is_conj() &&
         !result.is_neg() &&
         storage.data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter();
}

c10::Storage memory_of(at::Tensor result, const OutputSpec& spec, const Signature& signature) {
  if (!spec.defined || spec.frame.numel() == 0) {
    return bytes_of(spec.frame);
  }
  if (!result.defined() || result.layout() != c10::kStrided ||
      result.sizes() != c10::IntArrayRef(spec.sizes)) {
    throw NotInterpretable("the CPU kernel of " + signature.op +
                           " gives another shape than was recorded");
  }
  if (is_the_output(result, spec)) {
    return result.storage();
  }
  c10::Storage memory = bytes_of(spec.frame);
  output_tensor(memory, spec).copy_(result);
  return memory;
}

// Memory of this run's own that nothing else reads.
bool is_free(const c10::Storage& memory, size_t nbytes) {
  return memory.use_count() == 1 && memory.nbytes() == nbytes &&
         memory.data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter();
}

// Its memory can take the output.
bool may_become(const at::Tensor& operand, const OutputSpec& spec) {
  return spec.defined && operand.scalar_type() == spec.dtype && operand.storage_offset() == 0 &&
         operand.sizes() == c10::IntArrayRef(spec.sizes) && same_strides(operand, spec) &&
         is_free(operand.storage(), static_cast<size_t>(spec.frame.nbytes()));
}

// What the user has to know of, rather than a type that this kernel does not take: an index that
// does not exist, a division by zero, or whatever the user's own operator says.
bool is_about_values(const c10::Error& error, const Node& node) {
  constexpr const char* kComplaints[] = {
      "out of bounds",       "out of range",      "in the valid range",
      "invalid max index",   "ZeroDivisionError", "probability tensor contains",
      "invalid multinomial", "between 0 and 1",   "p_in <= 1"};
  const std::string& message = error.msg();
  return dynamic_cast<const c10::IndexError*>(&error) != nullptr ||
         std::any_of(std::begin(kComplaints), std::end(kComplaints),
                     [&](const char* text) { return message.find(text) != std::string::npos; }) ||
         (node.signature->computation == nullptr && !node.signature->op.starts_with("aten::"));
}

class Interpreter {
 public:
  // `given`: the numbers of the call, if the graph is a computation's.
  Interpreter(const Graph& graph, std::vector<c10::Storage> inputs, c10::ArrayRef<Number> given)
      : graph_(graph), numbers_(graph.numbers) {
    for (Number& number : numbers_) {
      number = number.parameter < 0 ? number : given[static_cast<size_t>(number.parameter)];
    }
    first_.reserve(graph.nodes.size());
    size_t values = inputs.size();
    for (const GraphNode& entry : graph.nodes) {
      first_.push_back(values);
      values += entry.node->signature->outputs.size();
    }
    values_ = std::move(inputs);
    values_.resize(values);
    uses_.resize(values, 0);
    for (GraphValue operand : graph.operands) {
      ++uses_[index(operand)];
    }
    for (GraphValue output : graph.outputs) {
      ++uses_[index(output)];
    }
  }

  std::vector<c10::Storage> run(size_t* culprit) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      check_interrupt();
      try {
        run_node(graph_.nodes[n], first_[n]);
      } catch (c10::Error& error) {
        if (!is_about_values(error, *graph_.nodes[n].node)) {
          throw NotInterpretable(error.what_without_backtrace());
        }
        note(n, culprit);
        if (const uint32_t location = graph_.nodes[n].node->location; location != 0) {
          error.add_context("of " + graph_.nodes[n].node->signature->op + " recorded at " +
                            location_of(location).str());
        }
        throw;
      } catch (...) {
        note(n, culprit);
        throw;
      }
    }
    std::vector<c10::Storage> outputs;
    for (GraphValue output : graph_.outputs) {
      outputs.push_back(own(index(output), graph_.type(output)));
    }
    return outputs;
  }

 private:
  static void note(size_t node, size_t* culprit) {
    if (culprit != nullptr) {
      *culprit = node;
    }
  }

  size_t index(GraphValue value) const {
    return value.producer < 0 ? value.index : first_[value.producer] + value.index;
  }

  // The value for one of its uses, the last of which takes it.
  c10::Storage take(size_t value) {
    return --uses_[value] == 0 ? std::move(values_[value]) : values_[value];
  }

  // An output: an input, or a value given out twice, is copied.
  c10::Storage own(size_t value, const TensorType& type) {
    c10::Storage memory = take(value);
    if (value >= graph_.inputs.size() && uses_[value] == 0) {
      return memory;
    }
    c10::Storage copy = bytes_of(type);
    std::memcpy(copy.mutable_data(), memory.data(), copy.nbytes());
    return copy;
  }

  void run_node(const GraphNode& entry, size_t first) {
    const Signature& signature = *entry.node->signature;
    const size_t count = entry.node->operands.size();
    std::vector<c10::Storage> operands;
    operands.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      operands.push_back(take(index(graph_.operands[entry.first_operand + i])));
    }
    const c10::ArrayRef<Number> numbers(numbers_.data() + entry.first_number,
                                        entry.node->numbers.size());
    std::vector<c10::Storage> results = compute(signature, std::move(operands), numbers);
    for (size_t i = 0; i < results.size(); ++i) {
      if (uses_[first + i] > 0) {
        values_[first + i] = std::move(results[i]);
      }
    }
  }

  static std::vector<c10::Storage> compute(const Signature& signature,
                                           std::vector<c10::Storage> operands,
                                           c10::ArrayRef<Number> numbers) {
    if (signature.computation) {
      return run_computation(*signature.computation, std::move(operands), numbers);
    }
    if (signature.lower == &lower_zeros) {
      return {zeros(signature.outputs[0].frame)};
    }
    if (signature.lower == &lower_write) {
      return {write(signature, std::move(operands), numbers)};
    }
    if (signature.lower == &lower_read) {
      return {memory_of(window_tensor(operands[0], window_of_operand(signature, 0, numbers)),
                        signature.outputs[0], signature)};
    }
    return signature.random ? draw(signature, operands, numbers)
                            : call(signature, std::move(operands), numbers);
  }

  static c10::Storage zeros(const TensorType& type) {
    c10::Storage memory = bytes_of(type);
    std::memset(memory.mutable_data(), 0, memory.nbytes());
    return memory;
  }

  // Operand 0 with its window replaced by operand 1; in place if nothing else needs it.
  static c10::Storage write(const Signature& signature, std::vector<c10::Storage> operands,
                            c10::ArrayRef<Number> numbers) {
    const auto nbytes = static_cast<size_t>(signature.outputs[0].frame.nbytes());
    c10::Storage memory = std::move(operands[0]);
    if (!is_free(memory, nbytes)) {
      c10::Storage copy = allocate_on_host(nbytes);
      const size_t known = std::min(nbytes, memory.nbytes());
      auto* bytes = static_cast<char*>(copy.mutable_data());
      if (known > 0) {
        std::memcpy(bytes, memory.data(), known);
      }
      std::memset(bytes + known, 0, nbytes - known);
      memory = std::move(copy);
    }
    overwrite(window_tensor(memory, window_of_operand(signature, 0, numbers)),
              window_tensor(operands[1], window_of_operand(signature, 1, numbers)));
    return memory;
  }

  // Of what is written to an expanded dimension the last stays.
  static void overwrite(at::Tensor window, at::Tensor update) {
    for (int64_t i = 0; i < window.dim(); ++i) {
      if (window.stride(i) == 0 && window.size(i) > 1) {
        update = update.narrow(i, window.size(i) - 1, 1);
        window = window.narrow(i, 0, 1);
      }
    }
    window.copy_(update);
  }

  static std::vector<at::Tensor> windows(const Signature& signature,
                                         std::vector<c10::Storage> operands,
                                         c10::ArrayRef<Number> numbers) {
    std::vector<at::Tensor> tensors;
    const size_t count = operands.size() - (signature.random ? 1 : 0);
    tensors.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      tensors.push_back(
          window_tensor(std::move(operands[i]), window_of_operand(signature, i, numbers)));
    }
    return tensors;
  }

  static std::vector<c10::Storage> memories_of(std::vector<at::Tensor> results,
                                               const Signature& signature) {
    std::vector<c10::Storage> memories;
    memories.reserve(signature.outputs.size());
    for (size_t i = 0; i < results.size(); ++i) {
      memories.push_back(memory_of(std::move(results[i]), signature.outputs[i], signature));
    }
    return memories;
  }

  static std::shared_ptr<const KernelCall> kernel_of(const Signature& signature) {
    std::shared_ptr<const KernelCall> kernel = find_kernel_call(signature);
    if (kernel == nullptr) {
      throw NotInterpretable("no CPU kernel is known for " + signature.op);
    }
    return kernel;
  }

  static std::vector<c10::Storage> call(const Signature& signature,
                                        std::vector<c10::Storage> operands,
                                        c10::ArrayRef<Number> numbers) {
    const std::shared_ptr<const KernelCall> found = kernel_of(signature);
    const KernelCall& kernel = *found;
    const std::vector<at::Tensor> tensors = windows(signature, std::move(operands), numbers);
    std::vector<at::Tensor> results;
    try {
      const int32_t reused = kernel.overwritable();
      if (reused >= 0 && may_become(tensors[reused], signature.outputs[0])) {
        kernel.run_in_place(kernel.arguments(tensors, numbers));
        return {tensors[reused].storage()};
      }
      results = kernel.run(kernel.arguments(tensors, numbers));
    } catch (const c10::Error&) {
      results = run_widened(kernel, tensors, numbers);
    }
    return memories_of(std::move(results), signature);
  }

  // Some kernels refuse 16-bit tensors, or mixtures with 32-bit ones that a program accepts: there
  // it computes in 32 bits and rounds. To be called where the kernel refused.
  static std::vector<at::Tensor> run_widened(const KernelCall& kernel,
                                             std::vector<at::Tensor> tensors,
                                             c10::ArrayRef<Number> numbers) {
    bool widened = false;
    for (at::Tensor& tensor : tensors) {
      if (c10::isReducedFloatingType(tensor.scalar_type())) {
        tensor = tensor.to(at::kFloat);
        widened = true;
      }
    }
    if (!widened) {
      throw;
    }
    return kernel.run(kernel.arguments(tensors, numbers));
  }

  // A random operator: its last operand and last output are the generator's state.
  static std::vector<c10::Storage> draw(const Signature& signature,
                                        const std::vector<c10::Storage>& operands,
                                        c10::ArrayRef<Number> numbers) {
    const TensorType& type = signature.outputs.back().frame;
    c10::Storage state = bytes_of(type);
    std::memcpy(state.mutable_data(), operands.back().data(), state.nbytes());
    auto* words = static_cast<uint64_t*>(state.mutable_data());
    const std::vector<at::Tensor> tensors = windows(signature, operands, numbers);
    std::vector<at::Tensor> results;
    if (signature.tier == Tier::Direct) {
      if (!is_drawn(signature)) {
        throw NotInterpretable("the random operator " + signature.op + " needs a program");
      }
      results = draw_as_lowered(signature, tensors, numbers, words, /*checks=*/true);
    } else {
      const std::shared_ptr<const KernelCall> found = kernel_of(signature);
      const KernelCall& kernel = *found;
      torch::jit::Stack arguments = kernel.arguments(tensors, numbers);
      kernel.seed(arguments, words);
      results = kernel.run(std::move(arguments));
      ++words[1];
    }
    std::vector<c10::Storage> memories = memories_of(std::move(results), signature);
    memories.resize(signature.outputs.size() - 1);
    memories.push_back(std::move(state));
    return memories;
  }

  const Graph& graph_;
  std::vector<Number> numbers_;       // the graph's, as this run has them
  std::vector<c10::Storage> values_;  // inputs, then the nodes' outputs
  std::vector<size_t> first_;         // per node: its first output
  std::vector<uint32_t> uses_;        // per value: still to come
};

}  // namespace

std::vector<c10::Storage> interpret(const Graph& graph, std::vector<c10::Storage> inputs,
                                    size_t* culprit, c10::ArrayRef<Number> given) {
  return Interpreter(graph, std::move(inputs), given).run(culprit);
}

}  // namespace torch_xla
