// Runs programs that torch_xla.stablehlo exported (save_as_stablehlo), without Python and without
// PyTorch: link TorchXLA::serve. Devices and the cache of programs are chosen as in Python, by
// PJRT_DEVICE and docs/environment.md. All of it is thread-safe; failures throw std::runtime_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#define TORCH_XLA_SERVE __attribute__((visibility("default")))

namespace torch_xla::serve {

// What an input or output is: a dense array of a dtype by PyTorch's name ("float32", "bfloat16").
struct Signature {
  std::string dtype;
  std::vector<int64_t> shape;
  bool operator==(const Signature& other) const = default;
};

// A value in the host's memory, row-major.
struct Array {
  Signature type;
  std::vector<std::byte> bytes;

  // The elements, which must be of the type's size.
  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

// Arrays in NumPy's format. bfloat16 and float8 are read and written as their bits, as NumPy has no
// names for them: `dtype` says what they are; else it may be empty.
TORCH_XLA_SERVE Array load_npy(const std::string& path, const std::string& dtype = "");
TORCH_XLA_SERVE void save_npy(const Array& array, const std::string& path);

// A function of an exported folder, compiled (or taken from the cache), its weights on the device.
// One with dynamic sizes is compiled by the first run with these sizes; TORCH_XLA_MEMORY_PROGRAMS
// says how many sizes, those used last, are kept.
class TORCH_XLA_SERVE Model {
 public:
  explicit Model(const std::string& folder, const std::string& function = "forward");
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  // The tensors among the arguments, those in lists and dicts one by one, and those of the result.
  // Dynamic sizes are -1.
  const std::vector<Signature>& inputs() const;
  const std::vector<Signature>& outputs() const;

  // Blocks. Several threads may call it at once; where the program changes buffers (a cache), which
  // the model keeps from run to run, they take turns.
  std::vector<Array> run(const std::vector<Array>& inputs) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torch_xla::serve
