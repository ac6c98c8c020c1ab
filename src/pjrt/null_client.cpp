#include "pjrt/plugin_client.h"

namespace torch_xla::pjrt {

namespace {

class NullBuffer final : public Buffer {
 public:
  NullBuffer(TensorType type, int device) : type_(std::move(type)), device_(device) {
    bytes_.resize(static_cast<size_t>(type_.nbytes()));
    count_buffer(1, type_.nbytes());
  }
  ~NullBuffer() override { count_buffer(-1, -type_.nbytes()); }
  const TensorType& type() const override { return type_; }
  int device() const override { return device_; }
  int64_t nbytes() const override { return type_.nbytes(); }
  void await_ready() override {}
  bool is_ready() override { return true; }
  void copy_to_host(void* destination, size_t nbytes) override {
    std::memcpy(destination, bytes_.data(), nbytes);
  }
  void* host_pointer() override { return bytes_.data(); }
  BufferPtr copy_to_device(int device) override {
    auto copy = std::make_shared<NullBuffer>(type_, device);
    copy->bytes_ = bytes_;
    return copy;
  }
  bool is_deleted() override { return false; }
  std::string& bytes() { return bytes_; }

 private:
  TensorType type_;
  int device_;
  std::string bytes_;
};

class NullExecutable final : public Executable {
 public:
  explicit NullExecutable(std::vector<TensorType> types) : types_(std::move(types)) {}
  std::vector<BufferPtr> execute(const std::vector<Buffer*>&, const std::vector<bool>&,
                                 int device) override {
    std::vector<BufferPtr> outputs;
    for (const TensorType& type : types_) {
      outputs.push_back(std::make_shared<NullBuffer>(type, device));
    }
    return outputs;
  }
  const std::vector<TensorType>& output_types() const override { return types_; }
  std::string serialize() override { throw Error("the null client has no machine code"); }
  std::string optimized_hlo() override { return ""; }

 private:
  std::vector<TensorType> types_;
};

class NullClient final : public Client {
 public:
  const std::string& platform_name() const override { return name_; }
  const std::string& plugin_version() const override { return name_; }
  const std::string& fingerprint() const override { return name_; }
  int device_count() const override { return 1; }
  std::string device_description(int) const override { return "null device"; }
  bool host_memory() const override { return true; }
  bool has_ffi() const override { return true; }
  MemoryStats memory_stats(int) override { return {live_buffer_bytes(), 0, 0}; }
  BufferPtr buffer_from_host(const void* data, const TensorType& type, int device,
                             std::shared_ptr<void>) override {
    auto buffer = std::make_shared<NullBuffer>(type, device);
    if (data != nullptr) {
      buffer->bytes().assign(static_cast<const char*>(data), buffer->bytes().size());
    }
    return buffer;
  }
  ExecutablePtr compile(const std::string&, const CompileOptions&,
                        std::vector<TensorType> output_types) override {
    return std::make_shared<NullExecutable>(std::move(output_types));
  }
  ExecutablePtr deserialize(const std::string&, const CompileOptions&,
                            std::vector<TensorType>) override {
    throw Error("the null client has no machine code");
  }
  void register_ffi_handler(const std::string&, void*) override {}

 private:
  std::string name_ = "null";
};

}  // namespace

std::unique_ptr<Client> make_null_client() { return std::make_unique<NullClient>(); }

}  // namespace torch_xla::pjrt
