// A PJRT plugin behind plain C++: client, buffers, executables. Every C call is checked; failures
// throw torch_xla::Error naming the call, the plugin and what was being done. All classes are
// thread-safe unless said otherwise. Nothing here knows PyTorch.
#pragma once

#include "ir/types.h"
#include "sharding/sharding.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch_xla::pjrt {

struct CompileOptions {
  int64_t replicas = 1;
  int64_t partitions = 1;
  bool spmd = false;
  // Per result: the compiler may choose how it is sharded. Empty: replicated, or as annotated.
  std::vector<bool> free_outputs;
  std::map<std::string, std::string> xla_options;  // by the name of XLA's flag, without dashes
};

// A value on one device, or on all. Destroying it frees the memory once the device is done with it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual const TensorType& type() const = 0;
  // Null: on one device. Else it is a ShardedBuffer (pjrt/sharded_buffer.h), with a piece on each.
  virtual ShardingPtr sharding() const { return nullptr; }
  virtual int device() const = 0;  // index into Client's addressable devices
  // The number of its device among those of all processes.
  virtual int partition() const { return device(); }
  virtual int64_t nbytes() const = 0;

  // Blocks until the value is there; throws the error of the program that should have made it.
  virtual void await_ready() = 0;
  virtual bool is_ready() = 0;
  // Calls back once, from any thread or at once, when the value is there or has failed.
  virtual void on_ready(std::function<void()> callback) = 0;
  // Blocks; dense row-major bytes.
  virtual void copy_to_host(void* destination, size_t nbytes) = 0;
  // Address of the bytes where device memory is host memory, after awaiting them; else nullptr.
  virtual void* host_pointer() = 0;
  virtual std::shared_ptr<Buffer> copy_to_device(int device) = 0;
  // True once donated to a program: any further use throws.
  virtual bool is_deleted() = 0;
};
using BufferPtr = std::shared_ptr<Buffer>;

// The end of one run of a program.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual bool is_ready() = 0;
  virtual void await() = 0;  // blocks; throws the program's error
};
using CompletionPtr = std::shared_ptr<Completion>;

class Executable {
 public:
  virtual ~Executable() = default;
  // Launches on `device` (a partitioned program on all, its inputs sharded); returns at once with
  // buffers that become ready later. `donated[i]` says whether input i's buffer is given up to the
  // program (its aliases are in the program's text). `completion`, unless null, receives the run's
  // end, which outlives its buffers.
  virtual std::vector<BufferPtr> execute(const std::vector<Buffer*>& inputs,
                                         const std::vector<bool>& donated, int device,
                                         CompletionPtr* completion = nullptr) = 0;
  virtual const std::vector<TensorType>& output_types() const = 0;
  virtual std::string serialize() = 0;      // throws where the plugin cannot
  virtual std::string optimized_hlo() = 0;  // text
};
using ExecutablePtr = std::shared_ptr<Executable>;

// What a plugin records of its devices' work until it is stopped. Not thread-safe.
class Profile {
 public:
  virtual ~Profile() = default;
  virtual std::string stop() = 0;  // an XSpace, serialised
};

// Inside execute()? Plugins run short programs on the thread that launches them.
bool is_launching();

class Client {
 public:
  virtual ~Client() = default;
  virtual const std::string& platform_name() const = 0;  // "cpu", "cuda", "tpu", "null"
  virtual const std::string& plugin_version() const = 0;
  // Path of the plugin's library; empty if there is none.
  virtual const std::string& library() const = 0;
  // What machine code depends on besides the library: versions, on the CPU the processor's
  // features.
  virtual const std::string& fingerprint() const = 0;
  virtual int device_count() const = 0;  // addressable
  // Of all processes, numbered as partitions of a program are, and the number of one of ours.
  virtual int global_device_count() const { return device_count(); }
  virtual int partition_of(int device) const { return device; }
  virtual std::string device_description(int device) const = 0;
  virtual bool host_memory() const = 0;
  // Programs may call functions of this process, on memory it can read.
  virtual bool has_ffi() const = 0;
  struct MemoryStats {
    int64_t bytes_in_use = 0, bytes_limit = 0, peak_bytes = 0;
  };
  virtual MemoryStats memory_stats(int device) = 0;

  // Copies at once when `keep_alive` is null. Else the bytes may be used in place and are released
  // with `keep_alive` when the device no longer needs them; they must not change meanwhile.
  BufferPtr buffer_from_host(const void* data, const TensorType& type, int device,
                             std::shared_ptr<void> keep_alive) {
    return buffer_from_host(data, type, device, std::move(keep_alive), Bytes::Lent);
  }
  // Given ones nobody else uses: a program to which the buffer is donated may write over them.
  enum class Bytes { Lent, Given };
  virtual BufferPtr buffer_from_host(const void* data, const TensorType& type, int device,
                                     std::shared_ptr<void> keep_alive, Bytes bytes) = 0;
  // `num_outputs` types come from the program's text author.
  virtual ExecutablePtr compile(const std::string& stablehlo, const CompileOptions& options,
                                std::vector<TensorType> output_types) = 0;
  virtual ExecutablePtr deserialize(const std::string& bytes, const CompileOptions& options,
                                    std::vector<TensorType> output_types) = 0;
  // An XLA_FFI_Handler* (xla/ffi/api/c_api.h), called by custom calls of this name. Registered
  // before the first program that names it is compiled or loaded. Throws unless has_ffi().
  virtual void register_ffi_handler(const std::string& name, void* handler) = 0;
  // Null where the plugin records nothing.
  virtual std::unique_ptr<Profile> start_profile() { return nullptr; }
};

// The process's client. Starts it on first use: finds the plugin (docs/environment.md), loads it.
// Throws, with what to do, when there is none, when it fails, or in a forked child.
Client& client();
// Without starting anything.
bool client_started();
// Number of devices that users see, one in SPMD mode, without starting a CPU client (its number is
// known from the environment).
int device_count_hint();

// Blocks, but not for long, until no transfer from the host is under way.
void await_uploads();

// Buffers alive, of all clients; a donated one no longer counts.
int64_t live_buffer_count();
int64_t live_buffer_bytes();

}  // namespace torch_xla::pjrt
