#include "pure/stages.h"

#include "execution/settings.h"
#include "sharding/spmd.h"

#include <algorithm>

namespace torch_xla {

namespace {

// Leaves out what no output needs (what only a gradient would).
void keep_needed(Graph& graph) {
  std::vector<bool> needed(graph.nodes.size(), false);
  auto need = [&needed](GraphValue value) {
    if (value.producer >= 0) {
      needed[static_cast<size_t>(value.producer)] = true;
    }
  };
  std::for_each(graph.outputs.begin(), graph.outputs.end(), need);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const GraphNode& entry = graph.nodes[n];
    for (size_t i = 0; needed[n] && i < entry.node->operands.size(); ++i) {
      need(graph.operands[entry.first_operand + i]);
    }
  }
  std::vector<GraphNode> kept;
  std::vector<int32_t> place;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    place.push_back(static_cast<int32_t>(kept.size()));
    if (needed[n]) {
      kept.push_back(graph.nodes[n]);
    }
  }
  graph.nodes = std::move(kept);
  for (std::vector<GraphValue>* values : {&graph.operands, &graph.outputs}) {
    for (GraphValue& value : *values) {
      value.producer = value.producer < 0 ? -1 : place[static_cast<size_t>(value.producer)];
    }
  }
}

Graph graph_of_call(const PureEntry& entry, const CallNumbers& numbers) {
  const Graph& traced = entry.forward->computation->graph;
  Graph graph = traced;
  graph.outputs.clear();
  graph.donated.clear();
  for (const PureEntry::ResultStorage& storage : entry.storages) {
    graph.outputs.push_back(traced.outputs[storage.output]);
    graph.donated.push_back(-1);
  }
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    if (const int32_t output = entry.inputs[i].written; output >= 0) {
      const GraphValue value = traced.outputs[static_cast<size_t>(output)];
      const bool fits = traced.type(value) == traced.inputs[i]->type(0);
      graph.outputs.push_back(value);
      graph.donated.push_back(fits ? static_cast<int32_t>(i) : -1);
    }
  }
  for (Number& number : graph.numbers) {
    if (number.parameter >= 0) {
      number = Number::of(numbers.at(static_cast<size_t>(number.parameter)));
    }
  }
  keep_needed(graph);
  apply_settings(graph);
  return graph;
}

}  // namespace

LoweredCall lower_call(const PureEntry& entry, const CallNumbers& numbers) {
  if (spmd_enabled()) {
    throw Error("lower() says what one device computes, and in SPMD mode a call of " + entry.name +
                " runs on all of them: record it, and take xm.get_stablehlo([result])");
  }
  const Graph graph = graph_of_call(entry, numbers);
  return {entry.name, lower_graph(graph, entry.name, NumberPlacement{}, HostCalls::IfNeeded),
          graph.xla_options};
}

ProgramPtr compile_call(const LoweredCall& call) {
  ProgramSource source;
  source.name = call.name;
  source.text = call.module.text;
  source.readable = call.module.readable;
  source.text_with_locations = call.module.text_with_locations;
  source.options.xla_options = call.xla_options;
  source.output_types = call.module.outputs;
  return load_or_compile(std::move(source));
}

}  // namespace torch_xla
