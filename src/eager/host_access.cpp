#include "eager/host_access.h"

#include "eager/mode.h"
#include "execution/sync.h"
#include "host_ops/host_allocator.h"
#include "tiers/reading_habit.h"
#include "trace/scope.h"
#include "values/frame.h"
#include "values/internal_ops.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/clone.h>

#include <cstring>

namespace torch_xla::eager {

namespace {

constexpr size_t kFewEntries = 12;

DeviceDataPtr host_leaf(TensorType type, int device, c10::Storage host) {
  return c10::make_intrusive<DeviceData>(std::move(type), device, std::move(host));
}

c10::Storage owned(c10::StorageImpl* storage) {
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
}

// Nothing else can see the result's memory, and freeing it runs no code of others.
bool is_ours_to_keep(const at::Tensor& result) {
  const c10::Storage& storage = result.storage();
  return result.use_count() == 1 && storage.use_count() == 1 && is_plain_host_memory(storage);
}

// A CPU tensor that an operation saw can be the next one's if nobody else has it. (One of inference
// mode is as good: no kernel below autograd asks.)
bool can_be_kept(const at::Tensor& view, const c10::StorageImpl* memory) {
  return view.defined() && view.use_count() == 1 &&
         view.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == memory &&
         !view.is_conj() && !view.is_neg();
}

c10::Storage make_storage_of_leaf(const at::Tensor& result, int device) {
  const size_t nbytes = result.storage().nbytes();
  return make_storage(static_cast<int64_t>(nbytes), device,
                      {host_leaf(frame_of(result, nbytes), device, result.storage()), 0});
}

// The next ones of this thread, too, as far as can be said.
bool operations_are_called() {
  return mode() == Mode::Host || tiers::ReadingHabit::of_this_thread().runs_at_once();
}

// The xla tensor that sees this storage as the kernel's result sees its own.
at::Tensor as_xla(const c10::TensorImpl& result, c10::Storage storage) {
  at::Tensor tensor = make_tensor(std::move(storage), c10::typeMetaToScalarType(result.dtype()),
                                  result.sizes(), result.strides(), result.storage_offset());
  if (result.is_conj()) {
    tensor._set_conj(true);
  }
  if (result.is_neg()) {
    tensor._set_neg(true);
  }
  return tensor;
}

// Asked for each argument of each call: calls nothing.
bool is_same_window(const at::Tensor& view, const at::Tensor& tensor) {
  const c10::TensorImpl& one = *view.unsafeGetTensorImpl();
  const c10::TensorImpl& other = *tensor.unsafeGetTensorImpl();
  const c10::IntArrayRef sizes = one.sizes(), strides = one.strides();
  const c10::IntArrayRef other_sizes = other.sizes(), other_strides = other.strides();
  bool same = one.dtype() == other.dtype() && one.storage_offset() == other.storage_offset() &&
              sizes.size() == other_sizes.size();
  for (size_t i = 0; same && i < sizes.size(); ++i) {
    same = sizes[i] == other_sizes[i] && strides[i] == other_strides[i];
  }
  return same;
}

}  // namespace

HostAccess::Loan* HostAccess::borrow(c10::StorageImpl* storage, StorageState* state) {
  if (at::Tensor tensor = state->host.borrow(); tensor.defined()) {
    const bool is_whole = storage->nbytes() <= tensor.storage().nbytes();
    return &loans_.emplace_back(Loan{storage, state, std::move(tensor), false, is_whole});
  }
  auto mine = std::find_if(loans_.begin(), loans_.end(),
                           [&](const Loan& loan) { return loan.state == state; });
  return mine != loans_.end() ? mine : nullptr;
}

size_t HostAccess::find(c10::StorageImpl* storage, StorageState* state) {
  if (entries_.size() <= kFewEntries) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].state == state) {
        return i;
      }
    }
  } else {
    if (!index_) {
      index_.emplace();
    }
    for (size_t i = index_->size(); i < entries_.size(); ++i) {
      (*index_)[entries_[i].state] = i;
    }
    auto found = index_->find(state);
    if (found != index_->end()) {
      return found->second;
    }
  }
  Entry& entry = entries_.emplace_back();
  entry.storage = storage;
  entry.state = state;
  return entries_.size() - 1;
}

void HostAccess::add(const at::Tensor& tensor, bool write) {
  StorageState* state = state_of(tensor.storage()).get();
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const bool writes_bytes = write && tensor.scalar_type() != at::kBool;
  if (Loan* loan = borrow(storage, state)) {
    loan->write = loan->write || write;
    loan->fits = loan->fits && !(writes_bytes && loan->tensor.scalar_type() == at::kBool);
    uses_.push_back({&tensor, write, true, static_cast<size_t>(loan - loans_.begin()), {}});
    return;
  }
  const size_t place = find(storage, state);
  Entry& entry = entries_[place];
  entry.write = entry.write || write;
  entry.writes_bytes = entry.writes_bytes || writes_bytes;
  uses_.push_back({&tensor, write, false, place, {}});
}

void HostAccess::make_entries_of_unfit_loans() {
  for (size_t i = 0; i < loans_.size(); ++i) {
    Loan& loan = loans_[i];
    if (loan.fits) {
      continue;
    }
    for (Use& use : uses_) {
      if (use.is_lent && use.place == i) {
        use.is_lent = false;
        use.place = find(loan.storage, loan.state);
        Entry& entry = entries_[use.place];
        entry.write = entry.write || use.write;
        entry.writes_bytes =
            entry.writes_bytes || (use.write && use.tensor->scalar_type() != at::kBool);
      }
    }
    loan.state->give_back(std::move(loan.tensor));
  }
}

// Pins every entry's value, or none: then says which are pending and which were never written.
bool HostAccess::pin_all(std::vector<StatePtr>& pending, std::vector<Entry*>& missing) {
  TraceLock lock;
  for (Entry& entry : entries_) {
    check_scope(*entry.state);
    if (entry.state->pending()) {
      pending.push_back(entry.state->shared_from_this());
    } else if (!entry.state->value()) {
      missing.push_back(&entry);
    }
  }
  if (!pending.empty() || !missing.empty()) {
    return false;
  }
  for (Entry& entry : entries_) {
    entry.leaf = entry.state->value().node;
    DeviceData& data = *device_data(*entry.leaf);
    ++data.holders;
    ++data.pins;
    entry.kept = std::move(data.kept);
    // One reference is the storage's, and each pin has one.
    entry.shared = entry.leaf.use_count() > 1 + static_cast<size_t>(data.pins);
  }
  return true;
}

// Whether called operations need no node of a value that only its storage refers to.
bool HostAccess::can_be_on_host(const Entry& entry) const {
  const StorageState& state = *entry.state;
  DeviceData& data = *device_data(*entry.leaf);
  return operations_are_called() && state.scope == nullptr && state.annotation == nullptr &&
         state.value().node == entry.leaf && entry.leaf.use_count() == 2 && entry.kept.defined() &&
         !entry.kept.unsafeGetTensorImpl()->is_wrapped_number() &&
         frame_of(entry.kept, entry.memory->nbytes()) == data.type && data.let_go_of_host();
}

void HostAccess::close() {
  for (Use& use : uses_) {
    if (!use.is_lent && can_be_kept(use.view, entries_[use.place].memory)) {
      entries_[use.place].kept = std::move(use.view);
    }
  }
  for (Loan& loan : loans_) {
    if (loan.tensor.defined()) {
      loan.state->give_back(std::move(loan.tensor));
    }
  }
  if (entries_.empty()) {
    return;
  }
  c10::SmallVector<NodePtr, 4> last;  // freed without the lock
  TraceLock lock;
  for (Entry& entry : entries_) {
    if (!entry.leaf) {
      continue;
    }
    DeviceData& data = *device_data(*entry.leaf);
    --data.holders;
    --data.pins;
    // A reference without a pin would look like another value that shares the memory.
    if (entry.leaf.use_count() == 1) {
      last.push_back(std::move(entry.leaf));
    } else if (can_be_on_host(entry)) {
      entry.state->put_on_host(std::move(entry.kept));
      last.push_back(std::move(entry.leaf));
    } else {
      std::swap(data.kept, entry.kept);
    }
    entry.leaf.reset();
  }
}

const at::Tensor& HostAccess::first_of(const Entry& entry) const {
  return *std::find_if(uses_.begin(), uses_.end(), [&](const Use& use) {
            return !use.is_lent && &entries_[use.place] == &entry;
          })->tensor;
}

bool HostAccess::replace(Entry& entry) {
  const size_t there = entry.memory->nbytes();
  const size_t nbytes = std::max(entry.storage->nbytes(), there);
  c10::Storage memory = allocate_on_host(nbytes);
  auto* bytes = static_cast<char*>(memory.mutable_data());
  if (there > 0) {
    std::memcpy(bytes, entry.memory->data(), there);
  }
  std::memset(bytes + there, 0, nbytes - there);
  DeviceData& old = *device_data(*entry.leaf);
  TensorType type = old.type;
  if (entry.writes_bytes && type.dtype == at::kBool) {
    type.dtype = at::kByte;  // bools promise to be 0 or 1
  }
  if (static_cast<size_t>(type.nbytes()) != nbytes) {
    type = resized_frame(type.dtype, first_of(entry).scalar_type(), static_cast<int64_t>(nbytes));
  }
  NodePtr leaf = host_leaf(std::move(type), old.device, memory);
  {
    TraceLock lock;
    if (entry.state->value().node != entry.leaf) {
      return false;
    }
    entry.state->set_value({leaf, 0});
    --old.holders;
    --old.pins;
    ++device_data(*leaf)->holders;
    ++device_data(*leaf)->pins;
  }
  entry.leaf = std::move(leaf);
  entry.kept.reset();
  entry.host = std::move(memory);
  entry.memory = entry.host.unsafeGetStorageImpl();
  return true;
}

bool HostAccess::open_memory(Entry& entry) {
  DeviceData& data = *device_data(*entry.leaf);
  if (entry.kept.defined()) {
    entry.host = c10::Storage();  // of a value that another thread has replaced meanwhile
    entry.memory = entry.kept.storage().unsafeGetStorageImpl();
  } else {
    entry.host = data.host();
    entry.memory = entry.host.unsafeGetStorageImpl();
  }
  if ((entry.write && entry.shared) || entry.memory->nbytes() < entry.storage->nbytes() ||
      (entry.writes_bytes && data.type.dtype == at::kBool)) {
    return replace(entry);
  }
  if (entry.write) {
    data.begin_write();
  }
  return true;
}

void HostAccess::open() {
  make_entries_of_unfit_loans();
  bool opened = entries_.empty();
  while (!opened) {
    std::vector<StatePtr> pending;
    std::vector<Entry*> missing;
    if (!pin_all(pending, missing)) {
      for (Entry* entry : missing) {
        make(*entry);
      }
      sync_storages(pending);
      continue;
    }
    opened = std::all_of(entries_.begin(), entries_.end(),
                         [this](Entry& entry) { return open_memory(entry); });
    if (!opened) {
      close();
    }
  }
}

// Memory of a storage that was never written.
void HostAccess::make(Entry& entry) {
  const size_t nbytes = entry.storage->nbytes();
  NodePtr leaf =
      host_leaf(frame_of(first_of(entry), nbytes), entry.state->device, allocate_on_host(nbytes));
  TraceLock lock;
  if (!entry.state->value()) {
    entry.state->set_value({std::move(leaf), 0});
  }
}

at::Tensor& HostAccess::view(size_t place) {
  Use& use = uses_[place];
  return use.is_lent ? view_of_loan(use, loans_[use.place])
                     : view_of_entry(use, entries_[use.place]);
}

at::Tensor& HostAccess::view_of_loan(Use& use, Loan& loan) {
  const at::Tensor& tensor = *use.tensor;
  const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (!is_number && is_same_window(loan.tensor, tensor)) {
    return loan.tensor;
  }
  const c10::Storage& memory = loan.tensor.storage();
  const bool reads_bytes_as_bools =
      tensor.scalar_type() == at::kBool && !loan.write && loan.tensor.scalar_type() != at::kBool;
  use.view = cpu_tensor(reads_bytes_as_bools ? as_bools(memory) : memory, tensor.scalar_type(),
                        tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (is_number) {
    use.view.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return use.view;
}

at::Tensor& HostAccess::view_of_entry(Use& use, Entry& entry) {
  const at::Tensor& tensor = *use.tensor;
  const bool reads_bytes_as_bools = tensor.scalar_type() == at::kBool && !entry.write &&
                                    device_data(*entry.leaf)->type.dtype != at::kBool;
  if (entry.kept.defined() && !reads_bytes_as_bools && is_same_window(entry.kept, tensor)) {
    use.view = std::move(entry.kept);
  } else {
    if (!entry.host) {
      entry.host = device_data(*entry.leaf)->host();
    }
    use.view =
        cpu_tensor(reads_bytes_as_bools ? as_bools(entry.host) : entry.host, tensor.scalar_type(),
                   tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  if (tensor.dim() == 0) {
    use.view.unsafeGetTensorImpl()->set_wrapped_number(
        tensor.unsafeGetTensorImpl()->is_wrapped_number());
  }
  return use.view;
}

c10::StorageImpl* HostAccess::storage_of(const c10::StorageImpl* memory) const {
  for (const Loan& loan : loans_) {
    if (loan.fits && loan.tensor.storage().unsafeGetStorageImpl() == memory) {
      return loan.storage;
    }
  }
  for (const Entry& entry : entries_) {
    if (entry.memory == memory) {
      return entry.storage;
    }
  }
  for (const Adopted& adopted : adopted_) {
    if (adopted.memory == memory) {
      return adopted.storage;
    }
  }
  return nullptr;
}

at::Tensor HostAccess::adopt(at::Tensor result, int device) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      result.layout() == c10::kStrided && result.device().is_cpu() && !result.is_quantized(),
      "the xla device has only strided tensors of plain dtypes, an operator returned one of "
      "layout ",
      result.layout(), " and dtype ", result.scalar_type(), " on ", result.device());
  const c10::StorageImpl* memory = result.storage().unsafeGetStorageImpl();
  if (c10::StorageImpl* known = storage_of(memory)) {
    return as_xla(*result.unsafeGetTensorImpl(), owned(known));
  }
  if (!is_ours_to_keep(result)) {
    return adopt(at::clone(result), device);
  }
  const c10::TensorImpl& seen = *result.unsafeGetTensorImpl();
  const bool needs_no_node = can_be_kept(result, memory) && current_scope() == nullptr;
  c10::Storage storage = needs_no_node ? make_storage_on_host(std::move(result), device)
                                       : make_storage_of_leaf(result, device);
  adopted_.push_back({memory, storage.unsafeGetStorageImpl()});
  return as_xla(seen, std::move(storage));
}

at::Tensor empty_on_host(DType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         int device) {
  at::Tensor memory = at::detail::empty_strided_cpu(sizes, strides, dtype);
  check_allocation(static_cast<int64_t>(memory.storage().nbytes()), device);
  const c10::TensorImpl& seen = *memory.unsafeGetTensorImpl();
  return as_xla(seen, make_storage_on_host(std::move(memory), device));
}

void HostAccess::update_written() {
  for (Use& use : uses_) {
    if (use.write) {
      update(use);
    }
  }
}

std::pair<c10::StorageImpl*, StorageState*> HostAccess::owner_of(const Use& use) const {
  if (use.is_lent) {
    return {loans_[use.place].storage, loans_[use.place].state};
  }
  return {entries_[use.place].storage, entries_[use.place].state};
}

// Takes over what the kernel made of a tensor that it was given to resize.
void HostAccess::update(Use& use) {
  const at::Tensor& tensor = *use.tensor;
  const at::Tensor& view = seen(use);
  if (tensor.sizes() == view.sizes() && tensor.strides() == view.strides()) {
    return;
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(),
                                                      view.storage_offset());
  auto [storage, state] = owner_of(use);
  const size_t nbytes = view.storage().nbytes();
  if (nbytes == storage->nbytes()) {
    return;
  }
  storage->set_nbytes(nbytes);
  NodePtr leaf = host_leaf(frame_of(tensor, nbytes), state->device, view.storage());
  TraceLock lock;
  state->set_value({std::move(leaf), 0});
}

}  // namespace torch_xla::eager
