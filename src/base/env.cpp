#include "base/env.h"

#include "base/error.h"

#include <cerrno>
#include <cstdlib>

namespace torch_xla::env {

namespace {

// An empty value means the default, as in a shell script that clears a variable.
const char* text_of(const Variable& variable) {
  const char* text = std::getenv(variable.name);
  return text == nullptr || *text == '\0' ? variable.fallback : text;
}

[[noreturn]] void refuse(const Variable& variable, const std::string& value, const char* allowed) {
  throw Error(std::string("environment variable ") + variable.name + " has the value '" + value +
              "': it must be " + allowed);
}

}  // namespace

std::string string(Name<Type::String> name) { return text_of(*name); }

int64_t integer(Name<Type::Integer, Type::Count> name) {
  const char* text = text_of(*name);
  const int64_t least = name->type == Type::Count ? 1 : 0;
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < least) {
    refuse(*name, text,
           least == 1 ? "a whole number of at least 1" : "a whole number of at least 0");
  }
  return value;
}

bool flag(Name<Type::Flag> name) {
  const std::string_view value = text_of(*name);
  for (const char* yes : {"1", "true", "True", "yes", "on"}) {
    if (value == yes) {
      return true;
    }
  }
  for (const char* no : {"0", "false", "False", "no", "off"}) {
    if (value == no) {
      return false;
    }
  }
  refuse(*name, std::string(value), "1, true, yes, on or 0, false, no, off");
}

std::string markdown() {
  std::string text =
      "# Environment variables\n\nGenerated from `src/base/env.inc`. An empty value means the "
      "default; flags are `0` or `1`.\n\n| Variable | Default | Effect |\n|---|---|---|\n";
  for (const Variable& variable : kVariables) {
    std::string fallback =
        *variable.fallback == '\0' ? "" : std::string("`") + variable.fallback + "`";
    text += std::string("| `") + variable.name + "` | " + fallback + " | " + variable.description +
            " |\n";
  }
  return text;
}

}  // namespace torch_xla::env
