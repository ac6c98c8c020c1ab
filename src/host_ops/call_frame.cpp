#include "host_ops/call_frame.h"

#include "host_ops/divide.h"
#include "host_ops/draw.h"
#include "host_ops/one_thread.h"
#include "host_ops/product.h"
#include "ir/window.h"
#include "lower/lower_state.h"
#include "pjrt/client.h"
#include "timeline/timeline.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <optional>

namespace torch_xla {

namespace {

// The threads of a call that is not divided. One of the plugin's has no team of OpenMP's of its
// own.
class Team {
 public:
  explicit Team(const Signature& signature) {
    // Starting and ending the threads of a team takes some hundred microseconds.
    constexpr int64_t kWorthwhile = 1 << 22;  // bytes that the call reads and writes
    if (pjrt::is_launching()) {
      return;
    }
    if (moved_bytes(signature) < kWorthwhile) {
      alone_.emplace();
    } else {
      passing_.emplace();
    }
  }

 private:
  std::optional<OneThread> alone_;
  std::optional<PassingTeam> passing_;
};

class CallFrame {
 public:
  CallFrame(const KernelCall& call, const std::vector<void*>& inputs,
            const std::vector<void*>& outputs)
      : call_(call),
        signature_(call.signature()),
        inputs_(inputs),
        outputs_(outputs),
        writes_result_(call.has_out_form() && is_plain(signature_.outputs)) {}

  void run(Workers& workers) {
    const std::vector<Number> given = numbers();
    at::AutoDispatchBelowADInplaceOrView guard;
    if (signature_.random && signature_.tier == Tier::Direct) {
      const Team team(signature_);
      draw(given);
      return;
    }
    torch::jit::Stack arguments = call_.arguments(operands(given), given);
    if (std::vector<CallPiece> pieces = divide(call_.op(), arguments, workers.count());
        !pieces.empty()) {
      run_pieces(workers, pieces.size(), [&](size_t i) { run_piece(pieces[i]); });
      return;
    }
    const Team team(signature_);
    const timeline::Scope span(timeline::Kind::Kernel, signature_.op);
    const OwnProducts own_products;
    if (writes_result_) {
      write_result(std::move(arguments), target(0));
      return;
    }
    if (signature_.random) {
      call_.seed(arguments, state());
    }
    store(call_.run(std::move(arguments)));
    if (signature_.random) {
      auto* next = static_cast<uint64_t*>(outputs_.back());
      next[0] = state()[0];
      next[1] = state()[1] + 1;
    }
  }

 private:
  // The numbers that the lowering would draw.
  void draw(const std::vector<Number>& given) const {
    auto* next = static_cast<uint64_t*>(outputs_.back());
    next[0] = state()[0];
    next[1] = state()[1];
    store(draw_as_lowered(signature_, operands(given), given, next, is_checked(signature_)));
  }

  size_t operand_count() const { return signature_.operands.size() - (signature_.random ? 1 : 0); }
  const uint64_t* state() const { return static_cast<const uint64_t*>(inputs_.back()); }

  std::vector<at::Tensor> operands(const std::vector<Number>& numbers) const {
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < operand_count(); ++i) {
      const Window window = window_of_operand(signature_, i, numbers);
      const size_t element = c10::elementSize(window.dtype);
      char* start = static_cast<char*>(inputs_[i]) + static_cast<size_t>(window.offset) * element;
      const size_t nbytes = at::detail::computeStorageNbytes(window.sizes, window.strides, element);
      tensors.push_back(
          cpu_tensor(borrow_on_host(start, nbytes), window.dtype, window.sizes, window.strides, 0));
    }
    return tensors;
  }

  // Each came as an array of one element.
  std::vector<Number> numbers() const {
    std::vector<Number> numbers;
    for (size_t i = 0; i < signature_.number_kinds.size(); ++i) {
      const void* data = inputs_[operand_count() + i];
      switch (signature_.number_kinds[i]) {
        case Number::Kind::Double:
          numbers.push_back(Number::of(*static_cast<const double*>(data)));
          break;
        case Number::Kind::Complex:
          numbers.push_back(Number::of(*static_cast<const std::complex<double>*>(data)));
          break;
        default:
          numbers.push_back(Number::of(*static_cast<const int64_t*>(data)));
          numbers.back().kind = signature_.number_kinds[i];
      }
    }
    return numbers;
  }

  // On any thread.
  void run_piece(CallPiece& piece) const {
    const timeline::Scope span(timeline::Kind::Kernel, signature_.op);
    at::AutoDispatchBelowADInplaceOrView guard;
    if (piece.kernel != nullptr) {
      std::vector<at::Tensor> parts;
      for (const CallPiece::Part& part : piece.parts) {
        parts.push_back(target_of(part));
      }
      piece.kernel(piece.arguments, parts);
      return;
    }
    if (writes_result_) {
      write_result(std::move(piece.arguments), target_of(piece.parts[0]));
      return;
    }
    call_.call(piece.arguments);
    for (const CallPiece::Part& part : piece.parts) {
      target_of(part).copy_(piece.arguments[part.result].toTensor());
    }
  }

  void write_result(torch::jit::Stack arguments, at::Tensor target) const {
    if (!multiply_faster(call_.op(), arguments, target)) {
      call_.run_into(std::move(arguments), std::move(target));
    }
  }

  at::Tensor target(size_t result) const {
    const OutputSpec& spec = signature_.outputs[result];
    return cpu_tensor(borrow_on_host(outputs_[result], static_cast<size_t>(spec.frame.nbytes())),
                      spec.dtype, spec.sizes, spec.strides, 0);
  }

  at::Tensor target_of(const CallPiece::Part& part) const {
    return narrowed(target(part.result), part.dim, part.start, part.length);
  }

  // One result, and no generator's state.
  static bool is_plain(const std::vector<OutputSpec>& outputs) {
    return outputs.size() == 1 && outputs[0].defined && outputs[0].frame.numel() > 0;
  }

  void store(const std::vector<at::Tensor>& results) const {
    for (size_t i = 0; i < results.size(); ++i) {
      const OutputSpec& spec = signature_.outputs[i];
      const bool is_empty = results[i].defined() && results[i].numel() == 0;
      if (!spec.defined || (spec.frame.numel() == 0 && (!results[i].defined() || is_empty))) {
        continue;
      }
      TORCH_CHECK(results[i].defined() && results[i].sizes() == c10::IntArrayRef(spec.sizes),
                  "result ", i, " of the CPU kernel of ", signature_.op,
                  " does not have the sizes that were recorded, ", c10::IntArrayRef(spec.sizes),
                  ": if they depend on values, define the operator with "
                  "tags=torch.Tag.dynamic_output_shape");
      target(i).copy_(results[i]);
    }
  }

  const KernelCall& call_;
  const Signature& signature_;
  const std::vector<void*>& inputs_;
  const std::vector<void*>& outputs_;
  const bool writes_result_;  // the kernel writes the result where it is wanted
};

}  // namespace

void run_host_op(const KernelCall& call, const std::vector<void*>& inputs,
                 const std::vector<void*>& outputs, Workers& workers) {
  CallFrame(call, inputs, outputs).run(workers);
}

}  // namespace torch_xla
