#include "base/error.h"
#include "serve/dtypes.h"
#include "torch_xla/serve.h"

#include <charconv>
#include <cstring>
#include <fstream>
#include <regex>

namespace torch_xla::serve {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error("cannot read " + path + " as an array of NumPy's: " + why);
}

std::string read_header(std::ifstream& file, const std::string& path) {
  char begin[8] = {};
  file.read(begin, sizeof(begin));
  if (!file || std::string_view(begin, kMagic.size()) != kMagic) {
    fail(path, "it does not begin as one");
  }
  const int major = begin[6];
  unsigned char size[4] = {};
  file.read(reinterpret_cast<char*>(size), major == 1 ? 2 : 4);
  std::string header(size[0] + 256u * size[1] + 65536u * size[2], '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  if (!file) {
    fail(path, "its header ends early");
  }
  return header;
}

std::string field(const std::string& header, const std::string& pattern, const std::string& path) {
  std::smatch found;
  if (!std::regex_search(header, found, std::regex(pattern))) {
    fail(path, "its header is " + header);
  }
  return found[1];
}

std::vector<int64_t> integers(const std::string& text) {
  std::vector<int64_t> result;
  const std::regex number("[0-9]+");
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it) {
    result.push_back(std::stoll(it->str()));
  }
  return result;
}

}  // namespace

Array load_npy(const std::string& path, const std::string& dtype) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail(path, "it cannot be opened");
  }
  const std::string header = read_header(file, path);
  const std::string stored = dtype_of_npy(field(header, "'descr': *'([^']*)'", path));
  if (field(header, "'fortran_order': *(\\w+)", path) != "False") {
    fail(path, "its columns come first: numpy.ascontiguousarray changes that");
  }
  Array array;
  array.type.shape = integers(field(header, "'shape': *\\(([^)]*)\\)", path));
  array.type.dtype = dtype.empty() ? stored : dtype;
  if (npy_of_dtype(array.type.dtype) != npy_of_dtype(stored)) {
    fail(path, "it holds " + stored + ", and " + dtype + " is needed");
  }
  const TensorType type{dtype_named(array.type.dtype), Dims(array.type.shape)};
  array.bytes.resize(static_cast<size_t>(type.nbytes()));
  file.read(reinterpret_cast<char*>(array.bytes.data()), type.nbytes());
  if (!file) {
    fail(path, "it ends early");
  }
  return array;
}

void save_npy(const Array& array, const std::string& path) {
  std::string shape;
  for (int64_t size : array.type.shape) {
    shape += std::to_string(size) + ",";
  }
  std::string header = "{'descr': '" + npy_of_dtype(array.type.dtype) +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr size_t kAlignment = 64;
  const size_t begun = kMagic.size() + 4 + header.size() + 1;
  header += std::string((kAlignment - begun % kAlignment) % kAlignment, ' ') + "\n";
  const char version_and_size[] = {1, 0, static_cast<char>(header.size() % 256),
                                   static_cast<char>(header.size() / 256)};
  std::ofstream file(path, std::ios::binary);
  file << kMagic;
  file.write(version_and_size, sizeof(version_and_size));
  file << header;
  file.write(reinterpret_cast<const char*>(array.bytes.data()),
             static_cast<std::streamsize>(array.bytes.size()));
  file.flush();
  if (!file) {
    throw Error("cannot write " + path);
  }
}

}  // namespace torch_xla::serve
