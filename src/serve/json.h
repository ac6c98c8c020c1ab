// Reads JSON: what describes an exported function. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace torch_xla::serve {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  // Throws, saying where, unless `text` is one value.
  static Json parse(std::string_view text);

  // Each throws where the value is of another kind.
  const std::string& string() const;
  int64_t integer() const;
  const Array& array() const;
  const Object& object() const;
  const Json& at(std::string_view key) const;    // of an object that has it
  const Json* find(std::string_view key) const;  // null if it has not

  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

 private:
  friend class JsonReader;
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value_;
};

}  // namespace torch_xla::serve
