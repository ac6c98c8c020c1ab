#include "interpret/interpreter.h"

#include "base/interrupt.h"
#include "base/location.h"
#include "host_ops/draw.h"
#include "host_ops/host_allocator.h"
#include "host_ops/host_ops.h"
#include "host_ops/product.h"
#include "interpret/addresses.h"
#include "interpret/control.h"
#include "interpret/overwritten.h"
#include "ir/window.h"
#include "lower/internal.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>

namespace torch_xla {

namespace {

// Values are tensors on their memory, with the sizes that whoever made them gave them: what reads
// the same window takes the tensor as it is.
using NodeValues = c10::SmallVector<at::Tensor, 4>;

// The operand as the node reads it.
at::Tensor operand_window(at::Tensor value, const Signature& signature, size_t operand,
                          c10::ArrayRef<Number> numbers) {
  const Window& window = signature.operands[operand];
  const int64_t offset = window.start >= 0 ? numbers[window.start].integer : window.offset;
  const c10::TensorImpl& impl = *value.unsafeGetTensorImpl();
  if (impl.storage_offset() == offset && value.scalar_type() == window.dtype &&
      impl.sizes() == c10::IntArrayRef(window.sizes) &&
      impl.strides() == c10::IntArrayRef(window.strides)) {
    return value;
  }
  return cpu_tensor(value.storage(), window.dtype, window.sizes, window.strides, offset);
}

c10::Storage bytes_of(const TensorType& type) {
  return allocate_on_host(static_cast<size_t>(type.nbytes()));
}

at::Tensor frame_tensor(c10::Storage memory, const TensorType& type) {
  return cpu_tensor(std::move(memory), type.dtype, type.dims, row_major_strides(type.dims), 0);
}

at::Tensor output_tensor(c10::Storage memory, const OutputSpec& spec) {
  return cpu_tensor(std::move(memory), spec.dtype, spec.sizes, spec.strides, 0);
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
         !result.is_neg() && is_plain_host_memory(storage);
}

at::Tensor output_value(at::Tensor result, const OutputSpec& spec, const Signature& signature) {
  if (!spec.defined || spec.frame.numel() == 0) {
    return output_tensor(bytes_of(spec.frame), spec);
  }
  if (!result.defined() || result.layout() != c10::kStrided ||
      result.sizes() != c10::IntArrayRef(spec.sizes)) {
    throw NotInterpretable("the CPU kernel of " + signature.op +
                           " gives another shape than was recorded");
  }
  if (is_the_output(result, spec)) {
    return result;
  }
  at::Tensor value = output_tensor(bytes_of(spec.frame), spec);
  value.copy_(result);
  return value;
}

// In memory of this run's own, or that so many others hold, that nothing else reads.
bool is_free(const at::Tensor& value, size_t nbytes, size_t holders = 0) {
  const c10::Storage& memory = value.storage();
  return value.use_count() == 1 && memory.use_count() == 1 + holders && memory.nbytes() == nbytes &&
         is_plain_host_memory(memory);
}

// Its memory can take the output.
bool may_become(const at::Tensor& operand, const OutputSpec& spec, size_t holders = 0) {
  return spec.defined && operand.scalar_type() == spec.dtype && operand.storage_offset() == 0 &&
         operand.sizes() == c10::IntArrayRef(spec.sizes) && same_strides(operand, spec) &&
         is_free(operand, static_cast<size_t>(spec.frame.nbytes()), holders);
}

// What the user has to know of, rather than a type that this kernel does not take: an index that
// does not exist, a singular matrix, a division by zero, or whatever the user's own operator says.
bool is_about_values(const c10::Error& error, const Node& node) {
  constexpr const char* kComplaints[] = {
      "out of bounds",       "out of range",      "in the valid range",
      "invalid max index",   "ZeroDivisionError", "probability tensor contains",
      "invalid multinomial", "between 0 and 1",   "p_in <= 1",
      "number of ones in",   "without overflow"};
  const std::string& message = error.msg();
  return dynamic_cast<const c10::IndexError*>(&error) != nullptr ||
         dynamic_cast<const c10::LinAlgError*>(&error) != nullptr ||
         std::any_of(std::begin(kComplaints), std::end(kComplaints),
                     [&](const char* text) { return message.find(text) != std::string::npos; }) ||
         (node.signature->computation == nullptr && !node.signature->op.starts_with("aten::"));
}

// Operands before what uses them, else as they were recorded: a graph is collected from its
// outputs, and would have all of a backward pass's gradients in memory before the first is used.
std::vector<uint32_t> recording_order(const Graph& graph) {
  std::vector<std::pair<uint64_t, uint32_t>> serials;
  serials.reserve(graph.nodes.size());
  for (const GraphNode& entry : graph.nodes) {
    uint64_t serial = entry.node->serial;
    for (const GraphValue operand : graph.operands_of(entry)) {
      const int32_t producer = operand.producer;
      serial = producer < 0 ? serial : std::max(serial, serials[producer].first);
    }
    serials.emplace_back(serial, static_cast<uint32_t>(serials.size()));
  }
  std::sort(serials.begin(), serials.end());
  std::vector<uint32_t> order;
  order.reserve(serials.size());
  for (const auto& [serial, n] : serials) {
    order.push_back(n);
  }
  return order;
}

// Element by element, or moving bytes. Whole numbers may be divided by zero; rare types have fewer
// kernels.
bool cannot_fail(const Signature& signature) {
  if (signature.lower == &lower_zeros || signature.lower == &lower_write ||
      signature.lower == &lower_read) {
    return true;
  }
  const DType type = signature.outputs[0].dtype;
  if (signature.computation || signature.random ||
      !(at::isFloatingType(type) || at::isComplexType(type) || type == DType::Bool) ||
      c10::isFloat8Type(type)) {
    return false;
  }
  const std::shared_ptr<const KernelCall> kernel = find_kernel_call(signature);
  return kernel != nullptr && kernel->overwritable() >= 0 && !kernel->writes_parts();
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, std::vector<c10::Storage> inputs, const Interpretation& how)
      : graph_(graph), how_(how), numbers_(graph.numbers) {
    for (Number& number : numbers_) {
      number = number.parameter < 0 ? number : how.numbers[static_cast<size_t>(number.parameter)];
    }
    first_.reserve(graph.nodes.size());
    size_t values = inputs.size();
    for (const GraphNode& entry : graph.nodes) {
      first_.push_back(values);
      values += entry.node->signature->outputs.size();
    }
    values_.reserve(values);
    for (size_t i = 0; i < inputs.size(); ++i) {
      values_.push_back(frame_tensor(std::move(inputs[i]), graph.inputs[i]->type(0)));
    }
    values_.resize(values);
    uses_.resize(values, 0);
    counted_.resize(values, 0);
    for (GraphValue operand : graph.operands) {
      ++uses_[index(operand)];
    }
    for (GraphValue output : graph.outputs) {
      ++uses_[index(output)];
    }
  }

  ~Interpreter() {
    for (size_t value = 0; value < counted_.size(); ++value) {
      count(value, 0);
    }
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::vector<c10::Storage> run() {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    OwnProducts own_products(how_.own_kernels);
    try {
      run_nodes();
      if (!overwritten_.is_empty()) {
        give_up_inputs();
      }
    } catch (...) {
      overwritten_.undo();
      throw;
    }
    std::vector<c10::Storage> outputs;
    for (GraphValue output : graph_.outputs) {
      outputs.push_back(own(index(output), graph_.type(output)));
    }
    return outputs;
  }

 private:
  void run_nodes() {
    const std::vector<uint32_t> order = recording_order(graph_);
    const size_t safe = how_.nothing_fails ? first_safe(order) : order.size();
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t n = order[i];
      if (i < safe) {
        check_interrupt();
      } else if (i == safe) {
        give_up_inputs();
      }
      try {
        run_node(graph_.nodes[n], first_[n], i + 1 == safe);
      } catch (c10::Error& error) {
        if (!is_about_values(error, *graph_.nodes[n].node)) {
          throw NotInterpretable(error.what_without_backtrace());
        }
        note(n);
        if (const uint32_t location = graph_.nodes[n].node->location; location != 0) {
          error.add_context("of " + graph_.nodes[n].node->signature->op + " recorded at " +
                            location_of(location).str());
        }
        throw;
      } catch (...) {
        note(n);
        throw;
      }
    }
  }

  void give_up_inputs() {
    how_.nothing_fails();
    for (size_t value = 0; value < values_.size() && !overwritten_.is_empty(); ++value) {
      if (values_[value].defined() && overwritten_.is_of(values_[value])) {
        count(value, static_cast<int64_t>(values_[value].storage().nbytes()));
      }
    }
    overwritten_.clear();
    count_given_up();
  }

  void note(size_t node) const {
    if (how_.failed) {
      how_.failed(node);
    }
  }

  // The first of those at the end of the order that cannot fail.
  size_t first_safe(const std::vector<uint32_t>& order) const {
    size_t safe = order.size();
    while (safe > 0 && cannot_fail(*graph_.nodes[order[safe - 1]].node->signature)) {
      --safe;
    }
    return safe;
  }

  size_t index(GraphValue value) const {
    return value.producer < 0 ? value.index : first_[value.producer] + value.index;
  }

  // The value for one of its uses, the last of which takes it.
  at::Tensor take(size_t value) {
    return --uses_[value] == 0 ? std::move(values_[value]) : values_[value];
  }

  // What the value takes of the device's memory from now on.
  void count(size_t value, int64_t bytes) {
    if (how_.memory != nullptr && bytes != counted_[value]) {
      how_.memory->change(bytes - counted_[value]);
      counted_[value] = bytes;
    }
  }

  // Inputs that are nobody else's any more.
  void count_given_up() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (values_[i].defined() && values_[i].storage().use_count() == 1) {
        count(i, graph_.inputs[i]->type(0).nbytes());
      }
    }
  }

  // An output: an input, or a value given out twice, is copied.
  c10::Storage own(size_t value, const TensorType& type) {
    c10::Storage memory = take(value).storage();
    if (value >= graph_.inputs.size() && uses_[value] == 0) {
      return memory;
    }
    return copy_on_host(memory, static_cast<size_t>(type.nbytes()));
  }

  // `last_to_fail`: no node behind it can.
  void run_node(const GraphNode& entry, size_t first, bool last_to_fail) {
    const Signature& signature = *entry.node->signature;
    const c10::ArrayRef<GraphValue> given = graph_.operands_of(entry);
    NodeValues operands;
    Addresses bytes;  // of each
    for (GraphValue operand : given) {
      operands.push_back(take(index(operand)));
      bytes.add(operands.back().storage().data());
    }
    find_computed(entry, operands);
    const c10::ArrayRef<Number> numbers(numbers_.data() + entry.first_number,
                                        entry.node->numbers.size());
    for (size_t i = 0; i < given.size(); ++i) {
      if (reads_as_bools(signature, i, graph_.type(given[i]))) {
        const Window window = window_of_operand(signature, i, numbers);
        operands[i] = cpu_tensor(as_bools(operands[i].storage()), DType::Bool, window.sizes,
                                 window.strides, window.offset);
      }
    }
    NodeValues results = signature.computation
                             ? call_computation(signature, operands, numbers, last_to_fail)
                             : compute(signature, given, operands, numbers);
    operands.clear();
    for (size_t i = 0; i < results.size(); ++i) {
      if (const std::optional<size_t> same = bytes.find(results[i].storage().data())) {  // in place
        count(index(given[*same]), 0);
      }
      if (uses_[first + i] > 0) {
        values_[first + i] = std::move(results[i]);
        if (!overwritten_.is_of(values_[first + i])) {  // else its holder counts it
          count(first + i, signature.outputs[i].frame.nbytes());
        }
      }
    }
    for (GraphValue operand : given) {
      if (uses_[index(operand)] == 0) {
        count(index(operand), 0);
      }
    }
  }

  // The numbers that are values of operands.
  void find_computed(const GraphNode& entry, const NodeValues& operands) {
    for (size_t i = 0; i < entry.node->numbers.size(); ++i) {
      Number& number = numbers_[entry.first_number + i];
      if (number.operand >= 0) {
        const at::Tensor value =
            operand_window(operands[number.operand], *entry.node->signature, number.operand, {});
        number.floating = *value.const_data_ptr<double>();
      }
    }
  }

  static bool reads_as_bools(const Signature& signature, size_t operand, const TensorType& type) {
    const bool written = operand == 0 && signature.lower == &lower_write;
    return !written && type.dtype != DType::Bool && operand < signature.operands.size() &&
           signature.operands[operand].dtype == DType::Bool;
  }

  // What follows takes the operands.
  NodeValues call_computation(const Signature& signature, NodeValues& operands,
                              c10::ArrayRef<Number> numbers, bool last_to_fail) const {
    std::vector<c10::Storage> memories;
    for (at::Tensor& operand : operands) {
      memories.push_back(operand.storage());
      operand.reset();
    }
    memories = run_computation(*signature.computation, std::move(memories),
                               {.memory = how_.memory,
                                .numbers = numbers,
                                .nothing_fails = last_to_fail ? how_.nothing_fails : nullptr,
                                .own_kernels = how_.own_kernels});
    NodeValues results;
    for (size_t i = 0; i < memories.size(); ++i) {
      results.push_back(frame_tensor(std::move(memories[i]), signature.outputs[i].frame));
    }
    return results;
  }

  NodeValues compute(const Signature& signature, c10::ArrayRef<GraphValue> given,
                     NodeValues& operands, c10::ArrayRef<Number> numbers) {
    if (signature.lower == &lower_zeros) {
      return {zeros(signature.outputs[0])};
    }
    if (signature.lower == &lower_write) {
      return {write(signature, given, operands, numbers)};
    }
    if (signature.lower == &lower_read) {
      return {output_value(operand_window(operands[0], signature, 0, numbers), signature.outputs[0],
                           signature)};
    }
    return signature.random ? draw(signature, operands, numbers)
                            : call(signature, given, operands, numbers);
  }

  static at::Tensor zeros(const OutputSpec& spec) {
    c10::Storage memory = bytes_of(spec.frame);
    std::memset(memory.mutable_data(), 0, memory.nbytes());
    return output_tensor(std::move(memory), spec);
  }

  // Nothing but this reads its memory, which an input's holder has until nothing can fail any more.
  bool is_held(const at::Tensor& value, GraphValue given) const {
    if (!how_.may_be_written || !is_free(value, value.storage().nbytes(), 1)) {
      return false;
    }
    return overwritten_.is_of(value) || (given.producer < 0 && how_.may_be_written(given.index));
  }

  // Operand 0 with its window replaced by operand 1; in place if nothing else needs it.
  at::Tensor write(const Signature& signature, c10::ArrayRef<GraphValue> given,
                   NodeValues& operands, c10::ArrayRef<Number> numbers) {
    const auto nbytes = static_cast<size_t>(signature.outputs[0].frame.nbytes());
    at::Tensor written = std::move(operands[0]);
    const at::Tensor update = operand_window(operands[1], signature, 1, numbers);
    if (written.storage().nbytes() == nbytes && is_held(written, given[0])) {
      auto [window, values] =
          without_repeats(operand_window(written, signature, 0, numbers), update);
      if (overwritten_.keep(window, nbytes)) {
        window.copy_(values);
        return written;
      }
    }
    if (!is_free(written, nbytes)) {
      c10::Storage copy = allocate_on_host(nbytes);
      const size_t known = std::min(nbytes, written.storage().nbytes());
      auto* bytes = static_cast<char*>(copy.mutable_data());
      if (known > 0) {
        std::memcpy(bytes, written.storage().data(), known);
      }
      std::memset(bytes + known, 0, nbytes - known);
      written = output_tensor(std::move(copy), signature.outputs[0]);
    }
    auto [window, values] = without_repeats(operand_window(written, signature, 0, numbers), update);
    window.copy_(values);
    return written;
  }

  // Of what is written to an expanded dimension the last stays.
  static std::pair<at::Tensor, at::Tensor> without_repeats(at::Tensor window, at::Tensor update) {
    for (int64_t i = 0; i < window.dim(); ++i) {
      if (window.stride(i) == 0 && window.size(i) > 1) {
        update = update.narrow(i, window.size(i) - 1, 1);
        window = window.narrow(i, 0, 1);
      }
    }
    return {std::move(window), std::move(update)};
  }

  static void make_windows(const Signature& signature, NodeValues& operands,
                           c10::ArrayRef<Number> numbers) {
    for (size_t i = 0; i < operands.size(); ++i) {
      operands[i] = operand_window(std::move(operands[i]), signature, i, numbers);
    }
  }

  static NodeValues values_of(std::vector<at::Tensor> results, const Signature& signature) {
    NodeValues values;
    for (size_t i = 0; i < results.size(); ++i) {
      values.push_back(output_value(std::move(results[i]), signature.outputs[i], signature));
    }
    return values;
  }

  static std::shared_ptr<const KernelCall> kernel_of(const Signature& signature) {
    std::shared_ptr<const KernelCall> kernel = find_kernel_call(signature);
    if (kernel == nullptr) {
      throw NotInterpretable("no CPU kernel is known for " + signature.op);
    }
    return kernel;
  }

  NodeValues call(const Signature& signature, c10::ArrayRef<GraphValue> given, NodeValues& tensors,
                  c10::ArrayRef<Number> numbers) {
    const std::shared_ptr<const KernelCall> found = kernel_of(signature);
    const KernelCall& kernel = *found;
    make_windows(signature, tensors, numbers);
    std::vector<at::Tensor> results;
    try {
      const int32_t reused = kernel.overwritable();
      if (reused >= 0 && may_become(tensors[reused], signature.outputs[0])) {
        kernel.run_in_place(kernel.arguments(tensors, numbers));
        return {std::move(tensors[reused])};
      }
      if (kernel.writes_parts() && may_become(tensors[reused], signature.outputs[0], 1) &&
          is_held(tensors[reused], given[reused])) {
        const torch::jit::Stack arguments = kernel.arguments(tensors, numbers);
        if (overwritten_.keep(kernel.name(), arguments, tensors[reused].nbytes())) {
          kernel.run_in_place(arguments);
          return {std::move(tensors[reused])};
        }
      }
      torch::jit::Stack arguments = kernel.arguments(tensors, numbers);
      if (how_.own_kernels && is_product_of_onednn(kernel.op(), signature.outputs[0].dtype)) {
        const OutputSpec& spec = signature.outputs[0];
        at::Tensor product = output_tensor(bytes_of(spec.frame), spec);
        if (multiply_faster(kernel.op(), arguments, product)) {
          return {std::move(product)};
        }
      }
      results = kernel.run(std::move(arguments));
    } catch (const c10::Error&) {
      results = run_widened(kernel, tensors, numbers);
    }
    return values_of(std::move(results), signature);
  }

  // Some kernels refuse 16-bit tensors, or mixtures with 32-bit ones that a program accepts: there
  // it computes in 32 bits and rounds. To be called where the kernel refused.
  static std::vector<at::Tensor> run_widened(const KernelCall& kernel, NodeValues& tensors,
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
  static NodeValues draw(const Signature& signature, NodeValues& operands,
                         c10::ArrayRef<Number> numbers) {
    at::Tensor state =
        output_tensor(bytes_of(signature.outputs.back().frame), signature.outputs.back());
    std::memcpy(state.mutable_data_ptr(), operands.back().storage().data(), state.nbytes());
    auto* words = static_cast<uint64_t*>(state.mutable_data_ptr());
    operands.pop_back();
    make_windows(signature, operands, numbers);
    std::vector<at::Tensor> results;
    if (signature.tier == Tier::Direct) {
      if (!is_drawn(signature)) {
        throw NotInterpretable("the random operator " + signature.op + " needs a program");
      }
      results = draw_as_lowered(signature, {operands.begin(), operands.end()}, numbers, words,
                                /*checks=*/true);
    } else {
      const std::shared_ptr<const KernelCall> found = kernel_of(signature);
      const KernelCall& kernel = *found;
      torch::jit::Stack arguments = kernel.arguments(operands, numbers);
      kernel.seed(arguments, words);
      results = kernel.run(std::move(arguments));
      ++words[1];
    }
    NodeValues values = values_of(std::move(results), signature);
    values.resize(signature.outputs.size() - 1);
    values.push_back(std::move(state));
    return values;
  }

  const Graph& graph_;
  const Interpretation& how_;
  std::vector<Number> numbers_;     // the graph's, as this run has them
  std::vector<at::Tensor> values_;  // inputs, then the nodes' outputs
  std::vector<size_t> first_;       // per node: its first output
  std::vector<uint32_t> uses_;      // per value: still to come
  std::vector<int64_t> counted_;    // per value: bytes
  Overwritten overwritten_;
};

}  // namespace

std::vector<c10::Storage> interpret(const Graph& graph, std::vector<c10::Storage> inputs,
                                    const Interpretation& how) {
  return Interpreter(graph, std::move(inputs), how).run();
}

}  // namespace torch_xla
