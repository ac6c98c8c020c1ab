#include "execution/launch.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "metrics/metrics.h"
#include "pjrt/fork_guard.h"
#include "pjrt/sharded_buffer.h"
#include "timeline/timeline.h"

#include <cstdlib>
#include <deque>
#include <unordered_map>

namespace torch_xla {

namespace {

struct Flight {
  pjrt::CompletionPtr completion;
  VariantPtr program;  // what it calls must be there
};

class Flights {
 public:
  static Flights& of(int device) {
    static Mutex mutex;
    static auto* flights = new std::deque<Flights>;
    MutexLock lock(mutex);
    while (flights->size() <= static_cast<size_t>(device)) {
      flights->emplace_back();
    }
    return (*flights)[device];
  }

  void launched(Flight flight) {
    constexpr size_t kInFlight = 2;
    // A plugin must not be computing while the process takes it apart.
    static const int registered = std::atexit(&Flights::land_all);
    static_cast<void>(registered);
    Flight oldest;
    {
      MutexLock lock(mutex_);
      flights_.push_back(std::move(flight));
      if (flights_.size() <= kInFlight) {
        return;
      }
      oldest = std::move(flights_.front());
      flights_.pop_front();
    }
    try {
      await(oldest);
    } catch (const Error&) {
      // It belongs to whoever reads the results, not to the next program.
    } catch (...) {
      MutexLock lock(mutex_);
      flights_.push_front(std::move(oldest));
      throw;
    }
  }

  // For all of them; then throws the first error.
  void wait() {
    std::deque<Flight> flights;
    {
      MutexLock lock(mutex_);
      flights.swap(flights_);
    }
    std::exception_ptr first;
    for (; !flights.empty(); flights.pop_front()) {
      try {
        await(flights.front());
      } catch (const Error&) {
        first = first ? first : std::current_exception();
      } catch (...) {
        MutexLock lock(mutex_);
        flights_.insert(flights_.begin(), flights.begin(), flights.end());
        throw;
      }
    }
    if (first) {
      std::rethrow_exception(first);
    }
  }

 private:
  static void land_all() {
    if (pjrt::in_forked_child) {
      return;  // what flies is the parent's
    }
    NoInterrupts at_exit;
    for (int device = 0; device < pjrt::device_count_hint(); ++device) {
      try {
        of(device).wait();
      } catch (const std::exception&) {
        // Whoever could read the result is gone.
      }
    }
    pjrt::await_uploads();
  }

  static void await(const Flight& flight) {
    if (flight.completion) {
      timeline::Scope span(timeline::Kind::Wait);
      flight.completion->await();
    }
  }
  Mutex mutex_;
  std::deque<Flight> flights_ GUARDED_BY(mutex_);
};

std::vector<bool> donatable_inputs(const Graph& graph) REQUIRES(trace_mutex) {
  std::vector<bool> result;
  for (const NodePtr& input : graph.inputs) {
    DeviceData* data = device_data(*input);
    result.push_back(data != nullptr && data->holders == 0 && data->type.numel() > 0);
  }
  return result;
}

// Where the node is, right after the graph's collection, which left its number in each.
std::optional<GraphValue> place_of(const Graph& graph, const Node* node) REQUIRES(trace_mutex) {
  if (node == nullptr) {
    return std::nullopt;
  }
  const uint32_t number = node->visit.id;
  if (number < graph.inputs.size() && graph.inputs[number].get() == node) {
    return GraphValue{-1, number};
  }
  if (number < graph.nodes.size() && graph.nodes[number].node.get() == node) {
    return GraphValue{static_cast<int32_t>(number), 0};
  }
  return std::nullopt;
}

int32_t input_of(const Graph& graph, const Node* node) REQUIRES(trace_mutex) {
  const std::optional<GraphValue> place = place_of(graph, node);
  return place && place->producer < 0 ? static_cast<int32_t>(place->index) : -1;
}

struct TypeHash {
  size_t operator()(const TensorType& type) const {
    size_t hash = static_cast<size_t>(type.dtype);
    for (int64_t dim : type.dims) {
      hash = hash * 1000003 + static_cast<size_t>(dim);
    }
    return hash;
  }
};

pjrt::BufferPtr upload_pack(const void* data, DType dtype, size_t count, int device) {
  TensorType type{dtype, {static_cast<int64_t>(count)}};
  return pjrt::partitions() > 1
             ? pjrt::scatter_from_host(pjrt::client(), data, type, Sharding::replicated(), nullptr)
             : pjrt::client().buffer_from_host(data, type, device, nullptr);
}

// Launches, and tells the timeline when the device is done.
std::vector<pjrt::BufferPtr> launch_watched(const std::string& name, pjrt::Executable& executable,
                                            const std::vector<pjrt::Buffer*>& inputs,
                                            const std::vector<bool>& donated, int device,
                                            pjrt::CompletionPtr* completion) {
  metrics::Timed timed(metrics::metric("ExecuteTime"));
  timeline::Scope span(timeline::Kind::Launch, name);
  if (!timeline::on()) {
    return executable.execute(inputs, donated, device, completion);
  }
  auto watched = std::make_shared<timeline::Launch>(timeline::begin_launch(device, name));
  try {
    std::vector<pjrt::BufferPtr> outputs = executable.execute(inputs, donated, device, completion);
    outputs.front()->on_ready([watched] { timeline::note_ready(*watched); });
    return outputs;
  } catch (...) {
    timeline::note_ready(*watched);
    throw;
  }
}

}  // namespace

std::vector<bool> donated_inputs(const Graph& graph) {
  std::vector<bool> donated(graph.inputs.size(), false);
  for (int32_t input : graph.donated) {
    if (input >= 0) {
      donated[input] = true;
    }
  }
  return donated;
}

// An operation that somebody else refers to may run again, from its operands.
std::vector<bool> read_by_others(const Graph& graph, const std::vector<StatePtr>& states) {
  std::vector<int64_t> inputs, nodes;  // references that are not known yet
  for (const NodePtr& input : graph.inputs) {
    inputs.push_back(input.use_count() - 1);
  }
  for (const GraphNode& entry : graph.nodes) {
    nodes.push_back(entry.node.use_count() - 1);
  }
  auto references = [&](GraphValue value) -> int64_t& {
    return value.producer < 0 ? inputs[value.index] : nodes[value.producer];
  };
  for (const GraphValue& operand : graph.operands) {
    --references(operand);
  }
  for (const StatePtr& state : states) {
    for (const Node* node : {state->committed.get(), state->value().node.get()}) {
      if (const std::optional<GraphValue> place = place_of(graph, node)) {
        --references(*place);
      }
    }
  }
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (nodes[n] > 0) {
      for (const GraphValue operand : graph.operands_of(n)) {
        references(operand) = 1;
      }
    }
  }
  std::vector<bool> result;
  for (int64_t unknown : inputs) {
    result.push_back(unknown > 0);
  }
  return result;
}

// Over several devices each output takes only its own: others may lie differently.
void assign_donations(Graph& graph, const std::vector<const Node*>& former,
                      const std::vector<bool>& read_by_others) {
  std::vector<bool> available = donatable_inputs(graph);
  for (size_t i = 0; i < read_by_others.size(); ++i) {
    available[i] = available[i] && !read_by_others[i];
  }
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    const int32_t input = input_of(graph, former[o]);
    if (input >= 0 && available[input] &&
        graph.type(graph.outputs[o]) == graph.inputs[input]->type(0) &&
        (graph.partitions == 1 || graph.output_shardings[o] == graph.input_shardings[input])) {
      graph.donated[o] = input;
      available[input] = false;
    }
  }
  if (graph.partitions > 1) {
    return;
  }
  std::unordered_map<TensorType, std::vector<int32_t>, TypeHash> spare;
  for (size_t i = available.size(); i-- > 0;) {
    if (available[i]) {
      spare[graph.inputs[i]->type(0)].push_back(static_cast<int32_t>(i));
    }
  }
  if (spare.empty()) {
    return;
  }
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    if (graph.donated[o] >= 0) {
      continue;
    }
    auto found = spare.find(graph.type(graph.outputs[o]));
    if (found != spare.end() && !found->second.empty()) {
      graph.donated[o] = found->second.back();
      found->second.pop_back();
    }
  }
}

InputHold::InputHold(const std::vector<NodePtr>& leaves, const std::vector<bool>& donated) {
  held_.reserve(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    DeviceData* data = device_data(*leaves[i]);
    if (data != nullptr && !donated[i]) {
      ++data->holders;
      held_.push_back(data);
    }
  }
}

InputHold::~InputHold() {
  TraceLock lock;
  for (DeviceData* data : held_) {
    --data->holders;
  }
}

Launched launch_program(const Graph& graph, const Variant& variant, const std::string& name,
                        const std::vector<NodePtr>& leaves, const std::vector<bool>& donated,
                        int device) {
  std::vector<pjrt::BufferPtr> owned;
  std::vector<pjrt::Buffer*> inputs;
  inputs.reserve(leaves.size() + 2);
  for (const NodePtr& leaf : leaves) {
    pjrt::Buffer* settled = device_data(*leaf)->settled_buffer();
    if (settled == nullptr) {
      owned.push_back(device_data(*leaf)->buffer());
      settled = owned.back().get();
    }
    inputs.push_back(settled);
  }
  PackedNumbers packed = pack_numbers(graph.numbers, variant.placement);
  if (!packed.doubles.empty()) {
    owned.push_back(
        upload_pack(packed.doubles.data(), DType::Double, packed.doubles.size(), device));
    inputs.push_back(owned.back().get());
  }
  if (!packed.integers.empty()) {
    owned.push_back(
        upload_pack(packed.integers.data(), DType::Long, packed.integers.size(), device));
    inputs.push_back(owned.back().get());
  }
  std::vector<bool> given_up = donated;
  given_up.resize(inputs.size(), false);
  Launched launched;
  launched.outputs = launch_watched(name, variant.program->executable(), inputs, given_up, device,
                                    &launched.completion);
  if (launched.completion && pjrt::client().host_memory() && graph.partitions == 1) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!donated[i]) {
        device_data(*leaves[i])->read_until(launched.completion);
      }
    }
  }
  return launched;
}

void note_in_flight(int device, pjrt::CompletionPtr completion, VariantPtr program) {
  Flights::of(device).launched({std::move(completion), std::move(program)});
}

void wait_device(int device) { Flights::of(device).wait(); }

}  // namespace torch_xla
