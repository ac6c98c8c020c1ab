// Runs pending values: collects the graph, finds or compiles its program, launches it, and leaves
// Data leaves in the storages. Any thread; nothing here may be called with the trace lock or the
// GIL held.
#pragma once

#include "execution/launch.h"
#include "trace/tensor.h"

#include <functional>
#include <string>

namespace torch_xla {

// What the calling thread has recorded on `device`, and threads that have ended, and what that
// needs. Returns once launched; with `wait`, once computed. `name` is the graph's in explanations
// and errors; empty: named after the line.
void sync_device(int device, bool wait, const std::string& name = {});
void sync_each_device(bool wait, const std::string& name = {});
// The same as the user's own end of a step, which is counted.
void sync_all_devices(bool wait, const std::string& name = {});

// What these storages need, and whatever else of the calling thread's needs some of the same work.
void sync_storages(const std::vector<StatePtr>& states, const std::string& name = {});

// Operations that a sync of the device would run.
size_t pending_operation_count(int device);

// The same for what one operation of eager mode just recorded, as a program whose numbers are
// inputs, so that other numbers need no other program.
void run_eagerly(const std::vector<StatePtr>& states);

// A storage's value whose bytes are read: until this is gone no other thread has a program
// overwrite them.
class HeldData {
 public:
  explicit HeldData(DeviceDataPtr data) REQUIRES(trace_mutex);
  ~HeldData();
  HeldData(const HeldData&) = delete;
  HeldData& operator=(const HeldData&) = delete;

  const DeviceDataPtr& data() const { return data_; }
  DeviceData* operator->() const { return data_.get(); }

 private:
  const DeviceDataPtr data_;
};

// The storage's value, run if pending (not awaited).
HeldData materialize_data(const at::Tensor& tensor);
// Its buffer, awaited until launched (not until computed).
pjrt::BufferPtr materialize(const at::Tensor& tensor);

// Calls `read` with a CPU tensor of the same window, on the value's own memory where that is the
// host's: it keeps nothing of it. Blocks.
void read_on_host(const at::Tensor& tensor,
                  const std::function<void(const at::Tensor& window)>& read);

// A CPU tensor with the same sizes, strides and values. Blocks.
at::Tensor to_cpu(const at::Tensor& tensor);

// Is the tensor all of its storage, dense?
bool covers_storage(const at::Tensor& tensor);

// Makes the xla tensor's window hold a CPU tensor's values (converted and expanded to it).
void copy_from_cpu(const at::Tensor& destination, const at::Tensor& source);
// A CPU tensor as an xla tensor with the same sizes and strides.
at::Tensor upload(const at::Tensor& source, int device);

// The graph that a sync of these tensors would run, as text.
enum class GraphText { Ir, StableHlo, OptimizedHlo };
std::string pending_text(const std::vector<at::Tensor>& tensors, GraphText kind);
std::string pending_text(int device, GraphText kind);
// 16 bytes that are the same for graphs of the same operations and numbers.
std::string pending_hash(const std::vector<at::Tensor>& tensors);

enum class ValueState { Unwritten, Pending, There, Lost };  // Lost: donated, or never computed
ValueState value_state(const at::Tensor& tensor);

}  // namespace torch_xla
