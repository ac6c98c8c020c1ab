#include "pjrt/null_client.h"

#include "base/error.h"
#include "base/pool.h"
#include "pjrt/live_buffers.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

namespace torch_xla::pjrt {

namespace {

class NullClient;

class NullBuffer final : public Buffer {
 public:
  NullBuffer(NullClient& client, TensorType type, int device);
  ~NullBuffer() override {
    give_up();
    std::free(bytes_);
  }
  const TensorType& type() const override { return type_; }
  int device() const override { return device_; }
  int64_t nbytes() const override { return nbytes_; }
  void await_ready() override { require_alive(); }
  bool is_ready() override {
    require_alive();
    return true;
  }
  void on_ready(std::function<void()> callback) override { callback(); }
  void copy_to_host(void* destination, size_t nbytes) override {
    require_alive();
    if (nbytes > 0) {
      std::memcpy(destination, bytes(), nbytes);
    }
  }
  void* host_pointer() override {
    require_alive();
    return bytes();
  }
  BufferPtr copy_to_device(int device) override {
    auto copy = make_pooled<NullBuffer>(client_, type_, device);
    copy_to_host(copy->bytes(), static_cast<size_t>(nbytes_));
    return copy;
  }
  bool is_deleted() override { return deleted_.load(std::memory_order_relaxed); }
  void give_up() {
    if (!deleted_.exchange(true)) {
      memory_.remove(nbytes_);
    }
  }

 private:
  void require_alive() {
    if (is_deleted()) {
      throw Error("this buffer was donated to a program that has run: its value is gone");
    }
  }
  // Zeros, made when somebody looks: a step must cost nothing but its host's time.
  void* bytes() {
    std::call_once(made_, [&] {
      bytes_ = std::calloc(1, static_cast<size_t>(nbytes_ > 0 ? nbytes_ : 1));
      if (bytes_ == nullptr) {
        throw OutOfMemoryError("out of memory allocating " + std::to_string(nbytes_) + " bytes");
      }
    });
    return bytes_;
  }
  NullClient& client_;
  DeviceMemory& memory_;
  TensorType type_;
  int64_t nbytes_;
  int device_;
  std::once_flag made_;
  void* bytes_ = nullptr;
  std::atomic<bool> deleted_{false};
};

class NullExecutable final : public Executable {
 public:
  NullExecutable(NullClient& client, std::vector<TensorType> types)
      : client_(client), types_(std::move(types)) {}
  std::vector<BufferPtr> execute(const std::vector<Buffer*>& inputs,
                                 const std::vector<bool>& donated, int device,
                                 CompletionPtr* completion) override {
    for (Buffer* input : inputs) {
      input->await_ready();
    }
    std::vector<BufferPtr> outputs;
    outputs.reserve(types_.size());
    for (const TensorType& type : types_) {
      outputs.push_back(make_pooled<NullBuffer>(client_, type, device));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (donated[i]) {
        static_cast<NullBuffer*>(inputs[i])->give_up();
      }
    }
    if (completion != nullptr) {
      *completion = nullptr;  // it is over
    }
    return outputs;
  }
  const std::vector<TensorType>& output_types() const override { return types_; }
  std::string serialize() override { throw Error("the null client has no machine code"); }
  std::string optimized_hlo() override { return ""; }

 private:
  NullClient& client_;
  std::vector<TensorType> types_;
};

class NullClient final : public Client {
 public:
  explicit NullClient(int device_count) : device_count_(device_count) {}
  const std::string& platform_name() const override { return name_; }
  const std::string& plugin_version() const override { return name_; }
  const std::string& library() const override { return library_; }
  const std::string& fingerprint() const override { return name_; }
  int device_count() const override { return device_count_; }
  std::string device_description(int device) const override {
    return "null device " + std::to_string(device);
  }
  bool host_memory() const override { return true; }
  bool has_ffi() const override { return true; }
  MemoryStats memory_stats(int device) override {
    return {memory(device).in_use(), host_memory_bytes(), memory(device).peak()};
  }
  BufferPtr buffer_from_host(const void* data, const TensorType& type, int device,
                             std::shared_ptr<void>, Bytes) override {
    auto buffer = make_pooled<NullBuffer>(*this, type, device);
    if (data != nullptr && buffer->nbytes() > 0) {
      std::memcpy(buffer->host_pointer(), data, static_cast<size_t>(buffer->nbytes()));
    }
    return buffer;
  }
  ExecutablePtr compile(const std::string&, const CompileOptions& options,
                        std::vector<TensorType> output_types) override {
    if (options.partitions > 1) {
      throw Error("PJRT_DEVICE=NULL runs no programs over several devices");
    }
    return std::make_shared<NullExecutable>(*this, std::move(output_types));
  }
  ExecutablePtr deserialize(const std::string&, const CompileOptions&,
                            std::vector<TensorType>) override {
    throw Error("the null client has no machine code");
  }
  void register_ffi_handler(const std::string&, void*) override {}

  DeviceMemory& memory(int device) {
    if (device < 0 || device >= device_count()) {
      throw Error("xla:" + std::to_string(device) + " does not exist: there are " +
                  std::to_string(device_count()) + " devices");
    }
    return device_memory(device);
  }

 private:
  std::string name_ = "null", library_;
  const int device_count_;
};

NullBuffer::NullBuffer(NullClient& client, TensorType type, int device)
    : client_(client),
      memory_(client.memory(device)),
      type_(std::move(type)),
      nbytes_(type_.nbytes()),
      device_(device) {
  memory_.add(nbytes_);
}

}  // namespace

std::unique_ptr<Client> make_null_client(int device_count) {
  return std::make_unique<NullClient>(device_count);
}

}  // namespace torch_xla::pjrt
