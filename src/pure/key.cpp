#include "pure/key.h"

#include "record/call.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>

namespace torch_xla {

namespace {

constexpr uint64_t kShared = uint64_t{1} << 63;

bool fills_storage(const c10::TensorImpl& tensor, bool contiguous) {
  return contiguous && tensor.storage_offset() == 0 &&
         tensor.storage().nbytes() ==
             static_cast<size_t>(tensor.numel()) * tensor.dtype().itemsize();
}

}  // namespace

void append_switches(Words& words) {
  bool autocast = at::autocast::is_autocast_enabled(at::kXLA);
  uint64_t word = at::GradMode::is_enabled();
  word |= uint64_t{c10::InferenceMode::is_enabled()} << 1;
  word |= uint64_t{autocast} << 2;
  word |= uint64_t{at::globalContext().deterministicAlgorithms()} << 3;
  word |= static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 8;
  if (autocast) {
    word |= static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kXLA)) << 16;
  }
  TraceScope* scope = current_scope();
  word |= uint64_t{scope != nullptr && scope->generator.defined()} << 24;
  words.push_back(word);
}

namespace {

// What a trace relies on, word by word, until `take` says that it is enough.
template <class Take>
bool describe_tensor(const at::Tensor& tensor, Take&& take) REQUIRES(trace_mutex) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  bool contiguous = impl.is_contiguous();
  bool covers = fills_storage(impl, contiguous);
  uint64_t word = static_cast<uint64_t>(c10::typeMetaToScalarType(impl.dtype()));
  word |= uint64_t{impl.requires_grad()} << 8;
  word |= uint64_t{contiguous} << 9;
  word |= uint64_t{covers} << 10;
  word |= uint64_t{impl.is_conj()} << 11;
  word |= uint64_t{impl.is_neg()} << 12;
  word |= uint64_t{impl.is_inference()} << 13;
  word |= uint64_t{impl.itemsize() == 1 && holds_bools(impl)} << 14;  // read by bytes
  word |= static_cast<uint64_t>(impl.device().index()) << 16;
  word |= static_cast<uint64_t>(impl.dim()) << 32;
  bool goes_on = take(word);
  for (int64_t size : impl.sizes()) {
    goes_on = goes_on && take(static_cast<uint64_t>(size));
  }
  for (size_t i = 0; goes_on && !contiguous && i < impl.strides().size(); ++i) {
    goes_on = take(static_cast<uint64_t>(impl.strides()[i]));
  }
  if (goes_on && !covers) {
    goes_on = take(static_cast<uint64_t>(impl.storage_offset())) && take(impl.storage().nbytes());
  }
  return goes_on;
}

bool is_described_by(const at::Tensor& tensor, const TensorWords& words) REQUIRES(trace_mutex) {
  size_t next = 0;
  return describe_tensor(
             tensor, [&](uint64_t word) { return next < words.size() && words[next++] == word; }) &&
         next == words.size();
}

}  // namespace

void append_tensor(c10::SmallVectorImpl<uint64_t>& words, const at::Tensor& tensor) {
  describe_tensor(tensor, [&](uint64_t word) {
    words.push_back(word);
    return true;
  });
}

namespace {

// A thousand tensors are rarely in the processor's caches, and each leads to its storage, and this
// to its state: what is read of them is asked for some tensors ahead, a step of the way at a time.
class FetchedAhead {
 public:
  explicit FetchedAhead(const Tensors& tensors) : tensors_(tensors) {}

  const at::Tensor& operator[](size_t i) const {
    if (const c10::TensorImpl* impl = ahead(i, 3)) {
      fetch(impl, 0, sizeof(c10::TensorImpl));
    }
    if (const c10::TensorImpl* impl = ahead(i, 2); impl != nullptr && impl->has_storage()) {
      fetch(impl->unsafe_storage().unsafeGetStorageImpl(), 0, sizeof(c10::StorageImpl));
      fetch(const_cast<c10::TensorImpl*>(impl)->autograd_meta(), 0,
            sizeof(torch::autograd::AutogradMeta));
    }
    if (const c10::TensorImpl* impl = ahead(i, 1); impl != nullptr && impl->has_storage()) {
      fetch(impl->unsafe_storage().data_ptr().get_context(), -64, 192);  // inside the state
    }
    return tensors_[i];
  }

 private:
  const c10::TensorImpl* ahead(size_t i, size_t steps) const {
    constexpr size_t kStep = 6;
    const size_t place = i + steps * kStep;
    return place < tensors_.size() ? tensors_[place].unsafeGetTensorImpl() : nullptr;
  }
  static void fetch(const void* memory, int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; line += 64) {
      __builtin_prefetch(static_cast<const char*>(memory) + line);
    }
  }

  const Tensors& tensors_;
};

}  // namespace

void append_arguments(Words& words, const Tensors& arguments) {
  uint64_t epoch = next_visit_epoch();
  const FetchedAhead fetched(arguments);
  TraceLock lock;
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    append_tensor(words, fetched[i]);
    StorageState& state = *state_of(arguments[i]);
    __builtin_prefetch(state.value().node.get());  // of which the call takes a reference
    if (state.visit.epoch == epoch) {
      bool same = arguments[i].is_same(arguments[state.visit.index]);
      words.push_back(kShared | uint64_t{same} << 32 | state.visit.index);
    } else {
      state.visit = {epoch, i};
    }
  }
}

uint64_t hash_words(const Words& words) {
  uint64_t hash = 0x9E3779B97F4A7C15ull;
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDull;
    hash ^= hash >> 32;
  }
  return hash;
}

bool handles_match(const PureEntry& entry, const Tensors& arguments) {
  for (const PureEntry::Place& leaf : entry.without_gradient) {
    if (leaf.find(arguments).defined()) {
      return false;
    }
  }
  if (entry.handles.empty()) {
    return true;
  }
  uint64_t epoch = next_visit_epoch();
  TraceLock lock;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const PureEntry::Input& input = entry.inputs[i];
    if (input.argument >= 0) {
      state_of(arguments[input.argument])->visit = {epoch, static_cast<uint32_t>(i)};
    } else if (input.handle >= 0) {
      const at::Tensor& tensor = entry.handles[input.handle].place.find(arguments);
      if (!tensor.defined()) {
        return false;
      }
      StorageState& state = *state_of(tensor);
      if (state.visit.epoch == epoch) {
        return false;
      }
      state.visit = {epoch, static_cast<uint32_t>(i)};
    }
  }
  for (const PureEntry::Handle& handle : entry.handles) {
    const at::Tensor& tensor = handle.place.find(arguments);
    if (!tensor.defined()) {
      return false;
    }
    const StorageState& state = *state_of(tensor);
    if (!is_described_by(tensor, handle.key) || state.visit.epoch != epoch ||
        state.visit.index != static_cast<uint32_t>(handle.input)) {
      return false;
    }
  }
  return true;
}

uint64_t next_visit_epoch() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace torch_xla
