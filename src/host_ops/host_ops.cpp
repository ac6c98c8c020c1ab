#include "host_ops/host_ops.h"

#include "host_ops/call_frame.h"
#include "lower/graph_lowering.h"
#include "pjrt/client.h"

#include <mutex>
#include <unordered_map>

#include "xla/ffi/api/ffi.h"

namespace torch_xla {

namespace {

namespace ffi = xla::ffi;

class Registry {
 public:
  void add(const Signature& signature, const c10::OperatorHandle& op) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<const c10::FunctionSchema>& schema = schemas_[op.operator_name()];
    if (!schema || *schema != op.schema()) {
      schema = std::make_shared<const c10::FunctionSchema>(op.schema());
    }
    ops_.try_emplace(signature.hash, Entry{&signature, schema, op, nullptr});
  }
  const KernelCall* find(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = ops_.find(id);
    if (found == ops_.end()) {
      return nullptr;
    }
    Entry& entry = found->second;
    if (!entry.op) {
      auto op = c10::Dispatcher::singleton().findSchema(entry.schema->operator_name());
      entry.op = op && op->schema() == *entry.schema ? op : std::nullopt;
    }
    if (entry.op && !entry.call) {
      entry.call = std::make_unique<const KernelCall>(*entry.signature, *entry.op);
    }
    return entry.call.get();
  }
  void forget(const c10::OperatorHandle& op) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [id, entry] : ops_) {
      if (entry.op == op) {
        entry.op.reset();
        retired_.push_back(std::move(entry.call));
      }
    }
  }

 private:
  struct Entry {
    const Signature* signature;
    std::shared_ptr<const c10::FunctionSchema> schema;  // as it was; thousands of calls share it
    std::optional<c10::OperatorHandle> op;
    std::unique_ptr<const KernelCall> call;  // made when first called
  };
  std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> ops_;
  std::unordered_map<c10::OperatorName, std::shared_ptr<const c10::FunctionSchema>> schemas_;
  std::vector<std::unique_ptr<const KernelCall>> retired_;  // a program may be inside
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

ffi::Error call_host_op(ffi::ThreadPool pool, int64_t id, ffi::RemainingArgs arguments,
                        ffi::RemainingRets results) {
  const KernelCall* call = registry().find(static_cast<uint64_t>(id));
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
  try {
    run_host_op(*call, inputs, outputs, workers);
    return ffi::Error::Success();
  } catch (const c10::Error& error) {
    return ffi::Error::Internal(call->signature().op + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(call->signature().op + ": " + error.what());
  }
}

XLA_FFI_DEFINE_HANDLER(
    kHostOpHandler, call_host_op,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<int64_t>("id").RemainingArgs().RemainingRets());

}  // namespace

bool host_calls_available() {
  static const bool available = [] {
    pjrt::Client& client = pjrt::client();
    if (!client.has_ffi()) {
      return false;
    }
    client.register_ffi_handler(kHostCallTarget, reinterpret_cast<void*>(kHostOpHandler));
    return true;
  }();
  return available;
}

void register_host_op(const Signature& signature, const c10::OperatorHandle& op) {
  host_calls_available();  // a lowering may choose a host call later
  registry().add(signature, op);
}

void forget_host_op(const c10::OperatorHandle& op) { registry().forget(op); }

const KernelCall* find_kernel_call(const Signature& signature) {
  return registry().find(signature.hash);
}

}  // namespace torch_xla
