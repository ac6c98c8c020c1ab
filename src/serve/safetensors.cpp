#include "serve/safetensors.h"

#include "base/error.h"
#include "serve/dtypes.h"

#include <algorithm>
#include <bit>
#include <fstream>

namespace torch_xla::serve {

namespace {

[[noreturn]] void no_safetensors(const std::string& path, const std::string& why) {
  throw Error("cannot read " + path + " as safetensors: " + why);
}

}  // namespace

Safetensors::Safetensors(const std::string& path) : path_(path) {
  static_assert(std::endian::native == std::endian::little, "the lowest byte comes first");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    no_safetensors(path, "it cannot be opened");
  }
  const auto size = static_cast<uint64_t>(file.tellg());
  uint64_t length = 0;
  file.seekg(0).read(reinterpret_cast<char*>(&length), sizeof(length));
  if (!file || length > size - sizeof(length)) {
    no_safetensors(path, "it ends within its header");
  }
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  header_ = Json::parse(header);
  begin_ = sizeof(length) + length;
}

Array Safetensors::load(const std::string& name, const Signature& signature) const {
  const Json* found = header_.find(name);
  if (found == nullptr) {
    no_safetensors(path_, "it has no tensor '" + name + "'");
  }
  const std::string& dtype = found->at("dtype").string();
  const Json::Array& sizes = found->at("shape").array();
  if (dtype != safetensors_of_dtype(signature.dtype) ||
      !std::equal(sizes.begin(), sizes.end(), signature.shape.begin(), signature.shape.end(),
                  [](const Json& size, int64_t wanted) { return size.integer() == wanted; })) {
    no_safetensors(path_, "its tensor '" + name + "' of " + dtype +
                              " is not the program's, which is of " + signature.dtype +
                              " and may have another shape");
  }
  const Json::Array& offsets = found->at("data_offsets").array();
  const TensorType type{dtype_named(signature.dtype), Dims(signature.shape)};
  if (offsets.size() != 2 || offsets[1].integer() - offsets[0].integer() != type.nbytes()) {
    no_safetensors(path_, "its tensor '" + name + "' has not as many bytes as its shape says");
  }
  Array array{signature, std::vector<std::byte>(static_cast<size_t>(type.nbytes()))};
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(begin_) + offsets[0].integer());
  file.read(reinterpret_cast<char*>(array.bytes.data()), type.nbytes());
  if (!file) {
    no_safetensors(path_, "it ends within its tensor '" + name + "'");
  }
  return array;
}

}  // namespace torch_xla::serve
