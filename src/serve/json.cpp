#include "serve/json.h"

#include "base/error.h"

#include <charconv>

namespace torch_xla::serve {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json document() {
    Json result = value();
    skip_spaces();
    if (at_ != text_.size()) {
      fail("the end");
    }
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error("not JSON: " + expected + " is expected at character " + std::to_string(at_));
  }

  void skip_spaces() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
      ++at_;
    }
  }

  bool take(char c) {
    skip_spaces();
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there ? 1 : 0;
    return there;
  }

  void need(char c) {
    if (!take(c)) {
      fail(std::string("'") + c + "'");
    }
  }

  bool take_word(std::string_view word) {
    const bool there = text_.substr(at_).starts_with(word);
    at_ += there ? word.size() : 0;
    return there;
  }

  Json value() {
    skip_spaces();
    Json result;
    if (at_ < text_.size() && text_[at_] == '"') {
      result.value_ = string();
    } else if (take('[')) {
      result.value_ = array();
    } else if (take('{')) {
      result.value_ = object();
    } else if (take_word("true")) {
      result.value_ = true;
    } else if (take_word("false")) {
      result.value_ = false;
    } else if (take_word("null")) {
      result.value_ = nullptr;
    } else {
      result.value_ = number();
    }
    return result;
  }

  // To the end of a list or an object.
  template <typename Item>
  void items(char end, const Item& item) {
    if (take(end)) {
      return;
    }
    do {
      item();
    } while (take(','));
    need(end);
  }

  Json::Array array() {
    Json::Array result;
    items(']', [&] { result.push_back(value()); });
    return result;
  }

  Json::Object object() {
    Json::Object result;
    items('}', [&] {
      skip_spaces();
      std::string key = string();
      need(':');
      result.insert_or_assign(std::move(key), value());
    });
    return result;
  }

  double number() {
    double result = 0;
    const char* begin = text_.data() + at_;
    auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), result);
    if (error != std::errc()) {
      fail("a value");
    }
    at_ += static_cast<size_t>(end - begin);
    return result;
  }

  std::string string() {
    need('"');
    std::string result;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c != '\\') {
        result += c;
      } else if (at_ < text_.size()) {
        escaped(text_[at_++], result);
      }
    }
    need('"');
    return result;
  }

  void escaped(char c, std::string& result) {
    static constexpr std::string_view kNames = "bfnrt";
    static constexpr std::string_view kMeant = "\b\f\n\r\t";
    if (c == 'u') {
      unsigned code = code_unit();
      if (code >= 0xD800 && code < 0xDC00 && take_word("\\u")) {  // the first of a pair
        code = 0x10000 + ((code - 0xD800) << 10) + (code_unit() - 0xDC00);
      }
      append_utf8(code, result);
    } else {
      const size_t which = kNames.find(c);
      result += which == std::string_view::npos ? c : kMeant[which];
    }
  }

  unsigned code_unit() {
    unsigned code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || end != digits.data() + 4) {
      fail("four hexadecimal digits");
    }
    at_ += 4;
    return code;
  }

  static void append_utf8(unsigned code, std::string& result) {
    if (code < 0x80) {
      result += static_cast<char>(code);
      return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    const unsigned lead[] = {0, 0xC0, 0xE0, 0xF0};
    result += static_cast<char>(lead[more] | (code >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) {
      result += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

namespace {

template <typename T, typename Value>
const T& get(const Value& value, const char* kind) {
  if (const T* found = std::get_if<T>(&value)) {
    return *found;
  }
  throw Error(std::string("JSON: ") + kind + " is expected, and something else is there");
}

}  // namespace

Json Json::parse(std::string_view text) { return JsonReader(text).document(); }

const std::string& Json::string() const { return get<std::string>(value_, "a string"); }

int64_t Json::integer() const { return static_cast<int64_t>(get<double>(value_, "a number")); }

const Json::Array& Json::array() const { return get<Array>(value_, "a list"); }

const Json::Object& Json::object() const { return get<Object>(value_, "an object"); }

const Json* Json::find(std::string_view key) const {
  auto found = object().find(key);
  return found == object().end() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* found = find(key)) {
    return *found;
  }
  throw Error("JSON: there is no \"" + std::string(key) + "\"");
}

}  // namespace torch_xla::serve
