#include "interpret/control.h"

#include "base/interrupt.h"
#include "host_ops/host_ops.h"

#include <cstring>
#include <iterator>

namespace torch_xla {

namespace {

using Memories = std::vector<c10::Storage>;

bool is_true(const c10::Storage& predicate) { return *static_cast<const bool*>(predicate.data()); }

// A part of another's memory, which it keeps alive.
c10::Storage part_of(const c10::Storage& whole, size_t offset, size_t nbytes) {
  auto* kept = new c10::Storage(whole);
  auto* bytes = const_cast<char*>(static_cast<const char*>(whole.data())) + offset;  // only read
  c10::DataPtr pointer(
      bytes, kept, [](void* context) { delete static_cast<c10::Storage*>(context); }, c10::kCPU);
  return {c10::Storage::use_byte_size_t(), nbytes, std::move(pointer)};
}

// What an iteration reads. It takes the carried values, which may then be overwritten in place.
Memories take_inputs(Memories& operands, size_t carried) {
  const auto rest = operands.begin() + static_cast<std::ptrdiff_t>(carried);
  Memories inputs(std::make_move_iterator(operands.begin()), std::make_move_iterator(rest));
  inputs.insert(inputs.end(), rest, operands.end());
  return inputs;
}

// What went round no time is still somebody else's memory, which may be written later.
Memories with_memory_of_its_own(Memories results) {
  for (c10::Storage& result : results) {
    if (result.use_count() > 1) {
      result = copy_on_host(result, result.nbytes());
    }
  }
  return results;
}

Memories run_while(const Computation& computation, Memories operands, pjrt::DeviceMemory* memory) {
  const size_t carried = computation.control.carried;
  while (is_true(operands[0])) {
    check_interrupt();
    Memories next =
        interpret(computation.graph, take_inputs(operands, carried), {.memory = memory});
    std::move(next.begin(), next.end(), operands.begin());
  }
  operands.resize(carried);
  return with_memory_of_its_own(std::move(operands));
}

// Operands and outputs of one iteration, and the stacks that are filled.
class ScanLoop {
 public:
  ScanLoop(const Computation& computation, Memories operands, pjrt::DeviceMemory* memory)
      : graph_(computation.graph),
        control_(computation.control),
        operands_(std::move(operands)),
        memory_(memory) {
    for (size_t i = control_.carried; i < graph_.outputs.size(); ++i) {
      slice_bytes_.push_back(static_cast<size_t>(graph_.type(graph_.outputs[i]).nbytes()));
      stacks_.push_back(
          allocate_on_host(slice_bytes_.back() * static_cast<size_t>(control_.length)));
    }
  }

  Memories run() {
    for (int64_t i = 0; i < control_.length; ++i) {
      check_interrupt();
      iterate(static_cast<size_t>(control_.reverse ? control_.length - 1 - i : i));
    }
    operands_.resize(control_.carried);
    operands_ = with_memory_of_its_own(std::move(operands_));
    operands_.insert(operands_.end(), stacks_.begin(), stacks_.end());
    return std::move(operands_);
  }

 private:
  void iterate(size_t index) {
    Memories inputs = take_inputs(operands_, control_.carried);
    for (size_t i = control_.carried; i < control_.carried + control_.sliced; ++i) {
      const auto nbytes = static_cast<size_t>(graph_.inputs[i]->type(0).nbytes());
      inputs[i] = part_of(operands_[i], index * nbytes, nbytes);
    }
    Memories next = interpret(graph_, std::move(inputs), {.memory = memory_});
    for (size_t i = 0; i < next.size(); ++i) {
      if (i < control_.carried) {
        operands_[i] = std::move(next[i]);
        continue;
      }
      const size_t stack = i - control_.carried;
      std::memcpy(static_cast<char*>(stacks_[stack].mutable_data()) + index * slice_bytes_[stack],
                  next[i].data(), slice_bytes_[stack]);
    }
  }

  const Graph& graph_;
  const Control& control_;
  Memories operands_;
  pjrt::DeviceMemory* memory_;
  Memories stacks_;
  std::vector<size_t> slice_bytes_;
};

}  // namespace

std::vector<c10::Storage> run_computation(const Computation& computation,
                                          std::vector<c10::Storage> operands,
                                          const Interpretation& how) {
  switch (computation.control.kind) {
    case Control::Kind::Call:
      break;
    case Control::Kind::If: {
      const bool taken = is_true(operands[0]);
      operands.erase(operands.begin());
      const Computation& branch = taken ? computation : *computation.control.otherwise;
      return interpret(branch.graph, std::move(operands), {.memory = how.memory});
    }
    case Control::Kind::While:
      return run_while(computation, std::move(operands), how.memory);
    case Control::Kind::Scan:
      return ScanLoop(computation, std::move(operands), how.memory).run();
  }
  return interpret(computation.graph, std::move(operands), how);
}

}  // namespace torch_xla
