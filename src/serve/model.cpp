#include "base/error.h"
#include "base/mutex.h"
#include "pjrt/client.h"
#include "program/program.h"
#include "serve/dtypes.h"
#include "serve/json.h"
#include "torch_xla/serve.h"

#include <filesystem>
#include <fstream>
#include <map>
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

ProgramPtr compile(const fs::path& folder, const std::string& function,
                   const std::vector<Signature>& outputs) {
  const fs::path stem = folder / "functions" / function;
  fs::path program = stem.string() + ".mlir";
  if (!fs::is_regular_file(program)) {
    program = stem.string() + ".bytecode";  // plugins read both
  }
  ProgramSource source;
  source.name = function;
  source.text = read_file(program);
  source.text_with_locations = source.text;
  for (const Signature& output : outputs) {
    source.output_types.push_back(type_of(output));
  }
  return load_or_compile(std::move(source));
}

}  // namespace

struct Model::State {
  ProgramPtr program;
  std::vector<Signature> inputs, outputs;
  std::vector<pjrt::BufferPtr> weights;  // of each parameter of the program; null: an input
  std::vector<size_t> parameter_of;      // of each input
  // Parameters that a run replaces by what it returns after its outputs. Then runs take turns.
  std::vector<size_t> changed;
  Mutex turn;
};

Model::Model(const std::string& folder, const std::string& function)
    : state_(std::make_unique<State>()) {
  const fs::path root = folder;
  const Json meta = read_meta(root, function);
  const Json::Array& signatures = meta.at("input_signature").array();
  const Json::Array& locations = meta.at("input_locations").array();
  if (signatures.size() != locations.size()) {
    throw Error(folder + ": the function " + function + " does not say where its inputs come from");
  }
  std::map<int64_t, size_t> arguments;  // by their position
  std::map<std::string, size_t> buffers;
  for (size_t i = 0; i < signatures.size(); ++i) {
    const std::string& kind = locations[i].at("type_").string();
    const Signature signature = signature_of(signatures[i]);
    if (kind == "input_arg") {
      arguments[locations[i].at("position").integer()] = i;
      state_->weights.push_back(nullptr);
      continue;
    }
    const fs::path file =
        kind == "parameter"
            ? root / "data" / locations[i].at("name").string()
            : root / "constants" / std::to_string(locations[i].at("position").integer());
    state_->weights.push_back(to_device(load_npy(file.string(), signature.dtype)));
    if (kind == "parameter") {
      buffers[locations[i].at("name").string()] = i;
    }
  }
  for (const auto& [position, parameter] : arguments) {
    state_->inputs.push_back(signature_of(signatures[parameter]));
    state_->parameter_of.push_back(parameter);
  }
  for (const Json& output : meta.at("output_signature").array()) {
    state_->outputs.push_back(signature_of(output));
  }
  state_->program = compile(root, function, state_->outputs);
  if (const Json* changed = meta.find("changed_buffers")) {
    for (const Json& name : changed->array()) {
      state_->changed.push_back(buffers.at(name.string()));
    }
  }
  state_->outputs.resize(state_->outputs.size() - state_->changed.size());
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
  std::vector<pjrt::BufferPtr> given = state_->weights;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Signature& wanted = state_->inputs[i];
    const TensorType type = type_of(wanted);
    if (inputs[i].type != wanted || inputs[i].bytes.size() != static_cast<size_t>(type.nbytes())) {
      throw Error("input " + std::to_string(i) + " must be " + text_of(wanted) + " in " +
                  std::to_string(type.nbytes()) + " bytes, and is " + text_of(inputs[i].type) +
                  " in " + std::to_string(inputs[i].bytes.size()));
    }
    given[state_->parameter_of[i]] =
        pjrt::client().buffer_from_host(inputs[i].bytes.data(), type, 0, nullptr);
  }
  std::vector<pjrt::Buffer*> parameters;
  for (const pjrt::BufferPtr& buffer : given) {
    parameters.push_back(buffer.get());
  }
  const std::vector<bool> donated(parameters.size(), false);
  std::vector<pjrt::BufferPtr> results =
      state_->program->executable().execute(parameters, donated, 0);
  for (size_t i = 0; i < state_->changed.size(); ++i) {
    state_->weights[state_->changed[i]] = results[state_->outputs.size() + i];
  }
  std::vector<Array> outputs;
  for (size_t i = 0; i < state_->outputs.size(); ++i) {
    Array array{state_->outputs[i], {}};
    array.bytes.resize(static_cast<size_t>(results[i]->nbytes()));
    results[i]->copy_to_host(array.bytes.data(), array.bytes.size());
    outputs.push_back(std::move(array));
  }
  return outputs;
}

}  // namespace torch_xla::serve
