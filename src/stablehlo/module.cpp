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

std::string type_list(const std::vector<TensorType>& types) {
  std::string text = "(";
  for (size_t i = 0; i < types.size(); ++i) {
    text += (i > 0 ? ", " : "") + type_string(types[i]);
  }
  return text + ")";
}

std::vector<TensorType> types_of(const Vals& values) {
  std::vector<TensorType> types;
  for (const Val& value : values) {
    types.push_back(value.type());
  }
  return types;
}

std::string marked(const std::string& function) { return kName + function + kName; }

std::string sharding_attribute(const std::string& sharding) {
  return "mhlo.sharding = " + in_quotes(sharding);
}

}  // namespace

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

std::string Builder::name_list(const Vals& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) {
      throw Error("an operand of a StableHLO operation was never computed");
    }
    text += (i > 0 ? ", %" : "%") + std::to_string(values[i].id_);
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

Vals Builder::emit_many(std::string_view op, const Vals& operands,
                        const std::vector<TensorType>& results, const std::string& attributes,
                        const std::vector<std::string>& regions) {
  std::string call = "\"" + std::string(op) + "\"(" + name_list(operands) + ")";
  if (!attributes.empty()) {
    call += " <{" + attributes + "}>";
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    call += (i == 0 ? " (" : ", ") + regions[i];
  }
  if (!regions.empty()) {
    call += ")";
  }
  call += " : " + type_list(types_of(operands)) + " -> " +
          (results.size() == 1 ? type_string(results[0]) : type_list(results));
  Vals values;
  for (const TensorType& type : results) {
    values.push_back(make(type));
  }
  append_line((values.empty() ? "" : name_list(values) + " = ") + call);
  return values;
}

Val Builder::emit(std::string_view op, const Vals& operands, const TensorType& result,
                  const std::string& attributes, const std::vector<std::string>& regions) {
  return emit_many(op, operands, {result}, attributes, regions).front();
}

std::string Builder::region(const std::vector<TensorType>& arguments, const Region& body) {
  std::string outer;
  std::swap(outer, open().body);
  open().indent += 2;
  Vals values;
  std::string header =
      "{\n" + std::string(static_cast<size_t>(open().indent - 1) * 2, ' ') + "^bb0(";
  for (const TensorType& type : arguments) {
    values.push_back(make(type));
    header += (values.size() > 1 ? ", %" : "%") + std::to_string(values.back().id_) + ": " +
              type_string(type);
  }
  header += "):\n";
  emit_many("stablehlo.return", body(*this, values), {});
  open().indent -= 2;
  std::swap(outer, open().body);
  return (arguments.empty() ? "{\n" : header) + outer +
         std::string(static_cast<size_t>(open().indent) * 2, ' ') + "}";
}

void Builder::begin_function(const std::string& name, bool is_public) {
  Function function;
  function.name = name;
  function.is_public = is_public;
  open_.push_back(std::move(function));
}

Val Builder::parameter(const TensorType& type) {
  Val value = make(type);
  open().parameters.push_back(type);
  open().parameter_ids.push_back(value.id_);
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
  std::vector<TensorType> types = types_of(results);
  append_line("return " + name_list(results) + (results.empty() ? "" : " : ") +
              (results.empty() ? "" : type_list(types).substr(1, type_list(types).size() - 2)));
  const Function& f = open();
  std::string text =
      "  func.func " + (f.is_public ? "public @" + f.name : "private @" + marked(f.name)) + "(";
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    text += (i > 0 ? ", %" : "%") + std::to_string(f.parameter_ids[i]) + ": " +
            type_string(f.parameters[i]);
    std::string attributes;
    if (f.aliases[i] >= 0) {
      attributes = "tf.aliasing_output = " + std::to_string(f.aliases[i]) + " : i32";
    }
    if (auto sharding = f.parameter_shardings.find(i); sharding != f.parameter_shardings.end()) {
      attributes += (attributes.empty() ? "" : ", ") + sharding_attribute(sharding->second);
    }
    text += attributes.empty() ? "" : " {" + attributes + "}";
  }
  text += ") -> (";
  for (size_t i = 0; i < types.size(); ++i) {
    text += (i > 0 ? ", " : "") + type_string(types[i]);
    if (auto sharding = f.result_shardings.find(i); sharding != f.result_shardings.end()) {
      text += " {" + sharding_attribute(sharding->second) + "}";
    }
  }
  text += ") {\n" + f.body + "  }\n";
  finished_.push_back(std::move(text));
  open_.pop_back();
}

Val Builder::sharding_call(std::string_view target, Val x, const TensorType& result,
                           const std::string& sharding) {
  Val value = make(result);
  append_line(name_list({value}) + " = \"stablehlo.custom_call\"(" + name_list({x}) +
              ") <{call_target_name = " + in_quotes(target) + "}> {" +
              sharding_attribute(sharding) + "} : (" + type_string(x.type()) + ") -> " +
              type_string(result));
  return value;
}

Vals Builder::call(const std::string& function, const Vals& arguments,
                   const std::vector<TensorType>& results) {
  Vals values;
  for (const TensorType& type : results) {
    values.push_back(make(type));
  }
  append_line((values.empty() ? "" : name_list(values) + " = ") + "func.call @" + marked(function) +
              "(" + name_list(arguments) + ") : " + type_list(types_of(arguments)) + " -> " +
              type_list(results));
  return values;
}

Vals Builder::composite(const std::string& name, const std::string& attributes,
                        const std::string& function, const Vals& arguments, const Vals& like) {
  return emit_many("stablehlo.composite", arguments, types_of(like),
                   "name = " + in_quotes(name) +
                       ", composite_attributes = " + (attributes.empty() ? "{}" : attributes) +
                       ", decomposition = @" + marked(function));
}

Vals Builder::call_fragment(const std::string& module, const Vals& arguments) {
  const FunctionType type = main_type(module);
  if (types_of(arguments) != type.parameters) {
    throw Error("a StableHLO function of " + type_list(type.parameters) + " was given " +
                type_list(types_of(arguments)));
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
