#include "base/error.h"
#include "base/mutex.h"
#include "pjrt/client.h"
#include "program/memory_cache.h"
#include "program/memory_limit.h"
#include "program/program.h"
#include "serve/dtypes.h"
#include "serve/json.h"
#include "serve/safetensors.h"
#include "serve/sizes.h"
#include "torch_xla/serve.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

namespace torch_xla::serve {

namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    throw Error("cannot read " + path.string());
  }
  return text.str();
}

Signature signature_of(const Json& described) {
  Signature result{described.at("dtype").string(), {}};
  for (const Json& size : described.at("shape").array()) {
    result.shape.push_back(size.integer());
  }
  return result;
}

TensorType type_of(const Signature& signature) {
  return {dtype_named(signature.dtype), Dims(signature.shape)};
}

std::string text_of(const Signature& signature) {
  std::string text = signature.dtype + "[";
  for (size_t i = 0; i < signature.shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(signature.shape[i]);
  }
  return text + "]";
}

// Stays where it was read: the device may use the host's bytes in place.
pjrt::BufferPtr to_device(Array array) {
  auto kept = std::make_shared<Array>(std::move(array));
  return pjrt::client().buffer_from_host(kept->bytes.data(), type_of(kept->type), 0, kept);
}

Json read_meta(const fs::path& folder, const std::string& function) {
  const fs::path path = folder / "functions" / (function + ".meta");
  if (!fs::is_regular_file(path)) {
    throw Error(folder.string() + " has no function '" + function +
                "': save_as_stablehlo writes functions/forward.meta");
  }
  return Json::parse(read_file(path));
}

std::string read_program(const fs::path& folder, const std::string& function, bool dynamic) {
  const fs::path stem = folder / "functions" / function;
  if (dynamic) {
    return read_file(stem.string() + ".template");
  }
  const fs::path text = stem.string() + ".mlir";  // plugins read both
  return read_file(fs::is_regular_file(text) ? text : fs::path(stem.string() + ".bytecode"));
}

ProgramPtr compile(const std::string& function, std::string text,
                   const std::vector<Signature>& outputs) {
  ProgramSource source;
  source.name = function;
  source.text = std::move(text);
  source.text_with_locations = source.text;
  for (const Signature& output : outputs) {
    source.output_types.push_back(type_of(output));
  }
  return load_or_compile(std::move(source));
}

// What users see of a signature: -1 for dynamic sizes.
Signature shown(Signature signature, const Json& described) {
  if (const Json* dims = described.find("dynamic_dims")) {
    for (const Json& dim : dims->array()) {
      signature.shape.at(dim.integer()) = -1;
    }
  }
  return signature;
}

}  // namespace

struct Model::State {
  // The program for some sizes, and what it takes and gives; the parameters that users do not give,
  // too, and what becomes of those that it changes.
  struct Sized {
    ProgramPtr program;
    std::vector<Signature> parameters, results;
  };
  using SizedPtr = std::shared_ptr<const Sized>;

  std::string function, text;
  std::optional<Sizes> sizes;              // if any are dynamic
  std::vector<Signature> inputs, outputs;  // as users see them
  std::shared_ptr<Sized> example =
      std::make_shared<Sized>();         // without a program where sizes are dynamic
  std::vector<pjrt::BufferPtr> weights;  // of each parameter of the program; null: an input
  std::vector<size_t> parameter_of;      // of each input
  // Parameters that a run replaces by what it returns after its outputs. Then runs take turns.
  std::vector<size_t> changed;
  Mutex turn;
  MemoryLimit limit;
  MemoryCache<std::string, const Sized> programs{[this] { return limit.most(programs.size()); }};

  // Throw if it does not take these.
  SizedPtr sized(const std::vector<Array>& given);
  void check(const std::vector<Array>& given, const Sized& program) const;
  SizedPtr made(const std::vector<Array>& given, const Symbols& symbols) const;
};

void Model::State::check(const std::vector<Array>& given, const Sized& program) const {
  for (size_t i = 0; i < given.size(); ++i) {
    const Signature& wanted = program.parameters[parameter_of[i]];
    const int64_t bytes = type_of(wanted).nbytes();
    if (given[i].type != wanted || given[i].bytes.size() != static_cast<size_t>(bytes)) {
      throw Error("input " + std::to_string(i) + " must be " + text_of(wanted) + " in " +
                  std::to_string(bytes) + " bytes, and is " + text_of(given[i].type) + " in " +
                  std::to_string(given[i].bytes.size()));
    }
  }
}

// Compiled by the first run with these sizes, while others go on; those used last are kept.
Model::State::SizedPtr Model::State::sized(const std::vector<Array>& given) {
  SizedPtr found = example;
  if (sizes) {
    std::vector<Shape> shapes(example->parameters.size());
    for (size_t i = 0; i < given.size(); ++i) {
      shapes[parameter_of[i]] = given[i].type.shape;
    }
    const Symbols symbols = sizes->symbols(shapes);
    std::string key;
    for (const auto& [symbol, value] : symbols) {
      key += std::to_string(value) + " ";
    }
    found = programs.find_or_build(key, [&] { return made(given, symbols); });
  }
  check(given, *found);
  return found;
}

Model::State::SizedPtr Model::State::made(const std::vector<Array>& given,
                                          const Symbols& symbols) const {
  auto result = std::make_shared<Sized>(*example);
  const std::vector<Shape> parameters = sizes->parameters(symbols);
  for (size_t i = 0; i < parameters.size(); ++i) {
    result->parameters.at(i).shape = parameters[i];
  }
  check(given, *result);
  const std::vector<Shape> results = sizes->results(symbols);
  for (size_t i = 0; i < results.size(); ++i) {
    result->results.at(i).shape = results[i];
  }
  result->program = compile(function, specialised(text, symbols), result->results);
  return result;
}

Model::Model(const std::string& folder, const std::string& function)
    : state_(std::make_unique<State>()) {
  const fs::path root = folder;
  const Json meta = read_meta(root, function);
  const Json::Array& signatures = meta.at("input_signature").array();
  const Json::Array& locations = meta.at("input_locations").array();
  if (signatures.size() != locations.size()) {
    throw Error(folder + ": the function " + function + " does not say where its inputs come from");
  }
  const fs::path weights = root / "weights.safetensors";
  std::optional<Safetensors> tensors;  // else each is a file of its own
  if (fs::exists(weights)) {
    tensors.emplace(weights.string());
  }
  std::map<int64_t, size_t> arguments;  // by their position
  std::map<std::string, size_t> buffers;
  for (size_t i = 0; i < signatures.size(); ++i) {
    const std::string& kind = locations[i].at("type_").string();
    const Signature signature = signature_of(signatures[i]);
    state_->example->parameters.push_back(signature);
    if (kind == "input_arg") {
      arguments[locations[i].at("position").integer()] = i;
      state_->weights.push_back(nullptr);
      continue;
    }
    if (kind == "constant") {
      const std::string number = std::to_string(locations[i].at("position").integer());
      state_->weights.push_back(
          to_device(load_npy((root / "constants" / number).string(), signature.dtype)));
      continue;
    }
    const std::string& name = locations[i].at("name").string();
    state_->weights.push_back(
        to_device(tensors ? tensors->load(name, signature)
                          : load_npy((root / "data" / name).string(), signature.dtype)));
    buffers[name] = i;
  }
  for (const auto& [position, parameter] : arguments) {
    state_->inputs.push_back(shown(state_->example->parameters[parameter], signatures[parameter]));
    state_->parameter_of.push_back(parameter);
  }
  for (const Json& output : meta.at("output_signature").array()) {
    state_->example->results.push_back(signature_of(output));
    state_->outputs.push_back(shown(state_->example->results.back(), output));
  }
  if (const Json* changed = meta.find("changed_buffers")) {
    for (const Json& name : changed->array()) {
      state_->changed.push_back(buffers.at(name.string()));
    }
  }
  state_->outputs.resize(state_->outputs.size() - state_->changed.size());
  state_->function = function;
  const Json* sizes = meta.find("dynamic_sizes");
  state_->text = read_program(root, function, sizes != nullptr);
  if (sizes != nullptr) {
    state_->sizes.emplace(*sizes);
  } else {
    state_->example->program = compile(function, std::move(state_->text), state_->example->results);
  }
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const std::vector<Signature>& Model::inputs() const { return state_->inputs; }
const std::vector<Signature>& Model::outputs() const { return state_->outputs; }

std::vector<Array> Model::run(const std::vector<Array>& inputs) const {
  if (inputs.size() != state_->inputs.size()) {
    throw Error("the program takes " + std::to_string(state_->inputs.size()) +
                " inputs, and was given " + std::to_string(inputs.size()));
  }
  std::optional<MutexLock> turn;
  if (!state_->changed.empty()) {
    turn.emplace(state_->turn);
  }
  const State::SizedPtr sized = state_->sized(inputs);
  std::vector<pjrt::BufferPtr> given = state_->weights;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType type = type_of(inputs[i].type);
    given[state_->parameter_of[i]] =
        pjrt::client().buffer_from_host(inputs[i].bytes.data(), type, 0, nullptr);
  }
  std::vector<pjrt::Buffer*> parameters;
  for (const pjrt::BufferPtr& buffer : given) {
    parameters.push_back(buffer.get());
  }
  const std::vector<bool> donated(parameters.size(), false);
  std::vector<pjrt::BufferPtr> results =
      sized->program->executable().execute(parameters, donated, 0);
  for (size_t i = 0; i < state_->changed.size(); ++i) {
    state_->weights[state_->changed[i]] = results[state_->outputs.size() + i];
  }
  std::vector<Array> outputs;
  for (size_t i = 0; i < state_->outputs.size(); ++i) {
    Array array{sized->results[i], {}};
    array.bytes.resize(static_cast<size_t>(results[i]->nbytes()));
    results[i]->copy_to_host(array.bytes.data(), array.bytes.size());
    outputs.push_back(std::move(array));
  }
  return outputs;
}

}  // namespace torch_xla::serve
