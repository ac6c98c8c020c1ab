#include "storage/programs.h"

#include "base/env.h"
#include "base/location.h"
#include "pjrt/client.h"
#include "pjrt/machine.h"
#include "stablehlo/builder.h"
#include "storage/mapping_watch.h"

#include <algorithm>
#include <list>
#include <map>

namespace torch_xla {

namespace {

using Key = std::pair<uint64_t, uint64_t>;

struct Table {
  std::mutex mutex;
  std::list<std::pair<Key, std::shared_ptr<Structure>>> recent;  // newest first
  std::map<Key, decltype(recent)::iterator> entries;
  // Elsewhere than on the CPU a program is no code of this process.
  MappingWatch mappings{&pjrt::mapping_count,
                        pjrt::client().host_memory() ? pjrt::mapping_limit() : 0};
};

Table& table() {
  static auto* instance = new Table;
  return *instance;
}

std::string reference_text(GraphValue value) {
  std::string name = value.producer < 0 ? "%in" + std::to_string(value.index)
                                        : "%" + std::to_string(value.producer);
  return value.producer >= 0 && value.index > 0 ? name + "#" + std::to_string(value.index) : name;
}

}  // namespace

std::shared_ptr<Structure> find_structure(const Graph& graph) {
  Table& t = table();
  Key key{graph.hash, graph.hash_high};
  size_t limit = static_cast<size_t>(env::integer("TORCH_XLA_MEMORY_PROGRAMS"));
  decltype(t.recent) dropped;  // destroyed without the lock
  std::lock_guard<std::mutex> lock(t.mutex);
  auto found = t.entries.find(key);
  if (found != t.entries.end()) {
    t.recent.splice(t.recent.begin(), t.recent, found->second);
    return found->second->second;
  }
  if (t.mappings.nearly_out()) {
    limit = std::min(limit, t.recent.size() / 2);
  }
  t.recent.emplace_front(key, std::make_shared<Structure>());
  t.entries[key] = t.recent.begin();
  while (t.recent.size() > std::max<size_t>(limit, 1)) {
    t.entries.erase(t.recent.back().first);
    dropped.splice(dropped.begin(), t.recent, std::prev(t.recent.end()));
  }
  return t.recent.front().second;
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
