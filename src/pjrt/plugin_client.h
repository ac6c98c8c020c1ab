// The Client of a loaded plugin, and its buffers and executables. Internal to pjrt/. Thread-safe.
#pragma once

#include "pjrt/api.h"
#include "pjrt/client.h"
#include "pjrt/live_buffers.h"

#include <atomic>
#include <deque>

namespace torch_xla::pjrt {

class PluginClient;

class PluginBuffer final : public Buffer {
 public:
  // Takes over `buffer`.
  PluginBuffer(PluginClient& client, PJRT_Buffer* buffer, const TensorType& type, int device);
  ~PluginBuffer() override;
  const TensorType& type() const override { return type_; }
  int device() const override { return device_; }
  int partition() const override;
  int64_t nbytes() const override { return nbytes_; }
  void await_ready() override;
  bool is_ready() override;
  void on_ready(std::function<void()> callback) override;
  void copy_to_host(void* destination, size_t nbytes) override;
  void* host_pointer() override;
  BufferPtr copy_to_device(int device) override;
  bool is_deleted() override { return deleted_.load(std::memory_order_acquire); }

  PJRT_Buffer* raw() const { return buffer_; }
  void mark_deleted();
  // After a launch that failed: did the plugin take the buffer nevertheless?
  void mark_deleted_if_taken();

 private:
  void require_alive() const;
  PJRT_Event* ready_event() const;
  void read(void* destination, size_t nbytes);

  PluginClient& client_;
  PJRT_Buffer* buffer_;
  TensorType type_;
  int64_t nbytes_;  // of the value's type
  bool narrowed_;   // the device keeps the value without doubles (pjrt/doubles.h)
  int device_;
  std::atomic<bool> deleted_{false};
  std::atomic<bool> ready_{false};
};

class PluginExecutable final : public Executable {
 public:
  // Takes over `executable`.
  PluginExecutable(PluginClient& client, PJRT_LoadedExecutable* executable,
                   const CompileOptions& options, std::vector<TensorType> output_types);
  ~PluginExecutable() override;
  std::vector<BufferPtr> execute(const std::vector<Buffer*>& inputs,
                                 const std::vector<bool>& donated, int device,
                                 CompletionPtr* completion) override;
  const std::vector<TensorType>& output_types() const override { return output_types_; }
  std::string serialize() override;
  std::string optimized_hlo() override;
  PJRT_LoadedExecutable* raw() const { return loaded_; }
  PJRT_Executable* description() const { return executable_; }
  const Api& api() const;

 private:
  void check_output_count();
  int64_t ask_for_temporaries();
  void release() noexcept;
  // The optimised program: its format, "hlo", "hlo_with_config" or another, and its bytes.
  std::pair<std::string, std::string> optimized_program();
  std::vector<BufferPtr> wrap(const std::vector<PJRT_Buffer*>& raw, int device);

  PluginClient& client_;
  PJRT_LoadedExecutable* loaded_;
  PJRT_Executable* executable_ = nullptr;
  std::vector<TensorType> output_types_;
  // Of a partitioned program: per result its sharding and the type of its pieces.
  bool partitioned_;
  std::vector<ShardingPtr> output_shardings_;
  std::vector<TensorType> piece_types_;
  int64_t temporaries_ = 0;  // bytes, where the plugin does not count itself
};

class PluginClient final : public Client {
 public:
  PluginClient(Api api, const std::string& device_type);

  const std::string& platform_name() const override { return platform_name_; }
  const std::string& plugin_version() const override { return plugin_version_; }
  const std::string& library() const override { return api_.plugin(); }
  const std::string& fingerprint() const override { return fingerprint_; }
  int device_count() const override { return static_cast<int>(devices_.size()); }
  int global_device_count() const override { return global_devices_; }
  int partition_of(int device) const override {
    return partitions_.at(static_cast<size_t>(device));
  }
  std::string device_description(int device) const override;
  bool host_memory() const override { return platform_name_ == "cpu"; }
  bool has_ffi() const override;
  MemoryStats memory_stats(int device) override;
  BufferPtr buffer_from_host(const void* data, const TensorType& type, int device,
                             std::shared_ptr<void> keep_alive, Bytes bytes) override;
  ExecutablePtr compile(const std::string& stablehlo, const CompileOptions& options,
                        std::vector<TensorType> output_types) override;
  ExecutablePtr deserialize(const std::string& bytes, const CompileOptions& options,
                            std::vector<TensorType> output_types) override;
  void register_ffi_handler(const std::string& name, void* handler) override;
  std::unique_ptr<Profile> start_profile() override;

  const Api& api() const { return api_; }
  PJRT_Device* device(int index) const;

 private:
  void create(const std::string& device_type);
  void number_devices();
  std::string describe_version() const;
  bool takes_doubles();

  Api api_;
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Device*> devices_;
  std::vector<int> partitions_;  // parallel to devices_
  int global_devices_ = 0;
  std::string platform_name_, plugin_version_, fingerprint_;
};

// Loads the library at `path` and starts its client. `device_type`: PJRT_DEVICE's value.
std::unique_ptr<Client> start_plugin_client(const std::string& path,
                                            const std::string& device_type);

}  // namespace torch_xla::pjrt
