#include "interpret/overwritten.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

namespace torch_xla {

bool Overwritten::is_of(const at::Tensor& value) const {
  if (memories_.empty() || !value.defined()) {
    return false;
  }
  const c10::StorageImpl* memory = value.storage().unsafeGetStorageImpl();
  return std::find(memories_.begin(), memories_.end(), memory) != memories_.end();
}

bool Overwritten::has_room(size_t more, size_t nbytes) const {
  constexpr size_t kMost = 256;
  return parts_.size() < kMost && 2 * (bytes_ + more) <= nbytes;
}

void Overwritten::add(const at::Tensor& written, size_t bytes, Restore restore) {
  c10::StorageImpl* memory = written.storage().unsafeGetStorageImpl();
  if (!is_of(written)) {
    memories_.push_back(memory);
  }
  parts_.push_back({memory, at::empty({0}, written.options()), written.sizes().vec(),
                    written.strides().vec(), written.storage_offset(), std::move(restore)});
  bytes_ += bytes;
}

bool Overwritten::keep(const at::Tensor& window, size_t nbytes) {
  if (!has_room(window.nbytes(), nbytes) ||
      at::has_internal_overlap(window) != at::MemOverlap::No) {
    return false;
  }
  add(window, window.nbytes(),
      [before = window.clone()](at::Tensor& there) { there.copy_(before); });
  return true;
}

// An index that comes twice has the same value before, twice.
bool Overwritten::keep(const std::string& op, const torch::jit::Stack& arguments, size_t nbytes) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!has_room(0, nbytes)) {
    return false;
  }
  at::Tensor before;
  Restore restore;
  try {
    if (op == "aten::index_put") {
      const auto indices = arguments[1].to<c10::List<std::optional<at::Tensor>>>();
      before = at::index(self, indices);
      restore = [indices, before](at::Tensor& there) { there.index_put_(indices, before); };
    } else {
      const int64_t dim = arguments[1].toInt();
      const at::Tensor index = arguments[2].toTensor();
      if (op.starts_with("aten::index_")) {
        before = at::index_select(self, dim, index);
        restore = [=](at::Tensor& there) { there.index_copy_(dim, index, before); };
      } else {
        before = at::gather(self, dim, index);
        restore = [=](at::Tensor& there) { there.scatter_(dim, index, before); };
      }
    }
  } catch (const c10::Error&) {
    return false;  // the operator itself says it better
  }
  if (!has_room(before.nbytes(), nbytes)) {
    return false;
  }
  add(self, before.nbytes(), std::move(restore));
  return true;
}

void Overwritten::undo() {
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    at::Tensor& there = part->like;
    there.set_(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(part->memory)),
               part->offset, part->sizes, part->strides);
    part->restore(there);
  }
  clear();
}

void Overwritten::clear() {
  parts_.clear();
  memories_.clear();
  bytes_ = 0;
}

}  // namespace torch_xla
