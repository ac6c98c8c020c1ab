// An operator as a custom call of an ATen kernel (host_ops/). Operands are frames as they lie in
// memory: the kernel sees the same strided tensors that CPU PyTorch would, nothing is copied.
#include "base/env.h"
#include "base/error.h"
#include "lower/graph_lowering.h"
#include "lower/library_function.h"
#include "lower/lower_state.h"

#include <algorithm>

namespace torch_xla {

namespace {

Val number_operand(Builder& b, const LoweredNumber& number) {
  if (number.input) {
    return number.input;
  }
  switch (number.value.kind) {
    case Number::Kind::Double:
      return b.constant(number.value, DType::Double);
    case Number::Kind::Complex:
      return b.constant(number.value, DType::ComplexDouble);
    default:
      return b.constant(number.value, DType::Long);
  }
}

}  // namespace

bool is_checked(const Signature& signature) {
  if (!env::flag("TORCH_XLA_CHECK_INDICES")) {
    return false;
  }
  auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return signature.op.starts_with(name); });
  };
  return is_one_of({"aten::index", "aten::_index_put_impl", "aten::embedding",
                    "aten::_embedding_bag", "aten::gather", "aten::scatter", "aten::nll_loss",
                    "aten::take", "aten::put", "aten::multi_margin_loss", "aten::multinomial",
                    "aten::bernoulli", "aten::masked_scatter"}) ||
         signature.op == "aten::binary_cross_entropy" ||
         (c10::isIntegralType(signature.outputs[0].dtype, false) &&
          is_one_of({"aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod",
                     "aten::masked_fill"}));
}

namespace {

// Whether the operator's CPU kernel refuses some values (an index, a singular matrix), or is not
// known; others refuse sizes and types only, which were checked when they were recorded.
bool kernel_may_raise(const Signature& signature) {
  const std::string& op = signature.op;
  if (is_checked(signature)) {
    return true;
  }
  for (const char* total : {"aten::convolution",
                            "aten::native_batch_norm_backward",
                            "aten::native_layer_norm",
                            "aten::_fused_rms_norm",
                            "aten::mm",
                            "aten::addmm",
                            "aten::bmm",
                            "aten::baddbmm",
                            "aten::linear",
                            "aten::sort",
                            "aten::mkldnn",
                            "aten::_scaled_dot_product_flash",
                            "aten::upsample",
                            "aten::_upsample",
                            "aten::normal",
                            "aten::exponential",
                            "aten::cauchy",
                            "aten::log_normal",
                            "aten::geometric",
                            "aten::multinomial",
                            "aten::div.",
                            "aten::cumsum",
                            "aten::cumprod",
                            "aten::prod",
                            "aten::cat",
                            "aten::roll",
                            "aten::_adaptive_avg_pool",
                            "aten::adaptive_max_pool",
                            "aten::max_pool",
                            "aten::avg_pool",
                            "aten::slice_backward",
                            "aten::constant_pad_nd",
                            "aten::reflection_pad",
                            "aten::replication_pad"}) {
    if (op.starts_with(total)) {
      return false;
    }
  }
  return !is_library_function(op, signature.outputs[0].dtype);
}

}  // namespace

void lower_host_call(LowerContext& c, LowerContext::State& state) {
  if (c.host_calls() == HostCalls::Never) {
    throw Error("operator " + c.signature().op +
                " has no lowering, and this platform cannot call host kernels from a program");
  }
  Vals operands = state.frames;
  for (const LoweredNumber& number : state.numbers) {
    operands.push_back(number_operand(c.b, number));
  }
  if (c.signature().random) {
    operands.push_back(state.rng_state);
  }
  std::vector<TensorType> results;
  for (const OutputSpec& output : c.signature().outputs) {
    results.push_back(output.frame);
  }
  std::string id = std::to_string(static_cast<int64_t>(c.signature().hash));
  state.results = c.b.custom_call(kHostCallTarget, operands, results, "id = " + id + " : i64",
                                  kernel_may_raise(c.signature()));
  if (c.signature().random) {
    state.rng_state = state.results.back();
  }
}

}  // namespace torch_xla
