// serve FOLDER OUTPUT INPUT.npy...: runs a program that save_as_stablehlo wrote, on arrays of
// NumPy's, and writes its results to OUTPUT/0.npy and so on. With THREADS=n, n threads run it, and
// must get the same results.
#include <torch_xla/serve.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace serve = torch_xla::serve;

static std::vector<serve::Array> read_inputs(const serve::Model& model, int count, char** paths) {
  std::vector<serve::Array> inputs;
  for (int i = 0; i < count; ++i) {
    const bool known = static_cast<size_t>(i) < model.inputs().size();
    inputs.push_back(serve::load_npy(paths[i], known ? model.inputs()[i].dtype : ""));
  }
  return inputs;
}

static void run(const std::string& folder, const std::string& output, int count, char** paths) {
  const serve::Model model(folder);
  const std::vector<serve::Array> inputs = read_inputs(model, count, paths);
  const char* threads = std::getenv("THREADS");
  std::vector<std::future<std::vector<serve::Array>>> others;
  for (int i = 0; threads != nullptr && i < std::atoi(threads); ++i) {
    others.push_back(std::async(std::launch::async, [&] { return model.run(inputs); }));
  }
  const std::vector<serve::Array> results = model.run(inputs);
  for (auto& other : others) {
    const std::vector<serve::Array> same = other.get();
    for (size_t i = 0; i < results.size(); ++i) {
      if (same.at(i).bytes != results[i].bytes) {
        throw std::runtime_error("a thread got another result");
      }
    }
  }
  std::filesystem::create_directories(output);
  for (size_t i = 0; i < results.size(); ++i) {
    serve::save_npy(results[i], output + "/" + std::to_string(i) + ".npy");
    std::cout << "output " << i << ": " << results[i].type.dtype << ", " << results[i].bytes.size()
              << " bytes\n";
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "serve FOLDER OUTPUT INPUT.npy...\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argc - 3, argv + 3);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
