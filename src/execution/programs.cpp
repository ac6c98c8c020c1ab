#include "execution/programs.h"

#include "base/env.h"
#include "base/location.h"
#include "execution/mapping_watch.h"
#include "pjrt/client.h"
#include "pjrt/machine.h"
#include "program/memory_cache.h"
#include "stablehlo/builder.h"

#include <algorithm>
#include <mutex>

namespace torch_xla {

namespace {

struct Key {
  uint64_t low, high;
  bool operator==(const Key& other) const { return low == other.low && high == other.high; }
};

struct KeyHash {
  size_t operator()(const Key& key) const { return key.low; }
};

class Structures {
 public:
  std::shared_ptr<Structure> find(const Key& key) {
    std::shared_ptr<Structure> found = cache_.find(key);
    return found ? found : cache_.find_or_build(key, [] { return std::make_shared<Structure>(); });
  }

 private:
  size_t limit() {
    auto limit = static_cast<size_t>(env::integer("TORCH_XLA_MEMORY_PROGRAMS"));
    std::lock_guard<std::mutex> lock(mutex_);
    return mappings_.nearly_out() ? std::min(limit, cache_.size() / 2) : limit;
  }

  std::mutex mutex_;
  // Elsewhere than on the CPU a program is no code of this process.
  MappingWatch mappings_{&pjrt::mapping_count,
                         pjrt::client().host_memory() ? pjrt::mapping_limit() : 0};
  MemoryCache<Key, Structure, KeyHash> cache_{[this] { return limit(); }};
};

std::string reference_text(GraphValue value) {
  std::string name = value.producer < 0 ? "%in" + std::to_string(value.index)
                                        : "%" + std::to_string(value.producer);
  return value.producer >= 0 && value.index > 0 ? name + "#" + std::to_string(value.index) : name;
}

}  // namespace

std::shared_ptr<Structure> find_structure(const Graph& graph) {
  static auto* structures = new Structures;
  return structures->find({graph.hash, graph.hash_high});
}

std::string graph_text(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    text +=
        "%in" + std::to_string(i) + ": " + stablehlo::type_string(graph.inputs[i]->type(0)) + "\n";
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& entry = graph.nodes[n];
    const Node& node = *entry.node;
    text += "%" + std::to_string(n) + " = " + node.signature->op + "(";
    for (size_t i = 0; i < node.operands.size(); ++i) {
      text += (i > 0 ? ", " : "") + reference_text(graph.operands[entry.first_operand + i]);
    }
    text += "): " + stablehlo::type_string(node.type(0));
    if (node.location != 0) {
      text += "  # " + location_of(node.location).str();
    }
    text += "\n";
  }
  text += "return";
  for (GraphValue output : graph.outputs) {
    text += " " + reference_text(output);
  }
  return text + "\n";
}

}  // namespace torch_xla
