#include "graph/collect.h"

#include "base/hasher.h"
#include "base/location.h"

#include <atomic>
#include <map>
#include <sstream>

namespace torch_xla {

namespace {

std::atomic<uint64_t> next_epoch{1};

class Collector {
 public:
  Graph run(const std::vector<Value>& outputs) REQUIRES(trace_mutex) {
    for (const Value& output : outputs) {
      visit(output.node);
      graph_.outputs.push_back(reference(output));
    }
    graph_.donated.assign(outputs.size(), -1);
    return std::move(graph_);
  }

 private:
  struct Frame {
    const NodePtr* node;
    size_t next_operand;
  };

  bool seen(const Node& node) const REQUIRES(trace_mutex) { return node.visit.epoch == epoch_; }

  GraphValue reference(const Value& value) const REQUIRES(trace_mutex) {
    int32_t id = static_cast<int32_t>(value.node->visit.id);
    if (value.node->kind == Node::Kind::Op) {
      return {id, value.index};
    }
    return {-1, static_cast<uint32_t>(id)};
  }

  // Depth first without recursion: traces are deep.
  void visit(const NodePtr& root) REQUIRES(trace_mutex) {
    if (seen(*root)) {
      return;
    }
    stack_.push_back({&root, 0});
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      const Node& node = **frame.node;
      if (frame.next_operand < node.operands.size()) {
        const NodePtr& operand = node.operands[frame.next_operand++].node;
        if (!seen(*operand)) {
          stack_.push_back({&operand, 0});
        }
        continue;
      }
      const NodePtr& done = *frame.node;
      stack_.pop_back();
      if (!seen(*done)) {
        add(done);
      }
    }
  }

  void add(const NodePtr& node) REQUIRES(trace_mutex) {
    node->visit.epoch = epoch_;
    if (node->kind != Node::Kind::Op) {
      node->visit.id = static_cast<uint32_t>(graph_.inputs.size());
      graph_.inputs.push_back(node);
      return;
    }
    node->visit.id = static_cast<uint32_t>(graph_.nodes.size());
    graph_.nodes.push_back({node, static_cast<uint32_t>(graph_.operands.size()),
                            static_cast<uint32_t>(graph_.numbers.size())});
    for (const Value& operand : node->operands) {
      graph_.operands.push_back(reference(operand));
    }
    graph_.numbers.insert(graph_.numbers.end(), node->numbers.begin(), node->numbers.end());
  }

  uint64_t epoch_ = new_visit_epoch();
  Graph graph_;
  std::vector<Frame> stack_;
};

uint64_t pack(GraphValue value) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(value.producer)) << 32) | value.index;
}

}  // namespace

uint64_t new_visit_epoch() { return next_epoch.fetch_add(1); }

Graph collect_graph(const std::vector<Value>& outputs) { return Collector().run(outputs); }

void finish_graph(Graph& graph) {
  Hasher hasher;
  for (const NodePtr& input : graph.inputs) {
    const TensorType& type = input->type(0);
    hasher.add(static_cast<uint64_t>(type.dtype) << 32 | type.dims.size());
    for (int64_t dim : type.dims) {
      hasher.add(static_cast<uint64_t>(dim));
    }
  }
  for (const GraphNode& entry : graph.nodes) {
    hasher.add(entry.node->signature->hash);
    hasher.add(entry.first_operand);
  }
  for (GraphValue operand : graph.operands) {
    hasher.add(pack(operand));
  }
  for (GraphValue output : graph.outputs) {
    hasher.add(pack(output));
  }
  for (int32_t donated : graph.donated) {
    hasher.add(static_cast<uint64_t>(donated) + 1);
  }
  for (const auto& [name, value] : graph.xla_options) {
    hasher.add(std::string_view(name));
    hasher.add(std::string_view(value));
  }
  if (graph.precision != "DEFAULT") {
    hasher.add(std::string_view(graph.precision));
  }
  if (graph.partitions > 1) {
    hasher.add(static_cast<uint64_t>(graph.partitions));
    for (ShardingPtr sharding : graph.input_shardings) {
      hasher.add(sharding->hash());
    }
    for (ShardingPtr sharding : graph.output_shardings) {
      hasher.add(sharding == nullptr ? 0 : sharding->hash());
    }
  }
  graph.hash = hasher.low();
  graph.hash_high = hasher.high();
}

Graph without_values(const Graph& graph) {
  Graph copy = graph;
  for (NodePtr& input : copy.inputs) {
    input = make_parameter_node(input->type(0));
  }
  for (GraphNode& entry : copy.nodes) {
    NodePtr node = c10::make_intrusive<Node>();
    node->location = entry.node->location;
    node->serial = entry.node->serial;
    node->signature = entry.node->signature;
    node->numbers = entry.node->numbers;
    node->operands.resize(entry.node->operands.size());  // the graph's own links say which
    entry.node = std::move(node);
  }
  return copy;
}

namespace {

// As in XLA's texts: "f32[2,3]{1,0}".
std::string shape_text(const TensorType& type) {
  static const std::map<DType, const char*> kNames = {{DType::Bool, "pred"},
                                                      {DType::Byte, "u8"},
                                                      {DType::Char, "s8"},
                                                      {DType::Short, "s16"},
                                                      {DType::Int, "s32"},
                                                      {DType::Long, "s64"},
                                                      {DType::UInt16, "u16"},
                                                      {DType::UInt32, "u32"},
                                                      {DType::UInt64, "u64"},
                                                      {DType::Half, "f16"},
                                                      {DType::BFloat16, "bf16"},
                                                      {DType::Float, "f32"},
                                                      {DType::Double, "f64"},
                                                      {DType::ComplexFloat, "c64"},
                                                      {DType::ComplexDouble, "c128"},
                                                      {DType::Float8_e4m3fn, "f8e4m3fn"},
                                                      {DType::Float8_e5m2, "f8e5m2"}};
  const auto name = kNames.find(type.dtype);
  std::string dims, layout;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const char* comma = i > 0 ? "," : "";
    dims += comma + std::to_string(type.dims[i]);
    layout += comma + std::to_string(type.dims.size() - 1 - i);
  }
  return (name == kNames.end() ? c10::toString(type.dtype) : name->second) + ("[" + dims + "]") +
         (layout.empty() ? "" : "{" + layout + "}");
}

std::string plain_text(const Number& number) {
  if (number.is_integral()) {
    return std::to_string(number.integer);
  }
  std::ostringstream text;
  text << number.floating.real();
  if (number.kind == Number::Kind::Complex) {
    text << std::showpos << number.floating.imag() << "j";
  }
  return text.str();
}

// The text of a graph, line by line: inputs first, and nodes numbered after them.
class TextWriter {
 public:
  explicit TextWriter(const Graph& graph) : graph_(graph) {}

  std::string write() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const std::string shape = shape_text(graph_.inputs[i]->type(0));
      line(shape + " xla::device_data(), xla_shape=" + shape, -1, i);
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      line(operation(graph_.nodes[n]), static_cast<int32_t>(n), 0);
    }
    return text_ + "}\n";
  }

 private:
  std::string name(int32_t producer, size_t input) const {
    return "%" + std::to_string(producer < 0 ? input : graph_.inputs.size() + producer);
  }

  std::string operation(const GraphNode& entry) const {
    const Node& node = *entry.node;
    std::string shape = shape_text(node.type(0));
    if (node.signature->outputs.size() > 1) {
      for (uint32_t i = 1; i < node.signature->outputs.size(); ++i) {
        shape += ", " + shape_text(node.type(i));
      }
      shape = "(" + shape + ")";
    }
    const std::string& op = node.signature->op;  // "aten::add.Tensor", of which there "aten::add"
    std::string text = shape + " " + op.substr(0, op.find('.', op.find("::"))) + "(";
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const GraphValue operand = graph_.operands_of(entry)[i];
      text += (i > 0 ? ", " : "") + name(operand.producer, operand.index);
      text += operand.producer >= 0 && operand.index > 0 ? "." + std::to_string(operand.index) : "";
    }
    text += "), xla_shape=" + shape;
    for (size_t i = 0; i < node.numbers.size(); ++i) {
      text += (i > 0 ? ", " : ", numbers=(") + plain_text(node.numbers[i]);
    }
    text += node.numbers.empty() ? "" : ")";
    if (node.location != 0) {
      const Location& location = location_of(node.location);
      text += ", location=" + location.scope + "@" + location.str();
    }
    return text;
  }

  void line(const std::string& content, int32_t producer, size_t input) {
    text_ += "  " + name(producer, input) + " = " + content;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const GraphValue output = graph_.outputs[i];
      if (output.producer == producer && (producer >= 0 || output.index == input)) {
        text_ += ", ROOT=" + std::to_string(i);
      }
    }
    text_ += "\n";
  }

  const Graph& graph_;
  std::string text_ = "IR {\n";
};

}  // namespace

std::string graph_text(const Graph& graph) { return TextWriter(graph).write(); }

}  // namespace torch_xla
