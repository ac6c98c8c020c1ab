#include "pjrt/hlo_text.h"

#include "base/text.h"
#include "pjrt/wire.h"

#include <charconv>
#include <map>

namespace torch_xla::pjrt {

namespace {

using wire::Field;
using wire::Reader;

// PrimitiveType's names, by number.
constexpr const char* kTypeNames[] = {
    "invalid",    "pred",      "s8",   "s16",    "s32",      "s64",   "u8",     "u16",
    "u32",        "u64",       "f16",  "f32",    "f64",      "tuple", "opaque", "c64",
    "bf16",       "token",     "c128", "f8e5m2", "f8e4m3fn", "s4",    "u4",     "f8e4m3b11fnuz",
    "f8e5m2fnuz", "f8e4m3fnuz"};

// ShapeProto: "f32[2,3]{1,0}", "(f32[2]{0}, s32[])".
std::string shape_text(std::string_view shape) {
  uint64_t type = 0;
  std::vector<int64_t> dims, layout;
  std::string parts;
  Field field;
  for (Reader reader(shape); reader.next(field);) {
    switch (field.number) {
      case 2:
        type = field.integer;
        break;
      case 3:
        wire::append_integers(field, dims);
        break;
      case 4:
        parts += (parts.empty() ? "" : ", ") + shape_text(field.bytes);
        break;
      case 5: {
        Field inner;
        for (Reader r(field.bytes); r.next(inner);) {
          if (inner.number == 1) {
            wire::append_integers(inner, layout);
          }
        }
        break;
      }
    }
  }
  std::string name =
      type < std::size(kTypeNames) ? kTypeNames[type] : "type" + std::to_string(type);
  if (name == "tuple") {
    return "(" + parts + ")";
  }
  std::string text = name + "[" + joined(dims) + "]";
  return layout.empty() ? text : text + "{" + joined(layout) + "}";
}

template <typename Float>
std::string float_text(std::string_view bytes) {
  Float value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  char text[32];
  auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return {text, end};
}

// LiteralProto: the number, if it is one; else "...".
std::string literal_text(std::string_view literal) {
  Field field;
  for (Reader reader(literal); reader.next(field);) {
    std::vector<int64_t> integers;
    switch (field.number) {
      case 2:  // preds, one byte each
        return field.bytes.size() == 1 ? (field.bytes[0] != 0 ? "true" : "false") : "...";
      case 4:  // s32s, s64s, u32s, u64s
      case 5:
      case 6:
      case 7:
        wire::append_integers(field, integers);
        return integers.size() == 1 ? std::to_string(integers[0]) : "...";
      case 8:
        return field.bytes.size() == sizeof(float) ? float_text<float>(field.bytes) : "...";
      case 9:
        return field.bytes.size() == sizeof(double) ? float_text<double>(field.bytes) : "...";
    }
  }
  return "...";
}

// OpMetadata: what the user wrote.
std::string metadata_text(std::string_view metadata) {
  std::string text;
  Field field;
  for (Reader reader(metadata); reader.next(field);) {
    std::string space = text.empty() ? "" : " ";
    switch (field.number) {
      case 2:
        text += space + "op_name=\"" + std::string(field.bytes) + "\"";
        break;
      case 3:
        text += space + "source_file=\"" + std::string(field.bytes) + "\"";
        break;
      case 4:
        text += space + "source_line=" + std::to_string(field.integer);
        break;
    }
  }
  return text.empty() ? "" : ", metadata={" + text + "}";
}

struct Instruction {
  int64_t id = 0;
  std::string name, opcode, shape, literal, extra, metadata;
  std::vector<int64_t> operands, called, dimensions;
  int64_t parameter = 0;
  int64_t tuple_index = 0;
};

Instruction parse_instruction(std::string_view bytes) {
  Instruction result;
  Field field;
  for (Reader reader(bytes); reader.next(field);) {
    switch (field.number) {
      case 1:
        result.name = field.bytes;
        break;
      case 2:
        result.opcode = field.bytes;
        break;
      case 3:
        result.shape = shape_text(field.bytes);
        break;
      case 7:
        result.metadata = metadata_text(field.bytes);
        break;
      case 8:
        result.literal = literal_text(field.bytes);
        break;
      case 9:
        result.parameter = static_cast<int64_t>(field.integer);
        break;
      case 11:
        result.extra += ", kind=" + std::string(field.bytes);
        break;
      case 13:
        result.tuple_index = static_cast<int64_t>(field.integer);
        break;
      case 14:
        wire::append_integers(field, result.dimensions);
        break;
      case 28:
        result.extra += ", custom_call_target=\"" + std::string(field.bytes) + "\"";
        break;
      case 35:
        result.id = static_cast<int64_t>(field.integer);
        break;
      case 36:
        wire::append_integers(field, result.operands);
        break;
      case 38:
        wire::append_integers(field, result.called);
        break;
    }
  }
  return result;
}

struct Computation {
  int64_t id = 0;
  int64_t root = 0;
  std::string name;
  std::vector<Instruction> instructions;
};

Computation parse_computation(std::string_view bytes) {
  Computation result;
  Field field;
  for (Reader reader(bytes); reader.next(field);) {
    switch (field.number) {
      case 1:
        result.name = field.bytes;
        break;
      case 2:
        result.instructions.push_back(parse_instruction(field.bytes));
        break;
      case 5:
        result.id = static_cast<int64_t>(field.integer);
        break;
      case 6:
        result.root = static_cast<int64_t>(field.integer);
        break;
    }
  }
  return result;
}

using Names = std::map<int64_t, std::string>;

std::string name_list(const std::vector<int64_t>& ids, const Names& names) {
  std::string text;
  for (int64_t id : ids) {
    auto found = names.find(id);
    text += text.empty() ? "%" : ", %";
    text += found == names.end() ? std::to_string(id) : found->second;
  }
  return text;
}

std::string instruction_text(const Instruction& i, const Names& values, const Names& computations) {
  std::string inside = name_list(i.operands, values);
  if (i.opcode == "parameter") {
    inside = std::to_string(i.parameter);
  } else if (i.opcode == "constant") {
    inside = i.literal;
  }
  std::string text = "%" + i.name + " = " + i.shape + " " + i.opcode + "(" + inside + ")";
  if (!i.dimensions.empty()) {
    text += ", dimensions={" + joined(i.dimensions) + "}";
  }
  if (i.opcode == "get-tuple-element") {
    text += ", index=" + std::to_string(i.tuple_index);
  }
  text += i.extra;
  if (!i.called.empty()) {
    text += ", calls=" + name_list(i.called, computations);
  }
  return text + i.metadata;
}

std::string computation_text(const Computation& computation, bool entry, const Names& names) {
  Names values;
  for (const Instruction& instruction : computation.instructions) {
    values[instruction.id] = instruction.name;
  }
  std::string text = (entry ? "ENTRY %" : "%") + computation.name + " {\n";
  for (const Instruction& instruction : computation.instructions) {
    text += instruction.id == computation.root ? "  ROOT " : "  ";
    text += instruction_text(instruction, values, names) + "\n";
  }
  return text + "}\n";
}

}  // namespace

std::string_view hlo_of_hlo_with_config(std::string_view bytes) {
  Field field;
  for (Reader reader(bytes); reader.next(field);) {
    if (field.number == 1) {
      return field.bytes;
    }
  }
  throw Error("a damaged message: no module in it");
}

std::string hlo_text(std::string_view module) {
  std::string name;
  int64_t entry = 0;
  std::vector<Computation> computations;
  Names names;
  Field field;
  for (Reader reader(module); reader.next(field);) {
    switch (field.number) {
      case 1:
        name = field.bytes;
        break;
      case 3:
        computations.push_back(parse_computation(field.bytes));
        break;
      case 6:
        entry = static_cast<int64_t>(field.integer);
        break;
    }
  }
  for (const Computation& computation : computations) {
    names[computation.id] = computation.name;
  }
  std::string text = "HloModule " + name + "\n";
  for (const Computation& computation : computations) {
    text += "\n" + computation_text(computation, computation.id == entry, names);
  }
  return text;
}

}  // namespace torch_xla::pjrt
