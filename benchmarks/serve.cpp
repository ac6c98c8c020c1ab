// The worker of serve.py: `serve FOLDER OUTPUT INPUT.npy...` runs an exported program once for each
// line it reads, prints how many milliseconds of time and of processors that took from inputs to
// results in the host's memory, and writes the last results to OUTPUT/0.npy and so on.
#include <torch_xla/serve.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace serve = torch_xla::serve;

static void run(const std::string& folder, const std::string& output, int count, char** paths) {
  const serve::Model model(folder);
  std::vector<serve::Array> inputs;
  for (int i = 0; i < count; ++i) {
    inputs.push_back(serve::load_npy(paths[i], model.inputs().at(i).dtype));
  }
  std::vector<serve::Array> results;
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t worked = std::clock();
    results = model.run(inputs);
    const double work = static_cast<double>(std::clock() - worked) * 1e3 / CLOCKS_PER_SEC;
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    std::printf("%.6f %.6f\n", taken.count(), work);
    std::fflush(stdout);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    serve::save_npy(results[i], output + "/" + std::to_string(i) + ".npy");
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "serve FOLDER OUTPUT INPUT.npy...\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argc - 3, argv + 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
