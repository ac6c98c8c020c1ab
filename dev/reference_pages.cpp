// Writes docs/environment.md and docs/metrics.md from their tables. The argument is the folder.
#include "base/env.h"
#include "metrics/metrics.h"

#include <filesystem>
#include <fstream>
#include <iostream>

namespace {

bool write(const std::filesystem::path& path, const std::string& text) {
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
  if (argc != 2) {
    std::cerr << "usage: reference_pages FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const bool written = write(folder / "environment.md", torch_xla::env::markdown()) &&
                       write(folder / "metrics.md", torch_xla::metrics::markdown());
  return written ? 0 : 1;
}
