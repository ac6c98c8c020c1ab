// Writes docs/environment.md and docs/metrics.md from the tables they document, or with --check
// only compares: reference_pages [--check] FOLDER.
#include "base/env.h"
#include "metrics/metrics.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace {

namespace fs = std::filesystem;

bool page_is_current(const fs::path& path, const std::string& text) {
  std::ostringstream present;
  present << std::ifstream(path).rdbuf();
  if (present.str() != text) {
    std::cerr << path << " is out of date: run `make docs`\n";
  }
  return present.str() == text;
}

bool write_page(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) {
    std::cerr << "cannot write " << path << "\n";
  }
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string(argv[1]) == "--check";
  if (argc != 2 && !check) {
    std::cerr << "usage: reference_pages [--check] FOLDER\n";
    return 2;
  }
  const fs::path folder = argv[argc - 1];
  const auto handle = check ? page_is_current : write_page;
  const bool environment = handle(folder / "environment.md", torch_xla::env::markdown());
  const bool metrics = handle(folder / "metrics.md", torch_xla::metrics::markdown());
  return environment && metrics ? 0 : 1;
}
