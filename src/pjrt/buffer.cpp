#include "pjrt/plugin_client.h"

namespace torch_xla::pjrt {

namespace {
std::atomic<int64_t> live_buffers{0};
std::atomic<int64_t> live_bytes{0};
}  // namespace

int64_t live_buffer_count() { return live_buffers; }
int64_t live_buffer_bytes() { return live_bytes; }

void count_buffer(int64_t buffers, int64_t bytes) {
  live_buffers.fetch_add(buffers, std::memory_order_relaxed);
  live_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

PluginBuffer::PluginBuffer(PluginClient& client, PJRT_Buffer* buffer, TensorType type, int device)
    : client_(client),
      buffer_(buffer),
      type_(std::move(type)),
      nbytes_(type_.nbytes()),
      device_(device) {
  count_buffer(1, nbytes_);
}

PluginBuffer::~PluginBuffer() {
  auto args = PJRT_ARGS(PJRT_Buffer_Destroy);
  args.buffer = buffer_;
  // A destructor has nobody to report to; the plugin frees the memory when the device is done.
  if (PJRT_Error* error = client_.api()->PJRT_Buffer_Destroy(&args)) {
    auto destroy = PJRT_ARGS(PJRT_Error_Destroy);
    destroy.error = error;
    client_.api()->PJRT_Error_Destroy(&destroy);
  }
  count_buffer(-1, -nbytes_);
}

void PluginBuffer::require_alive() const {
  if (deleted_.load(std::memory_order_relaxed)) {
    throw Error("this buffer was donated to a program that has run: its value is gone");
  }
}

void PluginBuffer::await_ready() {
  if (ready_.load(std::memory_order_acquire)) {
    return;
  }
  require_alive();
  auto args = PJRT_ARGS(PJRT_Buffer_ReadyEvent);
  args.buffer = buffer_;
  PJRT_CALL(client_.api(), PJRT_Buffer_ReadyEvent, args);
  await_event(client_.api(), args.event, "PJRT_Buffer_ReadyEvent");
  ready_.store(true, std::memory_order_release);
}

bool PluginBuffer::is_ready() {
  if (ready_.load(std::memory_order_acquire)) {
    return true;
  }
  require_alive();
  auto args = PJRT_ARGS(PJRT_Buffer_ReadyEvent);
  args.buffer = buffer_;
  PJRT_CALL(client_.api(), PJRT_Buffer_ReadyEvent, args);
  auto query = PJRT_ARGS(PJRT_Event_IsReady);
  query.event = args.event;
  PJRT_CALL(client_.api(), PJRT_Event_IsReady, query);
  auto destroy = PJRT_ARGS(PJRT_Event_Destroy);
  destroy.event = args.event;
  PJRT_CALL(client_.api(), PJRT_Event_Destroy, destroy);
  return query.is_ready;
}

void PluginBuffer::copy_to_host(void* destination, size_t nbytes) {
  await_ready();
  if (nbytes == 0) {
    return;
  }
  std::vector<int64_t> minor_to_major;
  for (size_t i = type_.dims.size(); i-- > 0;) {
    minor_to_major.push_back(static_cast<int64_t>(i));
  }
  PJRT_Buffer_MemoryLayout layout;
  std::memset(&layout, 0, sizeof(layout));
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = PJRT_ARGS(PJRT_Buffer_ToHostBuffer);
  args.src = buffer_;
  args.host_layout = &layout;
  args.dst = destination;
  args.dst_size = nbytes;
  PJRT_CALL(client_.api(), PJRT_Buffer_ToHostBuffer, args);
  await_event(client_.api(), args.event, "PJRT_Buffer_ToHostBuffer");
}

void* PluginBuffer::host_pointer() {
  await_ready();
  require_alive();
  if (!client_.host_memory()) {
    return nullptr;
  }
  auto args = PJRT_ARGS(PJRT_Buffer_UnsafePointer);
  args.buffer = buffer_;
  PJRT_CALL(client_.api(), PJRT_Buffer_UnsafePointer, args);
  return reinterpret_cast<void*>(args.buffer_pointer);
}

BufferPtr PluginBuffer::copy_to_device(int device) {
  require_alive();
  auto args = PJRT_ARGS(PJRT_Buffer_CopyToDevice);
  args.buffer = buffer_;
  args.dst_device = client_.device(device);
  PJRT_CALL(client_.api(), PJRT_Buffer_CopyToDevice, args);
  return std::make_shared<PluginBuffer>(client_, args.dst_buffer, type_, device);
}

}  // namespace torch_xla::pjrt
