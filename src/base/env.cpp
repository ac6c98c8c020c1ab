#include "base/env.h"

#include "base/error.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <initializer_list>
#include <numeric>

namespace torch_xla::env {

namespace {

// An empty value means the default, as in a shell script that clears a variable.
const char* text_of(const Variable& variable) {
  const char* text = std::getenv(variable.name);
  return text == nullptr || *text == '\0' ? variable.fallback : text;
}

[[noreturn]] void refuse(const Variable& variable, const std::string& value,
                         const std::string& allowed) {
  throw Error(std::string("environment variable ") + variable.name + " has the value '" + value +
              "': it must be " + allowed);
}

constexpr int64_t kMostDevices = 128;  // PyTorch counts devices in 8 bits

int64_t read_integer(const Variable& variable) {
  const char* text = text_of(variable);
  const bool count = variable.type == Type::Count;
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < (count ? 1 : 0) ||
      (count && value > kMostDevices)) {
    refuse(variable, text,
           count ? "a whole number from 1 to " + std::to_string(kMostDevices)
                 : "a whole number of at least 0");
  }
  return value;
}

bool is_one_of(std::string_view value, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), value) != words.end();
}

bool read_flag(const Variable& variable) {
  const std::string_view value = text_of(variable);
  if (is_one_of(value, {"1", "true", "True", "yes", "on"})) {
    return true;
  }
  if (!is_one_of(value, {"0", "false", "False", "no", "off"})) {
    refuse(variable, std::string(value), "1, true, yes, on or 0, false, no, off");
  }
  return false;
}

std::string read_choice(const Variable& variable) {
  const std::string value = text_of(variable);
  const bool tiers = std::string_view(variable.name) == "TORCH_XLA_TIERS";
  if (tiers ? !is_one_of(value, {"counted", "async", "off", "never"})
            : !is_one_of(value, {"", "host", "pjrt"})) {
    refuse(variable, value, tiers ? "counted, async, off or never" : "host or pjrt");
  }
  return value;
}

void check(const Variable& variable) {
  switch (variable.type) {
    case Type::Flag:
      read_flag(variable);
      break;
    case Type::Integer:
    case Type::Count:
      read_integer(variable);
      break;
    case Type::Choice:
      read_choice(variable);
      break;
    case Type::String:
    case Type::Path:
      break;
  }
}

// Letters to change, add or leave out to get from one name to the other.
size_t distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

const Variable& nearest(std::string_view name) {
  return *std::min_element(std::begin(kVariables), std::end(kVariables),
                           [&](const Variable& x, const Variable& y) {
                             return distance(name, x.name) < distance(name, y.name);
                           });
}

}  // namespace

std::string string(Name<Type::String> name) { return text_of(*name); }

std::string path(Name<Type::Path> name) {
  const std::string text = text_of(*name);
  const char* home = std::getenv("HOME");
  const bool in_home = text == "~" || text.starts_with("~/");
  return in_home && home != nullptr ? home + text.substr(1) : text;
}

std::string choice(Name<Type::Choice> name) { return read_choice(*name); }

int64_t integer(Name<Type::Integer, Type::Count> name) { return read_integer(*name); }

bool flag(Name<Type::Flag> name) { return read_flag(*name); }

std::vector<std::string> problems() {
  std::vector<std::string> problems;
  for (const Variable& variable : kVariables) {
    try {
      check(variable);
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name =
        std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    const bool known = std::any_of(std::begin(kVariables), std::end(kVariables),
                                   [&](const Variable& variable) { return name == variable.name; });
    if (name.starts_with("TORCH_XLA_") && !known) {
      problems.push_back("environment variable " + std::string(name) +
                         " is not one of torch_xla and has no effect: did you mean " +
                         nearest(name).name + "? docs/environment.md lists all");
    }
  }
  return problems;
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
