#include "base/env.h"

#include "base/error.h"

#include <cstdlib>
#include <cstring>

namespace torch_xla::env {

namespace {

enum class Type { String, Integer, Flag };

struct Variable {
  const char* name;
  Type type;
  const char* fallback;
  const char* description;
};

constexpr Variable kVariables[] = {
#define ENV(name, type, fallback, description) {#name, Type::type, fallback, description},
#include "base/env.inc"
#undef ENV
};

const Variable& find(const char* name) {
  for (const Variable& variable : kVariables) {
    if (std::strcmp(variable.name, name) == 0) {
      return variable;
    }
  }
  throw Error(std::string("environment variable ") + name + " is not declared in env.inc");
}

[[noreturn]] void refuse(const char* name, const std::string& value, const char* wanted) {
  throw Error(std::string("environment variable ") + name + "=" + value + " is not " + wanted);
}

}  // namespace

std::string string(const char* name) {
  const Variable& variable = find(name);
  const char* value = std::getenv(name);
  return value == nullptr ? variable.fallback : value;
}

int64_t integer(const char* name) {
  const Variable& variable = find(name);
  const char* text = std::getenv(name);
  if (text == nullptr) {
    return std::strtoll(variable.fallback, nullptr, 10);
  }
  char* end = nullptr;
  int64_t value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || value < 0) {
    refuse(name, text, "a whole number of at least 0");
  }
  return value;
}

bool flag(const char* name) {
  std::string value = string(name);
  for (const char* yes : {"1", "true", "True", "yes", "on"}) {
    if (value == yes) {
      return true;
    }
  }
  for (const char* no : {"", "0", "false", "False", "no", "off"}) {
    if (value == no) {
      return false;
    }
  }
  refuse(name, value, "one of 0, 1, true, false");
}

std::string markdown() {
  std::string text =
      "# Environment variables\n\nGenerated from `src/base/env.inc` by `dev/gen_docs`.\n\n"
      "| Variable | Default | Effect |\n|---|---|---|\n";
  for (const Variable& variable : kVariables) {
    text += std::string("| `") + variable.name + "` | `" + variable.fallback + "` | " +
            variable.description + " |\n";
  }
  return text;
}

}  // namespace torch_xla::env
