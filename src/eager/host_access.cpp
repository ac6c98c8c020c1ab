#include "eager/host_access.h"

#include "execution/sync.h"
#include "host_ops/host_allocator.h"
#include "trace/scope.h"
#include "values/internal_ops.h"

#include <ATen/ops/clone.h>

#include <cstring>

namespace torch_xla::eager {

namespace {

constexpr size_t kFewEntries = 12;

// The frame of a storage, as the tensor that covers it sees it; flat if none does.
TensorType frame_of(const at::Tensor& tensor, size_t storage_nbytes) {
  const bool covers = tensor.storage_offset() == 0 && tensor.nbytes() == storage_nbytes;
  if (covers && tensor.is_contiguous()) {
    return {tensor.scalar_type(), Dims(tensor.sizes().begin(), tensor.sizes().end())};
  }
  if (covers && is_dense_permutation(tensor.sizes(), tensor.strides())) {
    return make_output_spec(tensor.scalar_type(), tensor.sizes(), tensor.strides()).frame;
  }
  return resized_frame(tensor.scalar_type(), tensor.scalar_type(),
                       static_cast<int64_t>(storage_nbytes));
}

DeviceDataPtr host_leaf(TensorType type, int device, c10::Storage host) {
  return c10::make_intrusive<DeviceData>(std::move(type), device, std::move(host));
}

c10::Storage storage_of(c10::StorageImpl* storage) {
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
}

// Nothing else can see the result's memory, and freeing it runs no code of others.
bool is_ours_to_keep(const at::Tensor& result) {
  const c10::Storage& storage = result.storage();
  return result.use_count() == 1 && storage.use_count() == 1 && is_plain_host_memory(storage);
}

// A CPU tensor that an operation saw can be the next one's if nobody else has it.
bool can_be_kept(const at::Tensor& view, const c10::StorageImpl* memory) {
  return view.defined() && view.use_count() == 1 &&
         view.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == memory &&
         !view.is_conj() && !view.is_neg() && !view.is_inference();
}

// Nobody else knows the value yet.
void keep(DeviceData& fresh, at::Tensor view) NOT_ANALYSED { fresh.kept = std::move(view); }

bool is_same_window(const at::Tensor& view, const at::Tensor& tensor) {
  return view.scalar_type() == tensor.scalar_type() && view.sizes() == tensor.sizes() &&
         view.strides() == tensor.strides() && view.storage_offset() == tensor.storage_offset();
}

}  // namespace

size_t HostAccess::find(const c10::Storage& storage) {
  StorageState* state = state_of(storage).get();
  if (entries_.size() <= kFewEntries) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].state == state) {
        return i;
      }
    }
  } else {
    for (size_t i = index_.size(); i < entries_.size(); ++i) {
      index_[entries_[i].state] = i;
    }
    auto found = index_.find(state);
    if (found != index_.end()) {
      return found->second;
    }
  }
  Entry& entry = entries_.emplace_back();
  entry.storage = storage.unsafeGetStorageImpl();
  entry.state = state;
  return entries_.size() - 1;
}

void HostAccess::add(const at::Tensor& tensor, bool write) {
  const size_t place = find(tensor.storage());
  Entry& entry = entries_[place];
  entry.write = entry.write || write;
  entry.writes_bytes = entry.writes_bytes || (write && tensor.scalar_type() != at::kBool);
  uses_.push_back({&tensor, place, write, {}});
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

void HostAccess::close() {
  c10::SmallVector<NodePtr, 4> last;  // freed without the lock
  for (Use& use : uses_) {
    Entry& entry = entries_[use.entry];
    if (can_be_kept(use.view, entry.memory)) {
      entry.kept = std::move(use.view);
    }
  }
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
    } else {
      std::swap(data.kept, entry.kept);
    }
    entry.leaf.reset();
  }
}

const at::Tensor& HostAccess::first_of(const Entry& entry) const {
  return *std::find_if(uses_.begin(), uses_.end(), [&](const Use& use) {
            return &entries_[use.entry] == &entry;
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
  bool opened = false;
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
  const at::Tensor& tensor = *use.tensor;
  Entry& entry = entries_[use.entry];
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

at::Tensor HostAccess::adopt(at::Tensor result, int device) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      result.layout() == c10::kStrided && result.device().is_cpu() && !result.is_quantized(),
      "the xla device has only strided tensors of plain dtypes, an operator returned one of "
      "layout ",
      result.layout(), " and dtype ", result.scalar_type(), " on ", result.device());
  auto wrap = [&](c10::Storage storage) {
    at::Tensor tensor = make_tensor(std::move(storage), result.scalar_type(), result.sizes(),
                                    result.strides(), result.storage_offset());
    tensor._set_conj(result.is_conj());
    tensor._set_neg(result.is_neg());
    return tensor;
  };
  const c10::StorageImpl* memory = result.storage().unsafeGetStorageImpl();
  for (const Entry& entry : entries_) {
    if (entry.memory == memory) {
      return wrap(storage_of(entry.storage));
    }
  }
  for (const Adopted& adopted : adopted_) {
    if (adopted.memory == memory) {
      return wrap(storage_of(adopted.storage));
    }
  }
  if (!is_ours_to_keep(result)) {
    return adopt(at::clone(result), device);
  }
  const size_t nbytes = memory->nbytes();
  DeviceDataPtr leaf = host_leaf(frame_of(result, nbytes), device, result.storage());
  DeviceData& data = *leaf;
  c10::Storage storage =
      make_storage(static_cast<int64_t>(nbytes), device, Value{std::move(leaf), 0});
  adopted_.push_back({memory, storage.unsafeGetStorageImpl()});
  at::Tensor tensor = wrap(std::move(storage));
  if (can_be_kept(result, memory)) {
    keep(data, std::move(result));
  }
  return tensor;
}

void HostAccess::update_written() {
  for (const Use& use : uses_) {
    if (use.write) {
      update(use);
    }
  }
}

void HostAccess::update(const Use& use) {
  const at::Tensor& tensor = *use.tensor;
  if (tensor.sizes() == use.view.sizes() && tensor.strides() == use.view.strides()) {
    return;
  }
  Entry& entry = entries_[use.entry];
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(use.view.sizes(), use.view.strides(),
                                                      use.view.storage_offset());
  const size_t nbytes = entry.memory->nbytes();
  if (nbytes == entry.storage->nbytes()) {
    return;
  }
  entry.storage->set_nbytes(nbytes);
  NodePtr leaf = host_leaf(frame_of(tensor, nbytes), entry.state->device, use.view.storage());
  TraceLock lock;
  entry.state->set_value({std::move(leaf), 0});
}

}  // namespace torch_xla::eager
