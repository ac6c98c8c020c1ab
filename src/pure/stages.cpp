#include "pure/stages.h"

#include "execution/settings.h"
#include "graph/partition.h"
#include "sharding/spmd.h"

namespace torch_xla {

namespace {

Graph graph_of_call(const PureEntry& entry, const CallNumbers& numbers) {
  const Graph& traced = entry.forward->computation->graph;
  std::vector<GraphValue> inputs, outputs;
  for (uint32_t i = 0; i < traced.inputs.size(); ++i) {
    inputs.push_back({-1, i});
  }
  std::vector<int32_t> donated;
  for (const PureEntry::ResultStorage& storage : entry.storages) {
    outputs.push_back(traced.outputs[storage.output]);
    donated.push_back(-1);
  }
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    if (const int32_t output = entry.inputs[i].written; output >= 0) {
      const GraphValue value = traced.outputs[static_cast<size_t>(output)];
      const bool fits = traced.type(value) == traced.inputs[i]->type(0);
      outputs.push_back(value);
      donated.push_back(fits ? static_cast<int32_t>(i) : -1);
    }
  }
  Graph graph = extract(traced, inputs, outputs);  // without what only a gradient needs
  graph.donated = std::move(donated);
  for (Number& number : graph.numbers) {
    if (number.parameter >= 0) {
      number = Number::of(numbers.at(static_cast<size_t>(number.parameter)));
    }
  }
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
