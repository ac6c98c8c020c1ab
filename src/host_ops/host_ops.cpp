#include "host_ops/host_ops.h"

#include "base/mutex.h"
#include "host_ops/call_frame.h"
#include "host_ops/philox.h"
#include "host_ops/rows.h"
#include "host_ops/softmax.h"
#include "host_ops/write_at.h"
#include "lower/graph_lowering.h"
#include "pjrt/client.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "xla/ffi/api/ffi.h"

namespace torch_xla {

namespace {

namespace ffi = xla::ffi;

// What a signature keeps for calls of its kernel.
struct Kernel {
  std::shared_ptr<const c10::FunctionSchema> schema;  // as it was; thousands of calls share it
  std::optional<c10::OperatorHandle> op;
  uint64_t removals = 0;                   // of operators, when `op` was found
  std::shared_ptr<const KernelCall> call;  // made when first called
};

class Registry {
 public:
  void add(const Signature& signature, const c10::OperatorHandle& op) {
    MutexLock lock(mutex_);
    if (signature.kernel != nullptr) {
      return;
    }
    std::shared_ptr<const c10::FunctionSchema>& schema = schemas_[op.operator_name()];
    if (!schema || *schema != op.schema()) {
      schema = std::make_shared<const c10::FunctionSchema>(op.schema());
    }
    signature.kernel = std::make_shared<Kernel>(Kernel{schema, op, removals_, nullptr});
  }
  std::shared_ptr<const KernelCall> find(const Signature& signature) {
    MutexLock lock(mutex_);
    auto* kernel = static_cast<Kernel*>(signature.kernel.get());
    if (kernel == nullptr) {
      return nullptr;
    }
    if (kernel->removals != removals_ || !kernel->op) {
      auto op = c10::Dispatcher::singleton().findSchema(kernel->schema->operator_name());
      kernel->op = op && op->schema() == *kernel->schema ? op : std::nullopt;
      kernel->removals = removals_;
      kernel->call.reset();
    }
    if (kernel->op && !kernel->call) {
      kernel->call = std::make_shared<const KernelCall>(signature, *kernel->op);
    }
    return kernel->call;
  }
  void forget_removed() {
    MutexLock lock(mutex_);
    ++removals_;
  }

 private:
  Mutex mutex_;
  uint64_t removals_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<c10::OperatorName, std::shared_ptr<const c10::FunctionSchema>> schemas_
      GUARDED_BY(mutex_);
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

// The pool of threads that XLA runs programs on.
class PoolWorkers final : public Workers {
 public:
  explicit PoolWorkers(ffi::ThreadPool& pool) : pool_(pool) {}
  int64_t count() const override { return pool_.num_threads(); }
  void schedule(std::function<void()> task) override { pool_.Schedule(std::move(task)); }

 private:
  ffi::ThreadPool& pool_;
};

// Nothing is thrown into the plugin.
template <typename Call>
ffi::Error answer(const std::string& op, const Call& call) {
  try {
    call();
    return ffi::Error::Success();
  } catch (const c10::Error& error) {
    return ffi::Error::Internal(op + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(op + ": " + error.what());
  }
}

ffi::Error call_host_op(ffi::ThreadPool pool, int64_t id, ffi::RemainingArgs arguments,
                        ffi::RemainingRets results) {
  const SignaturePtr signature = find_signature(static_cast<uint64_t>(id));
  const auto call = signature != nullptr ? registry().find(*signature) : nullptr;
  if (call == nullptr) {
    return ffi::Error::Internal(
        "an operator of this program is not defined any more as it was when "
        "it was called: call it again");
  }
  std::vector<void*> inputs;
  std::vector<void*> outputs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    inputs.push_back(arguments.get<ffi::AnyBuffer>(i)->untyped_data());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.push_back((*results.get<ffi::AnyBuffer>(i))->untyped_data());
  }
  PoolWorkers workers(pool);
  return answer(call->signature().op, [&] { run_host_op(*call, inputs, outputs, workers); });
}

XLA_FFI_DEFINE_HANDLER(
    kHostOpHandler, call_host_op,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<int64_t>("id").RemainingArgs().RemainingRets());

ffi::Error draw_random_bits(ffi::ThreadPool pool, ffi::AnyBuffer state,
                            ffi::Result<ffi::AnyBuffer> bits, ffi::Result<ffi::AnyBuffer> next) {
  constexpr size_t kPiece = 1 << 16;  // words: some ten microseconds
  const auto* from = static_cast<const uint64_t*>(state.untyped_data());
  auto* words = static_cast<uint32_t*>(bits->untyped_data());
  const size_t count = bits->size_bytes() / sizeof(uint32_t);
  PoolWorkers workers(pool);
  return answer("random numbers", [&] {
    run_pieces(workers, (count + kPiece - 1) / kPiece, [&](size_t i) {
      philox_words(from, i * kPiece, std::min((i + 1) * kPiece, count), words);
    });
    auto* behind = static_cast<uint64_t*>(next->untyped_data());
    behind[1] = philox_counter(from[1], count);
    behind[0] = from[0];
  });
}

XLA_FFI_DEFINE_HANDLER(kRandomBitsHandler, draw_random_bits,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());

Matrix matrix_of(ffi::AnyBuffer buffer) {
  const auto dims = buffer.dimensions();
  const ffi::DataType type = buffer.element_type();
  const at::ScalarType dtype = type == ffi::DataType::F32    ? at::kFloat
                               : type == ffi::DataType::BF16 ? at::kBFloat16
                                                             : at::kHalf;
  return {buffer.untyped_data(), dtype, dims[0], dims[1]};
}

using DescribeRows = void (*)(Workers&, const Matrix&, float*, float*);

template <DescribeRows describe>
ffi::Error describe_rows(ffi::ThreadPool pool, ffi::AnyBuffer matrix,
                         ffi::ResultBuffer<ffi::F32> first, ffi::ResultBuffer<ffi::F32> second) {
  PoolWorkers workers(pool);
  return answer("rows", [&] {
    describe(workers, matrix_of(matrix), first->typed_data(), second->typed_data());
  });
}

auto description_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::Buffer<ffi::F32>>()
      .Ret<ffi::Buffer<ffi::F32>>();
}

XLA_FFI_DEFINE_HANDLER(kRowExponentialsHandler, describe_rows<&exponentials_of_rows>,
                       description_binding());
XLA_FFI_DEFINE_HANDLER(kRowMomentsHandler, describe_rows<&moments_of_rows>, description_binding());
XLA_FFI_DEFINE_HANDLER(kColumnMomentsHandler, describe_rows<&moments_of_columns>,
                       description_binding());

template <bool zero_if_masked>
ffi::Error find_softmax(ffi::ThreadPool pool, ffi::AnyBuffer matrix,
                        ffi::Result<ffi::AnyBuffer> results) {
  PoolWorkers workers(pool);
  return answer("softmax", [&] {
    softmax_of_rows(workers, matrix_of(matrix), zero_if_masked, results->untyped_data());
  });
}

auto softmax_binding() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>();
}

XLA_FFI_DEFINE_HANDLER(kRowSoftmaxHandler, find_softmax<false>, softmax_binding());
XLA_FFI_DEFINE_HANDLER(kRowSafeSoftmaxHandler, find_softmax<true>, softmax_binding());

ffi::Error find_softmax_gradient(ffi::ThreadPool pool, ffi::AnyBuffer gradient,
                                 ffi::AnyBuffer softmax, ffi::Result<ffi::AnyBuffer> results) {
  PoolWorkers workers(pool);
  return answer("gradient of softmax", [&] {
    softmax_gradient_of_rows(workers, matrix_of(gradient), matrix_of(softmax),
                             results->untyped_data());
  });
}

XLA_FFI_DEFINE_HANDLER(kRowSoftmaxGradientHandler, find_softmax_gradient,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());

using SumGradient = void (*)(Workers&, const Matrix&, const Matrix&, const float*, float*, float*);

template <SumGradient sum>
ffi::Error sum_gradient(ffi::ThreadPool pool, ffi::AnyBuffer gradient, ffi::AnyBuffer input,
                        ffi::Buffer<ffi::F32> means, ffi::ResultBuffer<ffi::F32> sums,
                        ffi::ResultBuffer<ffi::F32> products) {
  PoolWorkers workers(pool);
  return answer("sums of a gradient", [&] {
    sum(workers, matrix_of(gradient), matrix_of(input), means.typed_data(), sums->typed_data(),
        products->typed_data());
  });
}

auto gradient_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Ret<ffi::Buffer<ffi::F32>>()
      .Ret<ffi::Buffer<ffi::F32>>();
}

XLA_FFI_DEFINE_HANDLER(kRowGradientSumsHandler, sum_gradient<&gradient_sums_of_rows>,
                       gradient_binding());
XLA_FFI_DEFINE_HANDLER(kColumnGradientSumsHandler, sum_gradient<&gradient_sums_of_columns>,
                       gradient_binding());

using SumMatrix = void (*)(Workers&, const Matrix&, float*);

template <SumMatrix sum>
ffi::Error sum_matrix(ffi::ThreadPool pool, ffi::AnyBuffer matrix,
                      ffi::ResultBuffer<ffi::F32> results) {
  PoolWorkers workers(pool);
  return answer("sum", [&] { sum(workers, matrix_of(matrix), results->typed_data()); });
}

// Of as many parts of the rows as there are sums for.
ffi::Error sum_columns(ffi::ThreadPool pool, ffi::AnyBuffer matrix,
                       ffi::ResultBuffer<ffi::F32> results) {
  PoolWorkers workers(pool);
  return answer("sum of columns", [&] {
    const Matrix numbers = matrix_of(matrix);
    const auto count = static_cast<int64_t>(results->element_count());
    sums_of_columns(workers, numbers, results->typed_data(), count / numbers.columns);
  });
}

auto sum_binding() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Ret<ffi::Buffer<ffi::F32>>();
}

XLA_FFI_DEFINE_HANDLER(kColumnSumsHandler, sum_columns, sum_binding());
XLA_FFI_DEFINE_HANDLER(kRowSumsHandler, sum_matrix<&sums_of_rows>, sum_binding());
XLA_FFI_DEFINE_HANDLER(kRowSquaresHandler, sum_matrix<&squares_of_rows>, sum_binding());

using FindExtremes = void (*)(Workers&, const Matrix&, float*, int32_t*);

template <FindExtremes find>
ffi::Error find_extremes(ffi::ThreadPool pool, ffi::AnyBuffer matrix,
                         ffi::ResultBuffer<ffi::F32> extremes, ffi::RemainingRets asked) {
  PoolWorkers workers(pool);
  return answer("extremes", [&] {
    int32_t* places =
        asked.empty() ? nullptr : asked.get<ffi::Buffer<ffi::S32>>(0).value()->typed_data();
    find(workers, matrix_of(matrix), extremes->typed_data(), places);
  });
}

auto extremes_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::Buffer<ffi::F32>>()
      .RemainingRets();
}

XLA_FFI_DEFINE_HANDLER(kRowLargestHandler, find_extremes<&largest_of_rows>, extremes_binding());
XLA_FFI_DEFINE_HANDLER(kRowSmallestHandler, find_extremes<&smallest_of_rows>, extremes_binding());

void give_on(ffi::AnyBuffer value, ffi::Result<ffi::AnyBuffer>& result) {
  if (result->untyped_data() != value.untyped_data()) {
    std::memcpy(result->untyped_data(), value.untyped_data(), value.size_bytes());
  }
}

// Whoever reads the result has waited for the other arguments.
ffi::Error give_first_on(ffi::RemainingArgs arguments, ffi::Result<ffi::AnyBuffer> result) {
  give_on(*arguments.get<ffi::AnyBuffer>(0), result);
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(kBehindHandler, give_first_on,
                       ffi::Ffi::Bind().RemainingArgs().Ret<ffi::AnyBuffer>());

at::ScalarType combined_type(ffi::AnyBuffer buffer, Combine combine) {
  if (combine == Combine::Replace) {  // of its size
    constexpr at::ScalarType kBySize[] = {at::kByte, at::kShort, at::kInt, at::kLong};
    return kBySize[std::countr_zero(ffi::ByteWidth(buffer.element_type()))];
  }
  switch (buffer.element_type()) {
    case ffi::DataType::F32:
      return at::kFloat;
    case ffi::DataType::F64:
      return at::kDouble;
    case ffi::DataType::S32:
      return at::kInt;
    default:
      return at::kLong;
  }
}

ffi::Error write_at_indices(ffi::ThreadPool pool, int64_t combine, ffi::AnyBuffer x,
                            ffi::Buffer<ffi::S64> index, ffi::AnyBuffer updates,
                            ffi::Result<ffi::AnyBuffer> result) {
  const auto how = static_cast<Combine>(combine);
  const auto sizes = x.dimensions();
  const WritesAt writes{sizes[0],           sizes[1],
                        sizes[2],           updates.dimensions()[1],
                        index.typed_data(), index.dimensions().size() > 1};
  PoolWorkers workers(pool);
  return answer("writing at indices", [&] {
    give_on(x, result);
    write_at(workers, writes, how, combined_type(x, how), updates.untyped_data(),
             result->untyped_data());
  });
}

XLA_FFI_DEFINE_HANDLER(kWriteAtHandler, write_at_indices,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Attr<int64_t>("combine")
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::Buffer<ffi::S64>>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());

}  // namespace

bool host_calls_available() {
  static const bool available = [] {
    pjrt::Client& client = pjrt::client();
    if (!client.has_ffi()) {
      return false;
    }
    for (const auto& [target, handler] : {
             std::pair(kHostCallTarget, kHostOpHandler),
             std::pair(kRandomBitsTarget, kRandomBitsHandler),
             std::pair(kRowExponentialsTarget, kRowExponentialsHandler),
             std::pair(kRowSoftmaxTarget, kRowSoftmaxHandler),
             std::pair(kRowSafeSoftmaxTarget, kRowSafeSoftmaxHandler),
             std::pair(kRowSoftmaxGradientTarget, kRowSoftmaxGradientHandler),
             std::pair(kRowSumsTarget, kRowSumsHandler),
             std::pair(kRowSquaresTarget, kRowSquaresHandler),
             std::pair(kRowMomentsTarget, kRowMomentsHandler),
             std::pair(kRowGradientSumsTarget, kRowGradientSumsHandler),
             std::pair(kRowLargestTarget, kRowLargestHandler),
             std::pair(kRowSmallestTarget, kRowSmallestHandler),
             std::pair(kColumnSumsTarget, kColumnSumsHandler),
             std::pair(kColumnMomentsTarget, kColumnMomentsHandler),
             std::pair(kColumnGradientSumsTarget, kColumnGradientSumsHandler),
             std::pair(kBehindTarget, kBehindHandler),
             std::pair(kWriteAtTarget, kWriteAtHandler),
         }) {
      client.register_ffi_handler(target, reinterpret_cast<void*>(handler));
    }
    return true;
  }();
  return available;
}

void register_host_op(const Signature& signature, const c10::OperatorHandle& op) {
  host_calls_available();  // a lowering may choose a host call later
  registry().add(signature, op);
}

void forget_removed_ops() { registry().forget_removed(); }

std::shared_ptr<const KernelCall> find_kernel_call(const Signature& signature) {
  return registry().find(signature);
}

}  // namespace torch_xla
