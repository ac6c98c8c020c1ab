#include "lower/graph_lowering.h"

#include "base/error.h"
#include "base/location.h"
#include "lower/lower_state.h"

#include <cctype>
#include <deque>
#include <unordered_map>

namespace torch_xla {

namespace {

// Numbers of one graph, as values of the open function.
std::vector<LoweredNumber> place_numbers(Builder& b, const Graph& graph,
                                         const NumberPlacement& placement, Val doubles,
                                         Val integers, std::deque<bool>& pinned) {
  std::vector<LoweredNumber> numbers;
  auto element = [&](Val pack, int32_t i) { return b.reshape(b.slice_dim(pack, 0, i, i + 1), {}); };
  for (size_t i = 0; i < graph.numbers.size(); ++i) {
    LoweredNumber number{graph.numbers[i], {}, &pinned.emplace_back(false)};
    int32_t at = i < placement.position.size() ? placement.position[i] : -1;
    if (at >= 0) {
      if (number.value.is_integral()) {
        number.input = element(integers, at);
      } else if (number.value.kind == Number::Kind::Double) {
        number.input = element(doubles, at);
      } else {
        number.input = b.complex(element(doubles, at), element(doubles, at + 1));
      }
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::string node_description(const Node& node) {
  std::string place = location_of(node.location).str();
  return node.signature->op + " (recorded at " + place + ")";
}

// "outer/inner/aten::add"; what is unknown is left out, what the caller's name already says too.
std::string path_of(const std::string& caller, const std::string& scope, const std::string& op) {
  std::string path = caller;
  bool said = path.size() >= scope.size() &&
              path.compare(path.size() - scope.size(), scope.size(), scope) == 0;
  for (const std::string& part : {said ? std::string() : scope, op}) {
    if (!part.empty()) {
      path += (path.empty() ? "" : "/") + part;
    }
  }
  return path;
}

// The open module: lowers graphs into its functions, each called computation once.
class ModuleLowering {
 public:
  ModuleLowering(Builder& b, HostCalls host_calls) : b_(b), host_calls_(host_calls) {}

  Vals lower_nodes(const Graph& graph, const Vals& inputs,
                   const std::vector<LoweredNumber>& numbers, const std::string& scope) {
    std::vector<Vals> values(graph.nodes.size());
    auto value_of = [&](GraphValue v) {
      return v.producer < 0 ? inputs[v.index] : values[v.producer][v.index];
    };
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const GraphNode& entry = graph.nodes[n];
      const Node& node = *entry.node;
      const Location& location = location_of(node.location);
      b_.set_location(location.file, location.line,
                      path_of(scope, location.scope, node.signature->op));
      LowerContext::State state;
      for (size_t i = 0; i < node.operands.size(); ++i) {
        state.frames.push_back(value_of(graph.operands[entry.first_operand + i]));
      }
      for (size_t i = 0; i < node.numbers.size(); ++i) {
        state.numbers.push_back(numbers[entry.first_number + i]);
      }
      const size_t calls = b_.custom_call_count();
      try {
        values[n] = node.signature->tier == Tier::Call
                        ? call(*node.signature, state)
                        : lower_node(b_, *node.signature, std::move(state), host_calls_);
      } catch (const std::exception& error) {
        throw LoweringError("cannot lower " + node_description(node) + ": " + error.what(), n);
      }
      may_fail_ =
          may_fail_ || (b_.custom_call_count() > calls && kernel_may_raise(node.signature->op));
    }
    Vals results;
    for (GraphValue output : graph.outputs) {
      results.push_back(value_of(output));
    }
    return results;
  }

  bool may_fail() const { return may_fail_; }

 private:
  Vals call(const Signature& signature, LowerContext::State& state) {
    LowerContext context(b_, signature, state, host_calls_);
    Vals arguments;
    std::vector<TensorType> results;
    for (size_t i = 0; i < signature.operands.size(); ++i) {
      arguments.push_back(context.tensor(i));
    }
    for (const OutputSpec& output : signature.outputs) {
      results.push_back(output.frame);
    }
    return b_.call(function_of(*signature.computation), arguments, results);
  }

  const std::string& function_of(const Computation& computation) {
    auto [found, inserted] = functions_.try_emplace(computation.hash);
    if (inserted) {
      std::string name = computation.name;
      for (char& c : name) {
        c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      }
      std::string unique = name + "_" + std::to_string(functions_.size());
      found->second = unique;
      emit(computation, unique);
    }
    return functions_.at(computation.hash);
  }

  void emit(const Computation& computation, const std::string& function) {
    b_.begin_function(function, false);
    Vals inputs;
    for (const NodePtr& input : computation.graph.inputs) {
      inputs.push_back(b_.parameter(input->type(0)));
    }
    std::deque<bool> pinned;
    std::vector<LoweredNumber> numbers =
        place_numbers(b_, computation.graph, NumberPlacement{}, {}, {}, pinned);
    b_.end_function(lower_nodes(computation.graph, inputs, numbers, computation.name));
  }

  Builder& b_;
  const HostCalls host_calls_;
  bool may_fail_ = false;
  std::unordered_map<uint64_t, std::string> functions_;  // by Computation::hash
};

Vals inline_computation(Builder& b, const Computation& computation, const Vals& frames,
                        HostCalls host_calls) {
  std::deque<bool> pinned;
  std::vector<LoweredNumber> numbers =
      place_numbers(b, computation.graph, NumberPlacement{}, {}, {}, pinned);
  return ModuleLowering(b, host_calls).lower_nodes(computation.graph, frames, numbers, "");
}

}  // namespace

Vals lower_node(Builder& b, const Signature& signature, LowerContext::State state,
                HostCalls host_calls) {
  state.results.resize(signature.outputs.size());
  if (signature.random) {
    state.rng_state = state.frames.back();
    state.frames.pop_back();
  }
  LowerContext context(b, signature, state, host_calls);
  switch (signature.tier) {
    case Tier::Direct:
      signature.lower(context);
      break;
    case Tier::Decomposition:
      state.results = inline_computation(b, *signature.computation, state.frames, host_calls);
      break;
    case Tier::Call:
      throw Error("a call can only be lowered as part of a module");
    case Tier::Host:
      lower_host_call(context, state);
      break;
  }
  if (signature.random) {
    state.results.back() = state.rng_state;
  }
  for (size_t i = 0; i < state.results.size(); ++i) {
    if (!signature.outputs[i].defined) {
      state.results[i] = b.full(0, signature.outputs[i].frame);
      continue;
    }
    if (!state.results[i]) {
      throw Error("result " + std::to_string(i) + " was not set");
    }
    if (state.results[i].type() != signature.outputs[i].frame) {
      throw Error("result " + std::to_string(i) + " is " +
                  stablehlo::type_string(state.results[i].type()) + ", expected " +
                  stablehlo::type_string(signature.outputs[i].frame));
    }
  }
  return state.results;
}

namespace {

// How the program's arguments and results lie on its devices.
void annotate(Builder& b, const Graph& graph) {
  b.set_partitions(graph.partitions);
  for (size_t i = 0; i < b.parameter_count(); ++i) {
    ShardingPtr sharding =  // packed numbers are everywhere
        i < graph.input_shardings.size() ? graph.input_shardings[i] : Sharding::replicated();
    b.shard_parameter(i, sharding->text());
  }
  for (size_t i = 0; i < graph.output_shardings.size(); ++i) {
    if (graph.output_shardings[i] != nullptr) {
      b.shard_result(i, graph.output_shardings[i]->text());
    }
  }
}

}  // namespace

LoweredModule lower_graph(const Graph& graph, const std::string& name,
                          const NumberPlacement& placement, HostCalls host_calls) {
  Builder b(name);
  b.begin_function("main", true);
  Vals inputs;
  for (const NodePtr& input : graph.inputs) {
    inputs.push_back(b.parameter(input->type(0)));
  }
  Val doubles = placement.doubles > 0 ? b.parameter({DType::Double, {placement.doubles}}) : Val();
  Val integers = placement.integers > 0 ? b.parameter({DType::Long, {placement.integers}}) : Val();
  std::deque<bool> pinned;
  std::vector<LoweredNumber> numbers =
      place_numbers(b, graph, placement, doubles, integers, pinned);
  ModuleLowering lowering(b, host_calls);
  Vals results = lowering.lower_nodes(graph, inputs, numbers, "");
  b.set_location("", 0, "");
  if (graph.partitions > 1) {
    annotate(b, graph);
  }
  for (size_t i = 0; i < graph.donated.size(); ++i) {
    if (graph.donated[i] >= 0) {
      b.alias_parameter(graph.donated[i], static_cast<int64_t>(i));
    }
  }
  LoweredModule module;
  module.may_fail = lowering.may_fail();
  for (const Val& result : results) {
    module.outputs.push_back(result.type());
  }
  b.end_function(results);
  module.text = b.key();
  module.readable = b.str(false);
  module.text_with_locations = b.str(true);
  module.pinned.assign(pinned.begin(), pinned.end());
  return module;
}

}  // namespace torch_xla
