// The worker of serve.py: `serve FOLDER ROUNDS OUTPUT INPUT.npy...` runs an exported program again
// and again, prints how many milliseconds each run took from inputs to results in the host's
// memory, and writes the last results to OUTPUT/0.npy and so on.
#include <torch_xla/serve.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace serve = torch_xla::serve;

static void run(int rounds, const std::string& folder, const std::string& output, int count,
                char** paths) {
  const serve::Model model(folder);
  std::vector<serve::Array> inputs;
  for (int i = 0; i < count; ++i) {
    inputs.push_back(serve::load_npy(paths[i], model.inputs().at(i).dtype));
  }
  std::vector<serve::Array> results;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    results = model.run(inputs);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    std::printf("%.6f\n", taken.count());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    serve::save_npy(results[i], output + "/" + std::to_string(i) + ".npy");
  }
}

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "serve FOLDER ROUNDS OUTPUT INPUT.npy...\n");
    return 2;
  }
  try {
    run(std::atoi(argv[2]), argv[1], argv[3], argc - 4, argv + 4);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
