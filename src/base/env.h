// Environment variables, declared once in env.inc. Values are read at each use; a value of the
// wrong form throws, naming variable and value. A name that env.inc lacks, or that is of another
// type, does not compile. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::env {

// A Count is an Integer of at least 1; of a Path, a leading ~ is the home directory.
enum class Type { String, Path, Choice, Integer, Count, Flag };

struct Variable {
  const char* name;
  Type type;
  const char* fallback;
  const char* description;
};

inline constexpr Variable kVariables[] = {
#define ENV(name, type, fallback, description) {#name, Type::type, fallback, description},
#include "base/env.inc"
#undef ENV
};

template <Type... types>
class Name {
 public:
  consteval Name(const char* name) : variable_(find(name)) {}
  const Variable& operator*() const { return *variable_; }
  const Variable* operator->() const { return variable_; }

 private:
  static constexpr const Variable* find(std::string_view name) {
    for (const Variable& variable : kVariables) {
      if (name == variable.name && ((variable.type == types) || ...)) {
        return &variable;
      }
    }
    throw "env.inc has no variable of this name and type";
  }
  const Variable* variable_;
};

std::string string(Name<Type::String> name);
std::string path(Name<Type::Path> name);
std::string choice(Name<Type::Choice> name);
int64_t integer(Name<Type::Integer, Type::Count> name);
bool flag(Name<Type::Flag> name);

// What is wrong with the environment, a sentence each: values of the wrong form, and names that
// begin as ours do but are none.
std::vector<std::string> problems();

// The table as a page for docs/environment.md.
std::string markdown();

}  // namespace torch_xla::env
