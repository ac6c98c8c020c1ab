// What was in parts of memory that somebody else holds still, before they were written to: where
// something fails later it is put back. Of one thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <string>
#include <vector>

namespace torch_xla {

class Overwritten {
 public:
  bool is_empty() const { return parts_.empty(); }

  // Whether parts of the value's memory are among them.
  bool is_of(const at::Tensor& value) const;

  // Keeps what is in a window, or where an operator that writes at indices would write: false if
  // that is as much work as to copy `nbytes`, the memory that it is of, or cannot be done. Takes no
  // reference to the memory: these are counted.
  bool keep(const at::Tensor& window, size_t nbytes);
  bool keep(const std::string& op, const torch::jit::Stack& arguments, size_t nbytes);

  void undo();
  void clear();

 private:
  using Restore = std::function<void(at::Tensor&)>;
  struct Part {
    c10::StorageImpl* memory;
    at::Tensor like;  // of size 0
    std::vector<int64_t> sizes, strides;
    int64_t offset;
    Restore restore;
  };
  bool has_room(size_t more, size_t nbytes) const;
  void add(const at::Tensor& written, size_t bytes, Restore restore);

  std::vector<Part> parts_;
  std::vector<const c10::StorageImpl*> memories_;
  size_t bytes_ = 0;
};

}  // namespace torch_xla
