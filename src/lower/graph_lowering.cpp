#include "lower/graph_lowering.h"

#include "base/error.h"
#include "base/location.h"
#include "lower/coalesce.h"
#include "lower/composite.h"
#include "lower/control.h"
#include "lower/late_reads.h"
#include "lower/lower_state.h"
#include "lower/repeated_work.h"

#include <cctype>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>

namespace torch_xla {

namespace {

// Numbers of a computation, as values of its function: `given` are those that its calls give.
std::vector<LoweredNumber> numbers_of_call(const Graph& graph, const Vals& given,
                                           std::deque<bool>& pinned) {
  std::vector<LoweredNumber> numbers;
  for (const Number& number : graph.numbers) {
    const Val input = number.parameter < 0 ? Val() : given.at(number.parameter);
    numbers.push_back({number, input, &pinned.emplace_back(false)});
  }
  return numbers;
}

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
        if (number.value.kind == Number::Kind::UInt) {
          number.input = b.convert(number.input, DType::UInt64);
        }
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
    const CompositePlan plan = find_composites(graph);
    LateReads late;  // of what the program writes over
    if (host_calls_ == HostCalls::IfFaster && plan.composites.empty()) {
      late = find_late_reads(graph);
    }
    const std::vector<bool> kept = host_calls_ == HostCalls::IfFaster
                                       ? worth_keeping(graph)
                                       : std::vector<bool>(graph.nodes.size(), false);
    for (size_t n : late.order.empty() ? plan.order : late.order) {
      if (plan.inside[n] || !values[n].empty()) {
        continue;
      }
      if (plan.composite_of[n] >= 0) {
        const Composite& composite = plan.composites[plan.composite_of[n]];
        const Vals outputs = lower_composite(graph, composite, value_of, numbers, scope);
        for (size_t i = 0; i < outputs.size(); ++i) {
          values[composite.outputs[i]] = {outputs[i]};
        }
        continue;
      }
      values[n] = lower_one(graph, n, value_of, numbers, scope);
      if (kept[n]) {
        values[n][0] = b_.behind(kBehindTarget, values[n][0], {});
      }
      if (auto wait = late.waits.find(n); wait != late.waits.end()) {
        Vals reads;
        for (GraphValue read : wait->second.reads) {
          reads.push_back(value_of(read));
        }
        Val& waiting = values[n][wait->second.output];
        waiting = b_.behind(kBehindTarget, waiting, reads);
      }
    }
    Vals results;
    for (GraphValue output : graph.outputs) {
      results.push_back(as_recorded(graph, output, value_of(output)));
    }
    return results;
  }

 private:
  using ValueOf = std::function<Val(GraphValue)>;

  Vals lower_one(const Graph& graph, size_t n, const ValueOf& value_of,
                 const std::vector<LoweredNumber>& numbers, const std::string& scope) {
    const GraphNode& entry = graph.nodes[n];
    const Node& node = *entry.node;
    const Location& location = location_of(node.location);
    b_.set_location(location.file, location.line,
                    path_of(scope, location.scope, node.signature->op));
    LowerContext::State state;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const GraphValue operand = graph.operands_of(entry)[i];
      state.frames.push_back(value_of(operand));
      state.shapes.push_back(graph.type(operand).dims);
    }
    for (size_t i = 0; i < node.numbers.size(); ++i) {
      state.numbers.push_back(numbers[entry.first_number + i]);
      if (const int32_t computed = state.numbers[i].value.operand; computed >= 0) {
        state.numbers[i].input =
            read_window(b_, b_.reshape(state.frames[computed], state.shapes[computed]),
                        {node.signature->operands[computed], {}});
      }
    }
    Vals results;
    try {
      results = node.signature->tier == Tier::Call
                    ? call(graph, n, state)
                    : lower_plain(graph, *node.signature, std::move(state));
    } catch (const std::exception& error) {
      throw LoweringError("cannot lower " + node_description(node) + ": " + error.what(), n);
    }
    return results;
  }

  // Elementwise results may have fewer dimensions (coalesce.h).
  Val as_recorded(const Graph& graph, GraphValue value, Val lowered) {
    return b_.reshape(lowered, graph.type(value).dims);
  }

  Vals lower_plain(const Graph& graph, const Signature& signature, LowerContext::State state) {
    if (host_calls_ == HostCalls::IfFaster && !is_checked(signature)) {
      const auto coalescing = coalescing_.try_emplace(&graph, graph).first;
      if (const std::optional<Signature> joined = coalescing->second.of(signature)) {
        return lower_node(b_, *joined, std::move(state), host_calls_);
      }
    }
    return lower_node(b_, signature, std::move(state), host_calls_);
  }

  // The marked part as a function, and a composite that stands for its call. Numbers that are
  // inputs of the program are arguments, too.
  Vals lower_composite(const Graph& graph, const Composite& composite, const ValueOf& value_of,
                       const std::vector<LoweredNumber>& numbers, const std::string& scope) {
    Vals arguments;
    for (GraphValue argument : composite.arguments) {
      arguments.push_back(as_recorded(graph, argument, value_of(argument)));
    }
    std::vector<LoweredNumber> inner = numbers;
    std::vector<size_t> passed;
    for (size_t n : composite.body) {
      const GraphNode& entry = graph.nodes[n];
      for (size_t i = entry.first_number; i < entry.first_number + entry.node->numbers.size();
           ++i) {
        if (inner[i].input) {
          passed.push_back(i);
          arguments.push_back(inner[i].input);
        }
      }
    }
    std::string function = symbol_name(composite.name) + ".impl";
    const size_t earlier = composite_count_[function]++;
    function += earlier == 0 ? "" : "_" + std::to_string(earlier - 1);
    b_.begin_function(function, false);
    std::map<std::pair<int32_t, uint32_t>, Val> known;
    for (GraphValue argument : composite.arguments) {
      known[{argument.producer, argument.index}] = b_.parameter(graph.type(argument));
    }
    for (size_t i : passed) {
      inner[i].input = b_.parameter(numbers[i].input.type());
    }
    const ValueOf inside = [&](GraphValue v) { return known.at({v.producer, v.index}); };
    for (size_t n : composite.body) {
      const Vals results = lower_one(graph, n, inside, inner, scope);
      for (uint32_t i = 0; i < results.size(); ++i) {
        known[{static_cast<int32_t>(n), i}] = results[i];
      }
    }
    Vals results;
    for (size_t n : composite.outputs) {
      const Val result = lower_one(graph, n, inside, inner, scope)[0];
      results.push_back(as_recorded(graph, {static_cast<int32_t>(n), 0}, result));
    }
    b_.end_function(results);
    return b_.composite(composite.name, composite.attributes, function, arguments, results);
  }

  // The function that a call of a program's only caller stands for, which may then know what the
  // program writes over (a training step that was traced whole).
  const Graph* inlined(const Graph& graph, size_t n) {
    const GraphNode& entry = graph.nodes[n];
    const Computation& called = *entry.node->signature->computation;
    const bool alone = graph.nodes.size() == 1 && called.control.kind == Control::Kind::Call;
    if (!alone || host_calls_ != HostCalls::IfFaster || graph.donated.empty()) {
      return nullptr;
    }
    Graph& body = bodies_.emplace_back(called.graph);
    body.donated.assign(body.outputs.size(), -1);
    for (size_t i = 0; i < graph.donated.size(); ++i) {
      const GraphValue output = graph.outputs[i];
      for (size_t k = 0; output.producer >= 0 && k < entry.node->operands.size(); ++k) {
        const GraphValue operand = graph.operands_of(entry)[k];
        if (operand.producer < 0 && static_cast<int32_t>(operand.index) == graph.donated[i]) {
          body.donated[output.index] = static_cast<int32_t>(k);
        }
      }
    }
    return &body;
  }

  Vals call(const Graph& graph, size_t n, LowerContext::State& state) {
    const Signature& signature = *graph.nodes[n].node->signature;
    LowerContext context(b_, signature, state, host_calls_);
    Vals arguments;
    for (size_t i = 0; i < signature.operands.size(); ++i) {
      arguments.push_back(context.tensor(i));
    }
    for (size_t i = 0; i < signature.number_kinds.size(); ++i) {
      arguments.push_back(context.number(signature.operands.size() + i, DType::Double));
    }
    if (const Graph* body = inlined(graph, n)) {
      const auto inputs = arguments.begin() + static_cast<std::ptrdiff_t>(body->inputs.size());
      const std::vector<LoweredNumber> numbers =
          numbers_of_call(*body, {inputs, arguments.end()}, pinned_);
      return lower_nodes(*body, {arguments.begin(), inputs}, numbers, "");
    }
    auto call = [this](const Computation& computation, const Vals& inputs) {
      std::vector<TensorType> results;
      for (GraphValue output : computation.graph.outputs) {
        results.push_back(computation.graph.type(output));
      }
      return b_.call(function_of(computation, inputs.size()), inputs, results);
    };
    return lower_control(b_, signature, arguments, call);
  }

  static std::string symbol_name(std::string name) {
    for (char& c : name) {
      c = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ? c : '_';
    }
    return name;
  }

  // Numbers follow the computation's own inputs.
  const std::string& function_of(const Computation& computation, size_t input_count) {
    auto [found, inserted] = functions_.try_emplace(computation.hash);
    if (inserted) {
      std::string unique = symbol_name(computation.name) + "_" + std::to_string(functions_.size());
      found->second = unique;
      emit(computation, input_count - computation.graph.inputs.size(), unique);
    }
    return functions_.at(computation.hash);
  }

  void emit(const Computation& computation, size_t number_count, const std::string& function) {
    b_.begin_function(function, false);
    Vals inputs;
    for (const NodePtr& input : computation.graph.inputs) {
      inputs.push_back(b_.parameter(input->type(0)));
    }
    Vals given;
    for (size_t i = 0; i < number_count; ++i) {
      given.push_back(b_.parameter({DType::Double, {}}));
    }
    std::deque<bool> pinned;
    std::vector<LoweredNumber> numbers = numbers_of_call(computation.graph, given, pinned);
    b_.end_function(lower_nodes(computation.graph, inputs, numbers, computation.name));
  }

  Builder& b_;
  const HostCalls host_calls_;
  std::deque<Graph> bodies_;  // of calls that are inlined
  std::deque<bool> pinned_;   // of their numbers, which nobody asks for
  std::map<std::string, size_t> composite_count_;
  std::unordered_map<const Graph*, Coalescing> coalescing_;
  std::unordered_map<uint64_t, std::string> functions_;  // by Computation::hash
};

Vals inline_computation(Builder& b, const Computation& computation, const Vals& frames,
                        HostCalls host_calls) {
  std::deque<bool> pinned;
  std::vector<LoweredNumber> numbers = numbers_of_call(computation.graph, {}, pinned);
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
      if (host_calls != HostCalls::Never && is_checked(signature)) {
        lower_host_call(context, state);
      } else {
        signature.lower(context);
      }
      break;
    case Tier::Decomposition:
      for (size_t i = 0; i < std::min(state.frames.size(), state.shapes.size()); ++i) {
        state.frames[i] = b.reshape(state.frames[i], state.shapes[i]);
      }
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

namespace {

Val flattened(Builder& b, Val x) { return b.reshape(x, {x.numel()}); }

}  // namespace

LoweredModule lower_graph(const Graph& graph, const std::string& name,
                          const NumberPlacement& placement, HostCalls host_calls) {
  Builder b(name);
  b.set_precision(graph.precision);
  if (host_calls == HostCalls::IfFaster) {
    b.move_bits_of_bfloat16();
  }
  b.set_partitions(graph.partitions);
  b.begin_function("main", true);
  const std::vector<bool> flat = host_calls == HostCalls::IfFaster
                                     ? flat_inputs(graph)
                                     : std::vector<bool>(graph.inputs.size(), false);
  Vals inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const TensorType& type = graph.inputs[i]->type(0);
    inputs.push_back(flat[i] ? b.reshape(b.parameter({type.dtype, {type.numel()}}), type.dims)
                             : b.parameter(type));
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
      results[i] = flat[graph.donated[i]] ? flattened(b, results[i]) : results[i];
      b.alias_parameter(graph.donated[i], static_cast<int64_t>(i));
    }
  }
  LoweredModule module;
  module.may_fail = b.may_fail();
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
