// Reads tensors from a file of the format "safetensors": the length of a JSON header (8 bytes, the
// lowest first), the header, which says where each tensor's bytes lie, and the bytes. Plain data.
#pragma once

#include "serve/json.h"
#include "torch_xla/serve.h"

#include <string>

namespace torch_xla::serve {

class Safetensors {
 public:
  // Reads the header; throws for what is no such file.
  explicit Safetensors(const std::string& path);

  // Throws unless the file has the tensor with this dtype and shape.
  Array load(const std::string& name, const Signature& signature) const;

 private:
  std::string path_;
  Json header_;
  uint64_t begin_ = 0;  // of the tensors' bytes
};

}  // namespace torch_xla::serve
