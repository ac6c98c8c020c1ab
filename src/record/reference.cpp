#include "record/reference.h"

#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/recent_map.h"
#include "record/cpu_run.h"
#include "record/plain_shapes.h"
#include "record/result_order.h"
#include "record/results.h"
#include "trace/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <unordered_map>

namespace torch_xla {

namespace {

bool same_results(const std::optional<IValues>& one, const std::optional<IValues>& other) {
  if (!one || !other) {
    return true;
  }
  const std::vector<at::Tensor> left = flatten_tensors(*one), right = flatten_tensors(*other);
  return std::equal(
      left.begin(), left.end(), right.begin(), right.end(),
      [](const at::Tensor& x, const at::Tensor& y) {
        return x.defined() == y.defined() &&
               (!x.defined() || (x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type()));
      });
}

// Lengths of parts, which must add up: no two constants tell whether they do.
bool depends_on_sums(const OpInfo& info) { return info.name.rfind("aten::segment_reduce", 0) == 0; }

bool is_of_others(const OpInfo& info) { return info.name.rfind("aten::", 0) != 0; }

// Others' operators may want lengths, or anything else, in their tensors: only values tell what
// they return where zeros are refused, ones give other sizes, or nothing is left, which would never
// be computed. Other sizes after all are an error when the kernel runs.
bool values_decide(const CpuRun& of_zeros, const CpuRun& of_ones) {
  if (!of_zeros.results || !of_ones.results || !same_results(of_zeros.results, of_ones.results)) {
    return true;
  }
  const std::vector<at::Tensor> tensors = flatten_tensors(*of_zeros.results);
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.numel() == 0;
  });
}

// What the kernel returns for zeros; nothing if values decide.
std::optional<IValues> ask_cpu(const OpInfo& info, const c10::OperatorHandle& op,
                               const IValues& arguments) {
  CpuRun first = run_on_cpu(op, arguments, full_of_zeros);
  if (is_of_others(info)) {
    return values_decide(first, run_on_cpu(op, arguments, full_of_ones)) ? std::nullopt
                                                                         : first.results;
  }
  if (first.error && !depends_on_sums(info)) {
    rethrow_if_both_refuse(first, run_on_cpu(op, arguments, full_of_ones));
  }
  return first.results;
}

// Operators and the dtypes for which the CPU has once been asked and agreed with meta.
class Agreed {
 public:
  bool contains(const std::string& kinds) {
    MutexLock lock(mutex_);
    return kinds_.find(kinds) != nullptr;
  }
  void add(std::string kinds) {
    MutexLock lock(mutex_);
    kinds_.get_or_add(kinds, true);
  }

 private:
  Mutex mutex_;
  RecentMap<std::string, bool> kinds_ GUARDED_BY(mutex_){size_t{1} << 12};
};

struct Kinds {
  std::string text;  // the operator, dtypes of its tensors, kinds of its numbers
  int64_t elements = 0;
  bool all_floating = true;  // any number fits, and none is an index
};

// The CPU's kernel chooses by the values of flags and modes, too, what else it returns.
Kinds kinds_of(const OpInfo& info, const IValues& arguments) {
  const bool computes = info.lowering == nullptr;
  Kinds kinds{info.name};
  for (const at::Tensor& tensor : flatten_tensors(arguments)) {
    if (tensor.defined()) {
      kinds.elements += tensor.numel();
      kinds.all_floating = kinds.all_floating && tensor.is_floating_point();
      kinds.text += c10::toString(tensor.scalar_type());
    }
  }
  for (const c10::IValue& argument : arguments) {
    if (argument.isScalar()) {
      kinds.text += argument.tagKind();
    }
    if (computes && (argument.isInt() || argument.isBool())) {
      kinds.text += std::to_string(argument.isInt() ? argument.toInt() : argument.toBool());
    }
  }
  return kinds;
}

bool takes_generator(const c10::OperatorHandle& op) {
  return op.schema().argumentIndexWithName("generator").has_value();
}

// The CPU is the reference, on all platforms: a mistake is one everywhere. What gradients are made
// of comes from PyTorch, not from the user: statistics of a 16-bit normalisation, say, are float32
// here and on meta, but not on the CPU.
bool cpu_is_reference(const OpInfo& info) {
  const bool gradient = info.name.find("_backward") != std::string::npos;
  return (!info.random || takes_generator(info.op)) && !gradient &&
         info.name.rfind("aten::", 0) == 0;
}

// Meta kernels word some errors differently from the CPU's and let some dtypes pass: the CPU is
// asked until it has agreed once to these dtypes, and for all small calls whose sizes the CPU's own
// code has not checked already. Where its kernel computes the results (_embedding_bag has other
// ones on meta), it must have agreed about them, too.
std::optional<IValues> second_opinion(const OpInfo& info, const c10::OperatorHandle& op,
                                      const IValues& arguments,
                                      const std::optional<IValues>& meta) {
  constexpr int64_t kSmall = 1 << 12;
  constexpr int64_t kLargest = int64_t{1} << 26;
  static auto* agreed = new Agreed;
  const bool needed = !meta;
  const bool computes = info.lowering == nullptr;
  if (!needed && !cpu_is_reference(info)) {
    return std::nullopt;
  }
  Kinds kinds = kinds_of(info, arguments);
  const bool checked = is_structured(op) && kinds.all_floating;
  if (!needed && (checked || kinds.elements > kSmall) &&
      ((kinds.elements > kLargest && !computes) || agreed->contains(kinds.text))) {
    return std::nullopt;
  }
  std::optional<IValues> results = ask_cpu(info, op, arguments);
  if (!computes || same_results(meta, results)) {
    agreed->add(std::move(kinds.text));
  }
  return results;
}

// Counts what the CPU has computed for answers about many numbers. Any thread.
class LongAnswers {
 public:
  // Once they have taken as long as the first question to Python does, that is asked.
  static bool allowed() { return spent_ms.load(std::memory_order_relaxed) < kPythonsFirst; }

  LongAnswers() : start_(std::chrono::steady_clock::now()) {}
  ~LongAnswers() {
    using std::chrono::milliseconds;
    const auto took = std::chrono::steady_clock::now() - start_;
    spent_ms += std::chrono::duration_cast<milliseconds>(took).count();
  }
  LongAnswers(const LongAnswers&) = delete;
  LongAnswers& operator=(const LongAnswers&) = delete;

 private:
  static constexpr int64_t kPythonsFirst = 500;
  static inline std::atomic<int64_t> spent_ms{0};
  const std::chrono::steady_clock::time_point start_;
};

constexpr size_t kFewBytes = size_t{1} << 20, kManyBytes = size_t{1} << 24;

struct Numbers {
  bool any = false;
  size_t bytes = 0;
  bool narrow = false;  // of 16 bits
  bool of_others = false;
};

Numbers numbers_of(const IValues& arguments) {
  Numbers numbers;
  for (const at::Tensor& tensor : flatten_tensors(arguments)) {
    if (tensor.defined()) {
      numbers.any = true;
      numbers.bytes +=
          at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
      numbers.narrow = numbers.narrow || at::isReducedFloatingType(tensor.scalar_type());
      numbers.of_others = numbers.of_others || !is_xla(tensor);
    }
  }
  return numbers;
}

// PyTorch's meta kernels of what C++ does not tell are Python's: a millisecond for each kind of
// call, and the first imports a library for half a second. Few numbers are computed sooner, and
// some calls with many. The CPU's norms of 16 bits save other dtypes, its batch norms less.
bool cpu_answers_sooner(const OpInfo& info, const c10::OperatorHandle& op, const Numbers& numbers) {
  const bool saves_others =
      info.name.find(numbers.narrow ? "_norm" : "batch_norm") != std::string::npos;
  return numbers.any && !numbers.of_others &&
         (numbers.bytes <= kFewBytes || (numbers.bytes <= kManyBytes && LongAnswers::allowed())) &&
         !is_of_others(info) && !depends_on_sums(info) && !saves_others &&
         (!info.random || takes_generator(op));
}

// Of zeros, or of ones, if it refuses zeros: a distribution cannot consist of them. It has no
// kernel for some operators in 16 bits, which is no mistake of the user's.
std::optional<IValues> results_on_cpu(const c10::OperatorHandle& op, const IValues& arguments,
                                      const Numbers& numbers) {
  std::optional<LongAnswers> timed;
  if (numbers.bytes > kFewBytes) {
    timed.emplace();
  }
  auto run = [&](int value) {
    return run_on_cpu(op, arguments, [value](const auto& t) { return laid_out(t, value); });
  };
  CpuRun first = run(0);
  if (first.results) {
    return first.results;
  }
  CpuRun second = run(1);
  if (!numbers.narrow) {
    rethrow_if_both_refuse(first, second);
  }
  return second.results;
}

enum class Source { kRules, kPyTorch, kCpu };
struct Answer {
  std::optional<IValues> results;
  Source source = Source::kPyTorch;
};

// What C++ says, ours or PyTorch's; else the CPU, if that is sooner; else Python.
Answer answer_of(const OpInfo& info, const c10::OperatorHandle& op, const IValues& arguments,
                 const IValues& meta_arguments) {
  if (auto results = plain_results(op, meta_arguments)) {
    return {results, Source::kRules};
  }
  if (auto results = results_without_python(op, meta_arguments)) {
    return {results};
  }
  const Numbers numbers = numbers_of(arguments);
  if (cpu_answers_sooner(info, op, numbers)) {
    if (auto results = results_on_cpu(op, arguments, numbers)) {
      return {results, Source::kCpu};
    }
  }
  auto results = results_of_kernels(op, meta_arguments);
  return {results ? results : run_meta(op, meta_arguments)};
}

// A convolution of no images computes nothing, and the CPU checks all other sizes first.
void check_convolution(const c10::OperatorHandle& op, IValues arguments) {
  if (op.schema().name() != "aten::convolution") {
    return;
  }
  const at::Tensor& images = arguments[0].toTensor();
  if (images.dim() == 0 || images.numel() == 0) {
    return;
  }
  arguments[0] = images.narrow(0, 0, 0);
  CpuRun run = run_on_cpu(op, arguments, full_of_zeros);
  if (run.error) {
    std::rethrow_exception(run.error);
  }
}

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// The indices, as if each mask chose so many places, or one where it has fewer.
c10::List<std::optional<at::Tensor>> with_places(const std::vector<at::Tensor>& indices,
                                                 int64_t places) {
  c10::List<std::optional<at::Tensor>> result;
  for (const at::Tensor& index : indices) {
    for (int64_t dim = 0; dim < (is_mask(index) ? index.dim() : 1); ++dim) {
      result.push_back(!index.defined() ? std::nullopt
                       : is_mask(index)
                           ? std::optional(at::empty({index.numel() < places ? 1 : places},
                                                     index.options().dtype(at::kLong)))
                           : std::optional(index));
    }
  }
  return result;
}

// How many places a mask chooses is not known here: some number must fit.
void check_written_sizes(const at::Tensor& self, const std::vector<at::Tensor>& indices,
                         const at::Tensor& values) {
  int64_t most = -1;  // places that one of the masks can choose; of the others each has one then
  std::vector<int64_t> sizes = values.sizes().vec();
  for (const at::Tensor& index : indices) {
    if (is_mask(index)) {
      most = std::max(most, index.numel());
    } else if (index.defined()) {
      sizes.insert(sizes.end(), index.sizes().begin(), index.sizes().end());
    }
  }
  for (int64_t size : sizes) {
    try {
      if (size > 1 && size <= most) {
        check_written_values(self, with_places(indices, size), values);
        return;
      }
    } catch (const std::exception& error) {  // another may; the meta kernel is Python's
      if (is_interrupt(error)) {
        throw;
      }
    }
  }
  check_written_values(self, with_places(indices, std::min<int64_t>(most, 1)), values);
}

// Under one mask a single value is filled in, whatever it is. Else the CPU's kernel takes none of
// another dtype.
void check_written_dtype(const at::Tensor& self, const std::vector<at::Tensor>& indices,
                         const at::Tensor& values, bool accumulate) {
  const auto given = std::count_if(indices.begin(), indices.end(),
                                   [](const at::Tensor& index) { return index.defined(); });
  const bool fills = !accumulate && values.numel() == 1 && given == 1 &&
                     std::any_of(indices.begin(), indices.end(), is_mask);
  TORCH_CHECK(fills || values.scalar_type() == self.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
}

// index_put(self, indices, values, accumulate): meta looks at none of the sizes, nor at dtypes.
void check_index_put(const c10::OperatorHandle& op, const IValues& meta_arguments) {
  const std::string& name = op.schema().name();
  if (name.find("index_put") == std::string::npos || name.rfind("aten::", 0) != 0 ||
      !meta_arguments[2].isTensor()) {
    return;
  }
  const at::Tensor& self = meta_arguments[0].toTensor();
  const at::Tensor& values = meta_arguments[2].toTensor();
  const std::vector<at::Tensor> indices = flatten_tensors({meta_arguments[1]});
  check_written_sizes(self, indices, values);
  check_written_dtype(self, indices, values,
                      meta_arguments.size() > 3 && meta_arguments[3].toBool());
}

// addmm(self, a, b): meta looks at the sizes of a and b.
void check_summand(const c10::OperatorHandle& op, const IValues& meta_arguments,
                   const std::optional<IValues>& results) {
  if (results && op.schema().name() == "aten::addmm") {
    meta_arguments[0].toTensor().expand((*results)[0].toTensor().sizes());
  }
}

void check_representable(const OpInfo& info, const std::optional<IValues>& results) {
  for (const at::Tensor& tensor : results ? flatten_tensors(*results) : std::vector<at::Tensor>()) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !tensor.defined() || (tensor.layout() == c10::kStrided && !tensor.is_quantized()),
        "the xla device has only strided tensors of plain dtypes, and ", info.name,
        " returns one of layout ", tensor.layout(), " and dtype ", tensor.scalar_type(),
        ": call it on the CPU");
  }
}

std::optional<IValues> ask(const OpInfo& info, const c10::OperatorHandle& op,
                           const IValues& arguments) {
  Answer answer;
  std::optional<IValues>& results = answer.results;
  IValues meta_arguments = to_meta(arguments);
  try {
    check_index_put(op, meta_arguments);
    answer = answer_of(info, op, arguments, meta_arguments);
    check_summand(op, meta_arguments, results);
    if (results) {
      keep_order(op, meta_arguments, *results);
    }
  } catch (const std::exception& error) {
    if (is_interrupt(error)) {
      throw;
    }
    CpuRun cpu = run_on_cpu(op, arguments, full_of_zeros);
    if (cpu.error) {
      std::rethrow_exception(cpu.error);
    }
    if (!cpu.results) {
      throw;
    }
    // A fake kernel that leaves a size open asks for a context, which says why there is none.
    const bool is_open = std::string_view(error.what()).find("get_ctx()") != std::string_view::npos;
    return is_of_others(info) && is_open ? std::nullopt : cpu.results;
  }
  if (answer.source == Source::kCpu) {
    return results;
  }
  if (answer.source != Source::kRules && cpu_is_reference(info)) {
    check_convolution(op, arguments);
  }
  std::optional<IValues> cpu = second_opinion(info, op, arguments, results);
  // A CPU kernel that will compute the results knows their sizes and dtypes best.
  return cpu && (!results || info.lowering == nullptr) ? cpu : results;
}

// Indexed writes read no part of what they write. Others may read exactly the same.
bool overlaps(const OpInfo& info, const at::Tensor& written, const c10::IValue& other) {
  if (other.isList()) {  // of indices
    const c10::ArrayRef<c10::IValue> elements = other.toListRef();
    return std::any_of(elements.begin(), elements.end(), [&](const c10::IValue& element) {
      return overlaps(info, written, element);
    });
  }
  if (!other.isTensor() || !is_xla(other.toTensor())) {
    return false;
  }
  const auto status = at::get_overlap_status(written, other.toTensor());
  return status == at::MemOverlapStatus::Partial ||
         (status == at::MemOverlapStatus::Full && info.places != nullptr);
}

bool overlaps(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(info.mutated.begin(), info.mutated.end(), [&](size_t at) {
    const c10::IValue& written = arguments[at];
    if (!written.isTensor() || !is_xla(written.toTensor())) {
      return false;
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (i != at && overlaps(info, written.toTensor(), arguments[i])) {
        return true;
      }
    }
    return false;
  });
}

// Zeros, and masks that choose nothing or everything, that share memory where the tensors do.
class SharedMemory {
 public:
  explicit SharedMemory(bool masks) : masks_(masks) {}
  at::Tensor operator()(const at::Tensor& tensor) {
    at::Tensor& bytes = memory_[tensor.storage().unsafeGetStorageImpl()];
    if (!bytes.defined()) {
      const int64_t byte = masks_ && tensor.scalar_type() == at::kBool ? 1 : 0;
      bytes = at::full({static_cast<int64_t>(tensor.storage().nbytes())}, byte, at::kByte);
    }
    return cpu_tensor(bytes.storage(), tensor.scalar_type(), tensor.sizes(), tensor.strides(),
                      tensor.storage_offset());
  }

 private:
  const bool masks_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> memory_;
};

}  // namespace

void check_written_values(const at::Tensor& meta_self,
                          const c10::List<std::optional<at::Tensor>>& meta_indices,
                          const at::Tensor& values) {
  static const auto index = c10::Dispatcher::singleton().findSchemaOrThrow("aten::index", "Tensor");
  const at::Tensor place =
      results_without_python(index, {meta_self, meta_indices}).value().front().toTensor();
  c10::IntArrayRef sizes = values.sizes();
  while (sizes.size() > static_cast<size_t>(place.dim()) && sizes.front() == 1) {
    sizes = sizes.slice(1);
  }
  TORCH_CHECK(at::is_expandable_to(sizes, place.sizes()), "shape mismatch: value tensor of shape ",
              values.sizes(), " cannot be broadcast to indexing result of shape ", place.sizes());
}

std::optional<IValues> run_checked(const OpInfo& info, const c10::OperatorHandle& op,
                                   const IValues& arguments) {
  std::optional<IValues> results = ask(info, op, arguments);
  check_representable(info, results);
  return results;
}

void check_draw(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!takes_generator(info.op)) {
    return;
  }
  CpuRun run = run_on_cpu(info.op, arguments, emptied);
  if (run.error) {
    std::rethrow_exception(run.error);
  }
}

void check_overlaps(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!overlaps(info, arguments)) {
    return;
  }
  for (bool masks : {false, true}) {  // one of which has as many places as values, if any mask has
    SharedMemory shared(masks);
    CpuRun run = run_on_cpu(info.op, arguments, std::ref(shared));
    auto apart = [masks](const at::Tensor& tensor) {
      return filled(tensor, masks && tensor.scalar_type() == at::kBool ? 1 : 0);
    };
    if (run.error && !run_on_cpu(info.op, arguments, apart).error) {
      std::rethrow_exception(run.error);
    }
  }
}

void refuse_overlaps(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!overlaps(info, arguments)) {
    return;
  }
  SharedMemory shared(false);
  CpuRun run = run_on_cpu(info.op, arguments, std::ref(shared));
  if (run.error) {
    std::rethrow_exception(run.error);
  }
}

}  // namespace torch_xla
