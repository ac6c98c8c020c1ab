// Environment variables, declared once in env.inc. Values are read at each use; a value of the
// wrong form throws, naming variable and value. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace torch_xla::env {

std::string string(const char* name);
int64_t integer(const char* name);
bool flag(const char* name);

// The table as a page for docs/environment.md.
std::string markdown();

}  // namespace torch_xla::env
