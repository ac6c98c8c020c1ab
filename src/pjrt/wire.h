// Reading and writing of protobuf's wire format, for the few messages we exchange with plugins.
// Views borrow from the text they were made of. Stateless.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::pjrt::wire {

enum class Kind { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

inline void write_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

inline void write_integer(std::string& out, int field, int64_t value) {
  write_varint(out, static_cast<uint64_t>(field) << 3);
  write_varint(out, static_cast<uint64_t>(value));
}

inline void write_bytes(std::string& out, int field, std::string_view bytes) {
  write_varint(out, (static_cast<uint64_t>(field) << 3) | static_cast<uint64_t>(Kind::Bytes));
  write_varint(out, bytes.size());
  out += bytes;
}

struct Field {
  int number = 0;
  Kind kind = Kind::Varint;
  uint64_t integer = 0;    // Varint, Fixed32, Fixed64
  std::string_view bytes;  // Bytes
};

// Walks over a message: `for (Reader r(bytes); r.next(field);)`.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool next(Field& field) {
    if (rest_.empty()) {
      return false;
    }
    uint64_t key = varint();
    field = {static_cast<int>(key >> 3), static_cast<Kind>(key & 7), 0, {}};
    switch (field.kind) {
      case Kind::Varint:
        field.integer = varint();
        break;
      case Kind::Fixed64:
        std::memcpy(&field.integer, take(8).data(), 8);
        break;
      case Kind::Fixed32:
        std::memcpy(&field.integer, take(4).data(), 4);
        break;
      case Kind::Bytes:
        field.bytes = take(varint());
        break;
      default:
        throw Error("a damaged message: unknown wire type");
    }
    return true;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    throw Error("a damaged message: endless number");
  }

  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) {
      throw Error("a damaged message: it ends early");
    }
    std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string_view rest_;
};

// The integers of a repeated field, packed or not: call it for each such field.
inline void append_integers(const Field& field, std::vector<int64_t>& out) {
  if (field.kind != Kind::Bytes) {
    out.push_back(static_cast<int64_t>(field.integer));
    return;
  }
  for (Reader reader(field.bytes); !reader.at_end();) {
    out.push_back(static_cast<int64_t>(reader.varint()));
  }
}

}  // namespace torch_xla::pjrt::wire
