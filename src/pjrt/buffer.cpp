#include "pjrt/doubles.h"
#include "pjrt/plugin_client.h"

#include <algorithm>

namespace torch_xla::pjrt {

PluginBuffer::PluginBuffer(PluginClient& client, PJRT_Buffer* buffer, const TensorType& type,
                           int device)
    : client_(client),
      buffer_(buffer),
      type_(type),
      nbytes_(type.nbytes()),
      narrowed_(!has_doubles() && without_doubles(type.dtype) != type.dtype),
      device_(device) {
  device_memory(device_).add(nbytes_);
}

int PluginBuffer::partition() const { return client_.partition_of(device_); }

PluginBuffer::~PluginBuffer() {
  mark_deleted();
  if (in_forked_child) {
    return;  // the parent's
  }
  auto args = PJRT_ARGS(PJRT_Buffer_Destroy);
  args.buffer = buffer_;
  // A destructor has nobody to report to; the plugin frees the memory when the device is done.
  client_.api().discard(client_.api().table().PJRT_Buffer_Destroy(&args));
}

void PluginBuffer::mark_deleted() {
  if (!deleted_.exchange(true, std::memory_order_acq_rel)) {
    device_memory(device_).remove(nbytes_);
  }
}

void PluginBuffer::mark_deleted_if_taken() {
  auto args = PJRT_ARGS(PJRT_Buffer_IsDeleted);
  args.buffer = buffer_;
  PJRT_CALL(client_.api(), PJRT_Buffer_IsDeleted, args);
  if (args.is_deleted) {
    mark_deleted();
  }
}

void PluginBuffer::require_alive() const {
  if (deleted_.load(std::memory_order_acquire)) {
    throw Error("this buffer was donated to a program that has run: its value is gone");
  }
}

PJRT_Event* PluginBuffer::ready_event() const {
  require_alive();
  auto args = PJRT_ARGS(PJRT_Buffer_ReadyEvent);
  args.buffer = buffer_;
  PJRT_CALL(client_.api(), PJRT_Buffer_ReadyEvent, args);
  return args.event;
}

void PluginBuffer::await_ready() {
  if (!ready_.load(std::memory_order_acquire)) {
    await_or_interrupt(std::make_shared<Event>(client_.api(), ready_event()));
    ready_.store(true, std::memory_order_release);
  }
}

bool PluginBuffer::is_ready() {
  return ready_.load(std::memory_order_acquire) || Event(client_.api(), ready_event()).is_ready();
}

void PluginBuffer::on_ready(std::function<void()> callback) {
  pjrt::on_ready(std::make_shared<Event>(client_.api(), ready_event()), std::move(callback));
}

void PluginBuffer::copy_to_host(void* destination, size_t nbytes) {
  if (nbytes != static_cast<size_t>(nbytes_)) {
    throw Error("a buffer of " + std::to_string(nbytes_) + " bytes cannot be copied to " +
                std::to_string(nbytes) + " bytes of host memory");
  }
  await_ready();
  require_alive();
  if (nbytes == 0) {
    return;
  }
  if (const void* bytes = host_pointer()) {
    std::memcpy(destination, bytes, nbytes);
    return;
  }
  if (!narrowed_) {
    read(destination, nbytes);
    return;
  }
  std::vector<float> floats(nbytes / sizeof(double));
  read(floats.data(), floats.size() * sizeof(float));
  std::copy(floats.begin(), floats.end(), static_cast<double*>(destination));
}

void PluginBuffer::read(void* destination, size_t nbytes) {
  Dims minor_to_major;
  for (size_t i = type_.dims.size(); i-- > 0;) {
    minor_to_major.push_back(static_cast<int64_t>(i));
  }
  auto layout = make_args<PJRT_Buffer_MemoryLayout>(PJRT_Buffer_MemoryLayout_STRUCT_SIZE);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = PJRT_ARGS(PJRT_Buffer_ToHostBuffer);
  args.src = buffer_;
  args.host_layout = &layout;
  args.dst = destination;
  args.dst_size = nbytes;
  PJRT_CALL(client_.api(), PJRT_Buffer_ToHostBuffer, args, "reading a buffer");
  Event(client_.api(), args.event).await("reading a buffer");
}

void* PluginBuffer::host_pointer() {
  if (!client_.host_memory()) {
    return nullptr;
  }
  await_ready();
  require_alive();
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
  PJRT_CALL(client_.api(), PJRT_Buffer_CopyToDevice, args, "copying a buffer to another device");
  return std::make_shared<PluginBuffer>(client_, args.dst_buffer, type_, device);
}

}  // namespace torch_xla::pjrt
