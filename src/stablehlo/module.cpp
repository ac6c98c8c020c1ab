// Functions, regions and the text itself. Every line ends with a mark naming its location, and
// names of functions stand between marks; render() turns marks into text or drops them.
#include "base/error.h"
#include "stablehlo/builder.h"
#include "stablehlo/fragment.h"
#include "stablehlo/text.h"

#include <algorithm>

namespace torch_xla::stablehlo {

namespace {

constexpr char kLocation = '\x01';  // then a number, to the line's end
constexpr char kName = '\x02';      // on either side of a private function's name
constexpr char kMarks[] = "\x01\x02";

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

std::string marked(const std::string& function) { return kName + function + kName; }

// "@name", in quotes where it has characters that names have only in quotes.
std::string symbol(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$';
  });
  const bool begins =
      !name.empty() && (std::isalpha(static_cast<unsigned char>(name[0])) != 0 || name[0] == '_');
  return "@" + (plain && begins ? std::string(name) : in_quotes(name));
}

std::string sharding_attribute(const std::string& sharding) {
  return "mhlo.sharding = " + in_quotes(sharding);
}

}  // namespace

std::string type_list(const std::vector<TensorType>& types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    text += (i > 0 ? ", " : "") + type_string(types[i]);
  }
  return text;
}

std::string function_type(const std::vector<TensorType>& arguments,
                          const std::vector<TensorType>& results) {
  const std::string returned = type_list(results);
  return "(" + type_list(arguments) + ") -> " +
         (results.size() == 1 ? returned : "(" + returned + ")");
}

std::vector<TensorType> types_of(const Vals& values) {
  std::vector<TensorType> types;
  for (const Val& value : values) {
    types.push_back(value.type());
  }
  return types;
}

Builder::Builder(std::string module_name) : module_name_(std::move(module_name)) {
  for (char& c : module_name_) {
    if (!std::isalnum(static_cast<unsigned char>(c))) {
      c = '_';
    }
  }
}

Val Builder::make(const TensorType& type) {
  types_.push_back(type);
  return Val(open().next_id++, &types_.back());
}

Val Builder::make_argument(const TensorType& type) {
  types_.push_back(type);
  return Val(open().next_argument--, &types_.back());
}

Vals Builder::make_arguments(const std::vector<TensorType>& types) {
  Vals values;
  for (const TensorType& type : types) {
    values.push_back(make_argument(type));
  }
  return values;
}

std::string Builder::name_list(const Vals& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) {
      throw Error("an operand of a StableHLO operation was never computed");
    }
    const int32_t id = values[i].id_;
    text += i > 0 ? ", " : "";
    text += id < 0 ? "%arg" + std::to_string(-1 - id) : "%" + std::to_string(id);
  }
  return text;
}

std::string Builder::argument_list(const Vals& values) {
  std::string text;
  for (const Val& value : values) {
    text += (text.empty() ? "" : ", ") + name_list({value}) + ": " + type_string(value.type());
  }
  return text;
}

void Builder::append_line(const std::string& line) {
  std::string& body = open().body;
  body.append(static_cast<size_t>(open().indent) * 2, ' ');
  body += line;
  body += kLocation;
  body += std::to_string(location_);
  body += '\n';
}

Vals Builder::append(const std::string& operation, const std::vector<TensorType>& results) {
  Vals values;
  for (const TensorType& type : results) {
    values.push_back(make(type));
  }
  append_line((values.empty() ? "" : name_list(values) + " = ") + operation);
  return values;
}

Vals Builder::emit_many(std::string_view op, const Vals& operands,
                        const std::vector<TensorType>& results, const std::string& details) {
  return append("stablehlo." + std::string(op) + " " + name_list(operands) +
                    (details.empty() ? "" : ", " + details) + " : " +
                    function_type(types_of(operands), results),
                results);
}

Val Builder::emit(std::string_view op, const Vals& operands, const TensorType& result,
                  const std::string& details) {
  return emit_many(op, operands, {result}, details)[0];
}

Val Builder::emit_like(std::string_view op, const Vals& operands, const TensorType& result,
                       const std::string& details) {
  for (const Val& operand : operands) {
    if (operand.type() != result) {
      return emit(op, operands, result, details);
    }
  }
  return append("stablehlo." + std::string(op) + " " + name_list(operands) +
                    (details.empty() ? "" : ", " + details) + " : " + type_string(result),
                {result})[0];
}

Vals Builder::emit_generic(std::string_view op, const Vals& operands,
                           const std::vector<TensorType>& results, const std::string& attributes,
                           const std::vector<std::string>& regions) {
  std::string call = "\"stablehlo." + std::string(op) + "\"(" + name_list(operands) + ")";
  if (!attributes.empty()) {
    call += " <{" + attributes + "}>";
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    call += (i == 0 ? " (" : ", ") + regions[i];
  }
  if (!regions.empty()) {
    call += ")";
  }
  return append(call + " : " + function_type(types_of(operands), results), results);
}

std::string Builder::block(const Vals& arguments, const Region& body, const std::string& header) {
  std::string outer;
  std::swap(outer, open().body);
  open().indent += 1;
  const Vals results = body(*this, arguments);
  append_line("stablehlo.return " + name_list(results) +
              (results.empty() ? "" : " : " + type_list(types_of(results))));
  open().indent -= 1;
  std::swap(outer, open().body);
  const std::string indent(static_cast<size_t>(open().indent) * 2, ' ');
  return "{\n" + (header.empty() ? "" : indent + header) + outer + indent + "}";
}

std::string Builder::region(const std::vector<TensorType>& arguments, const Region& body) {
  const Vals values = make_arguments(arguments);
  return block(values, body, values.empty() ? "" : "^bb0(" + argument_list(values) + "):\n");
}

void Builder::begin_function(const std::string& name, bool is_public) {
  Function function;
  function.name = name;
  function.is_public = is_public;
  open_.push_back(std::move(function));
}

Val Builder::parameter(const TensorType& type) {
  Val value = make_argument(type);
  open().parameters.push_back(value);
  open().aliases.push_back(-1);
  return value;
}

void Builder::alias_parameter(int64_t parameter, int64_t output) {
  open().aliases.at(parameter) = output;
}

void Builder::shard_parameter(size_t parameter, const std::string& sharding) {
  open().parameter_shardings[parameter] = sharding;
}

void Builder::shard_result(size_t result, const std::string& sharding) {
  open().result_shardings[result] = sharding;
}

void Builder::end_function(const Vals& results) {
  const std::vector<TensorType> types = types_of(results);
  append_line("return" +
              (types.empty() ? "" : " " + name_list(results) + " : " + type_list(types)));
  const Function& f = open();
  std::string text =
      "  func.func " + (f.is_public ? "public @" + f.name : "private @" + marked(f.name)) + "(";
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    text += (i > 0 ? ", " : "") + argument_list({f.parameters[i]});
    std::string attributes;
    if (f.aliases[i] >= 0) {
      attributes = "tf.aliasing_output = " + std::to_string(f.aliases[i]) + " : i32";
    }
    if (auto sharding = f.parameter_shardings.find(i); sharding != f.parameter_shardings.end()) {
      attributes += (attributes.empty() ? "" : ", ") + sharding_attribute(sharding->second);
    }
    text += attributes.empty() ? "" : " {" + attributes + "}";
  }
  const bool bare = types.size() == 1 && f.result_shardings.empty();
  text += bare ? ") -> " : ") -> (";
  for (size_t i = 0; i < types.size(); ++i) {
    text += (i > 0 ? ", " : "") + type_string(types[i]);
    if (auto sharding = f.result_shardings.find(i); sharding != f.result_shardings.end()) {
      text += " {" + sharding_attribute(sharding->second) + "}";
    }
  }
  text += (bare ? " {\n" : ") {\n") + f.body + "  }\n";
  finished_.push_back(std::move(text));
  open_.pop_back();
}

Val Builder::sharding_call(std::string_view target, Val x, const TensorType& result,
                           const std::string& sharding) {
  return append("stablehlo.custom_call " + symbol(target) + "(" + name_list({x}) + ") {" +
                    sharding_attribute(sharding) + "} : " + function_type({x.type()}, {result}),
                {result})[0];
}

Vals Builder::custom_call(std::string_view target, const Vals& operands,
                          const std::vector<TensorType>& results, const std::string& config,
                          bool may_fail) {
  may_fail_ = may_fail_ || may_fail;
  return append("stablehlo.custom_call " + symbol(target) + "(" + name_list(operands) +
                    ") {api_version = 4 : i32, backend_config = {" + config +
                    "}} : " + function_type(types_of(operands), results),
                results);
}

Val Builder::behind(std::string_view target, Val x, const Vals& others, const std::string& config) {
  Vals operands{x};
  operands.insert(operands.end(), others.begin(), others.end());
  return append("stablehlo.custom_call " + symbol(target) + "(" + name_list(operands) +
                    ") {api_version = 4 : i32, backend_config = {" + config +
                    "}, output_operand_aliases = "
                    "[#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = "
                    "0, operand_tuple_indices = []>]} : " +
                    function_type(types_of(operands), {x.type()}),
                {x.type()})[0];
}

Vals Builder::call(const std::string& function, const Vals& arguments,
                   const std::vector<TensorType>& results) {
  return append("func.call @" + marked(function) + "(" + name_list(arguments) +
                    ") : " + function_type(types_of(arguments), results),
                results);
}

Vals Builder::composite(const std::string& name, const std::string& attributes,
                        const std::string& function, const Vals& arguments, const Vals& like) {
  return append("stablehlo.composite " + in_quotes(name) + " " + name_list(arguments) + " {" +
                    (attributes.empty() ? "" : "composite_attributes = " + attributes + ", ") +
                    "decomposition = @" + marked(function) +
                    "} : " + function_type(types_of(arguments), types_of(like)),
                types_of(like));
}

Vals Builder::call_fragment(const std::string& module, const Vals& arguments) {
  const FunctionType type = main_type(module);
  if (types_of(arguments) != type.parameters) {
    throw Error("a StableHLO function of (" + type_list(type.parameters) + ") was given (" +
                type_list(types_of(arguments)) + ")");
  }
  auto [found, inserted] = fragments_.try_emplace(module);
  if (inserted) {
    const std::string prefix = "fragment_" + std::to_string(fragments_.size()) + "_";
    finished_.push_back(
        functions_of(module, [&prefix](const std::string& name) { return marked(prefix + name); }));
    found->second = prefix + "main";
  }
  return call(found->second, arguments, type.results);
}

void Builder::set_location(std::string_view file, int line, std::string_view scope) {
  if (file.empty() && scope.empty()) {
    location_ = -1;
    return;
  }
  std::string place = in_quotes(file.empty() ? "-" : file) + ":" + std::to_string(line) + ":0";
  std::string definition =
      "loc(" + (scope.empty() ? place : in_quotes(scope) + "(" + place + ")") + ")";
  auto [it, inserted] =
      location_ids_.try_emplace(std::move(definition), static_cast<int32_t>(location_ids_.size()));
  if (inserted) {
    location_definitions_.push_back(it->first);
  }
  location_ = it->second;
}

std::string Builder::render(bool names, bool locations) const {
  std::string text = names ? "module @" + module_name_ : "module";
  if (partitions_ > 1) {
    text += " attributes {mhlo.num_partitions = " + std::to_string(partitions_) +
            " : i32, mhlo.num_replicas = 1 : i32}";
  }
  text += " {\n";
  std::map<std::string, size_t> numbers;  // of functions, in place of their names
  for (const std::string& function : finished_) {
    for (size_t at = 0; at < function.size();) {
      const size_t mark = std::min(function.find_first_of(kMarks, at), function.size());
      text.append(function, at, mark - at);
      at = mark;
      if (at == function.size()) {
        break;
      }
      const size_t end = function.find(function[mark] == kName ? kName : '\n', mark + 1);
      const std::string marked = function.substr(mark + 1, end - mark - 1);
      if (function[mark] == kLocation) {
        const int32_t location = std::stoi(marked);
        text += locations && location >= 0 ? " " + location_definitions_[location] : "";
        at = end;
      } else {
        text +=
            names ? marked : std::to_string(numbers.emplace(marked, numbers.size()).first->second);
        at = end + 1;
      }
    }
  }
  return text + "}\n";
}

std::string Builder::str(bool with_locations) const { return render(true, with_locations); }

std::string Builder::key() const { return render(false, false); }

}  // namespace torch_xla::stablehlo
