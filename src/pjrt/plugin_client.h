// The Client of a loaded plugin, and its buffers and executables. Internal to pjrt/.
#pragma once

#include "pjrt/api.h"
#include "pjrt/client.h"
#include "pjrt/plugin.h"

#include <atomic>

namespace torch_xla::pjrt {

class PluginClient;

class PluginBuffer final : public Buffer {
 public:
  PluginBuffer(PluginClient& client, PJRT_Buffer* buffer, TensorType type, int device);
  ~PluginBuffer() override;
  const TensorType& type() const override { return type_; }
  int device() const override { return device_; }
  int64_t nbytes() const override { return nbytes_; }
  void await_ready() override;
  bool is_ready() override;
  void copy_to_host(void* destination, size_t nbytes) override;
  void* host_pointer() override;
  BufferPtr copy_to_device(int device) override;
  bool is_deleted() override { return deleted_.load(std::memory_order_relaxed); }

  PJRT_Buffer* raw() const { return buffer_; }
  void mark_deleted() { deleted_.store(true, std::memory_order_relaxed); }

 private:
  void require_alive() const;
  PluginClient& client_;
  PJRT_Buffer* buffer_;
  TensorType type_;
  int64_t nbytes_;
  int device_;
  std::atomic<bool> deleted_{false};
  std::atomic<bool> ready_{false};
};

class PluginExecutable final : public Executable {
 public:
  PluginExecutable(PluginClient& client, PJRT_LoadedExecutable* executable,
                   std::vector<TensorType> output_types);
  ~PluginExecutable() override;
  std::vector<BufferPtr> execute(const std::vector<Buffer*>& inputs,
                                 const std::vector<bool>& donated, int device) override;
  const std::vector<TensorType>& output_types() const override { return output_types_; }
  std::string serialize() override;
  std::string optimized_hlo() override;

 private:
  PluginClient& client_;
  PJRT_LoadedExecutable* loaded_;
  PJRT_Executable* executable_;
  std::vector<TensorType> output_types_;
};

class PluginClient final : public Client {
 public:
  PluginClient(Plugin plugin, const std::string& device_type);

  const std::string& platform_name() const override { return platform_name_; }
  const std::string& plugin_version() const override { return plugin_version_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  int device_count() const override { return static_cast<int>(devices_.size()); }
  std::string device_description(int device) const override;
  bool host_memory() const override { return platform_name_ == "cpu"; }
  bool has_ffi() const override;
  MemoryStats memory_stats(int device) override;
  BufferPtr buffer_from_host(const void* data, const TensorType& type, int device,
                             std::shared_ptr<void> keep_alive) override;
  ExecutablePtr compile(const std::string& stablehlo, const CompileOptions& options,
                        std::vector<TensorType> output_types) override;
  ExecutablePtr deserialize(const std::string& bytes, const CompileOptions& options,
                            std::vector<TensorType> output_types) override;
  void register_ffi_handler(const std::string& name, void* handler) override;

  const PJRT_Api* api() const { return plugin_.api; }
  PJRT_Device* device(int index) const;

 private:
  const PJRT_Extension_Base* find_extension(int type) const;

  Plugin plugin_;
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Device*> devices_;
  std::string platform_name_, plugin_version_, fingerprint_;
};

// A client that computes nothing: programs yield zeros. For tests of recording.
std::unique_ptr<Client> make_null_client();

void count_buffer(int64_t buffers, int64_t bytes);

}  // namespace torch_xla::pjrt
