#include "explain/compare.h"

#include "base/location.h"
#include "explain/compare_calls.h"
#include "explain/words.h"

#include <algorithm>
#include <bit>
#include <set>
#include <unordered_map>

namespace torch_xla::explain {

namespace {

constexpr const char* kJoinedAdvice =
    "run it before the step: torch_xla.sync(), or torch_xla.compile around the step, which "
    "does so by itself";

class Comparison {
 public:
  Comparison(const GraphSummary& before, const GraphSummary& now, bool region)
      : before_(before), now_(now), region_(region), alignment_(align(before, now)) {
    collect_unmatched();
  }

  Explanation run() const {
    if (before_.same_graph(now_)) {
      return numbers();
    }
    using Check = std::optional<Explanation> (Comparison::*)() const;
    constexpr Check kChecks[] = {&Comparison::another_computation,
                                 &Comparison::input_windows,
                                 &Comparison::joined,
                                 &Comparison::new_or_gone,
                                 &Comparison::calls,
                                 &Comparison::links,
                                 &Comparison::results,
                                 &Comparison::donations};
    for (Check check : kChecks) {
      if (auto explanation = (this->*check)()) {
        return *explanation;
      }
    }
    return {"order", "the same operations were recorded in another order", ""};
  }

 private:
  void collect_unmatched() {
    for (size_t i = 0; i < now_.operations.size(); ++i) {
      if (alignment_.before_of[i] < 0) {
        new_.push_back(i);
        uneven_.insert(now_.operations[i].key);
      }
    }
    for (size_t i = 0; i < before_.operations.size(); ++i) {
      if (alignment_.now_of[i] < 0) {
        gone_.push_back(i);
        uneven_.insert(before_.operations[i].key);
      }
    }
  }

  const Operation& before_of(size_t now) const {
    return before_.operations[alignment_.before_of[now]];
  }
  GraphValue operand_now(size_t operation, size_t i) const {
    return now_.operands[now_.operations[operation].first_operand + i];
  }
  GraphValue operand_before(size_t operation, size_t i) const {
    return before_.operands[before_of(operation).first_operand + i];
  }
  size_t operand_count(size_t operation) const {
    return std::min(now_.operations[operation].signature->operands.size(),
                    before_of(operation).signature->operands.size());
  }

  // The first whose line is known, else the first.
  static const Operation& telling(const std::vector<Operation>& operations,
                                  const std::vector<size_t>& chosen) {
    for (size_t i : chosen) {
      if (operations[i].location != 0) {
        return operations[i];
      }
    }
    return operations[chosen.front()];
  }

  std::optional<Explanation> another_computation() const {
    const size_t total = now_.operations.size();
    const size_t common = total - new_.size();
    if (total < 4 || common * 4 >= std::min(total, before_.operations.size())) {
      return std::nullopt;
    }
    return Explanation{"another computation",
                       "a different computation: " + std::to_string(new_.size()) + " of its " +
                           std::to_string(total) + " operations are new, the first is " +
                           operator_at(telling(now_.operations, new_)),
                       "code that runs different computations at one line compiles each once"};
  }

  // What differs already where inputs are first read causes all differences behind it. Operators
  // whose number differs are left out: which call is which is not known.
  std::optional<Explanation> input_windows() const {
    for (size_t n = 0; n < now_.operations.size(); ++n) {
      if (alignment_.before_of[n] < 0 || uneven_.count(now_.operations[n].key) > 0) {
        continue;
      }
      for (size_t i = 0; i < operand_count(n); ++i) {
        if (operand_now(n, i).producer < 0 && operand_before(n, i).producer < 0) {
          if (auto window = changed_window(before_of(n), now_.operations[n], i)) {
            return window;
          }
        }
      }
    }
    return std::nullopt;
  }

  // All new operations that `producer` depends on, itself included.
  void add_new_producers(int32_t producer, std::set<size_t>& found) const {
    std::vector<int32_t> stack{producer};
    while (!stack.empty()) {
      const int32_t at = stack.back();
      stack.pop_back();
      if (at < 0 || alignment_.before_of[at] >= 0 || !found.insert(at).second) {
        continue;
      }
      for (size_t i = 0; i < now_.operations[at].signature->operands.size(); ++i) {
        stack.push_back(operand_now(at, i).producer);
      }
    }
  }

  // New operations, in code that had no part in the graph, compute what was an input.
  std::optional<Explanation> joined() const {
    std::set<size_t> found;
    for (size_t n = 0; n < now_.operations.size(); ++n) {
      for (size_t i = 0; alignment_.before_of[n] >= 0 && i < operand_count(n); ++i) {
        if (operand_before(n, i).producer < 0 && operand_now(n, i).producer >= 0) {
          add_new_producers(operand_now(n, i).producer, found);
        }
      }
    }
    std::set<std::pair<std::string, std::string>> scopes;
    for (const Operation& operation : before_.operations) {
      const Location& location = location_of(operation.location);
      scopes.emplace(location.file, location.scope);
    }
    std::vector<size_t> foreign;
    for (size_t n : found) {
      const Location& location = location_of(now_.operations[n].location);
      if (now_.operations[n].location != 0 && scopes.count({location.file, location.scope}) == 0) {
        foreign.push_back(n);
      }
    }
    if (foreign.empty()) {
      return std::nullopt;
    }
    const std::string where = place(now_.operations[foreign.front()].location);
    const std::string what = count_text(foreign.size(), "operation");
    return Explanation{"joined",
                       region_
                           ? what + " recorded before the region " + where + " joined this graph"
                           : what + " recorded " + where + " joined this graph: what " +
                                 (foreign.size() == 1 ? "it computes was an input before"
                                                      : "they compute was an input before"),
                       kJoinedAdvice};
  }

  static std::string and_more(size_t count) {
    return count < 2 ? "" : ", and " + count_text(count - 1, "more operation");
  }

  bool has_key(const GraphSummary& summary, uint64_t key) const {
    return std::binary_search(summary.sorted_keys.begin(), summary.sorted_keys.end(), key);
  }

  static size_t count_key(const GraphSummary& summary, uint64_t key) {
    auto range = std::equal_range(summary.sorted_keys.begin(), summary.sorted_keys.end(), key);
    return static_cast<size_t>(range.second - range.first);
  }

  std::optional<Explanation> new_or_gone() const {
    if (new_.empty() && gone_.empty()) {
      return std::nullopt;
    }
    const Operation& first =
        new_.empty() ? telling(before_.operations, gone_) : telling(now_.operations, new_);
    if (has_key(before_, first.key) && has_key(now_, first.key)) {
      return repeated(first);
    }
    if (gone_.empty()) {
      return Explanation{"new operation",
                         "operator " + operator_at(first) + " is new" + and_more(new_.size()),
                         "a branch that depends on a Python value gives a program for each side"};
    }
    if (new_.empty()) {
      return Explanation{"missing operation",
                         "operator " + operator_at(first) + " is gone" + and_more(gone_.size()) +
                             (!became_input()     ? ""
                              : gone_.size() == 1 ? ": what it computed is an input now"
                                                  : ": what they computed are inputs now"),
                         became_input() ? "expected once after a first step; else a value that is "
                                          "read on the host in the middle of the step cuts it"
                                        : "a branch that depends on a Python value gives a program "
                                          "for each side"};
    }
    return Explanation{"new operation",
                       "operator " + operator_at(first) + " is new" + and_more(new_.size()) +
                           ", where " + operator_at(telling(before_.operations, gone_)) +
                           " was (a branch?)",
                       "a branch that depends on a Python value gives a program for each side; "
                       "torch.where chooses on the device"};
  }

  Explanation repeated(const Operation& operation) const {
    return {"repetitions",
            "operator " + operator_at(operation) + " was recorded " +
                count_text(count_key(before_, operation.key), "time") + ", now " +
                count_text(count_key(now_, operation.key), "time") + " (a loop of varying length?)",
            "a loop is unrolled into the graph: run it equally often in each step"};
  }

  // An operation that stayed reads as an input what an operation that is gone computed.
  bool became_input() const {
    for (size_t n = 0; n < now_.operations.size(); ++n) {
      for (size_t i = 0; alignment_.before_of[n] >= 0 && i < operand_count(n); ++i) {
        const int32_t producer = operand_before(n, i).producer;
        if (operand_now(n, i).producer < 0 && producer >= 0 && alignment_.now_of[producer] < 0) {
          return true;
        }
      }
    }
    return false;
  }

  std::optional<Explanation> calls() const {
    for (size_t n = 0; n < now_.operations.size(); ++n) {
      if (before_of(n).signature->hash != now_.operations[n].signature->hash) {
        if (auto difference = changed_signature(before_of(n), now_.operations[n])) {
          return difference;
        }
        return Explanation{"function",
                           "what " + operator_at(now_.operations[n]) + " computes has changed",
                           "a function that makes other operations, or other constants, from call "
                           "to call is another function each time"};
      }
    }
    return std::nullopt;
  }

  std::string operand_at(size_t operation, size_t i) const {
    return operand_argument(*now_.operations[operation].signature, i) + " of " +
           operator_at(now_.operations[operation]);
  }

  std::string origin(const GraphSummary& summary, GraphValue value) const {
    return value.producer < 0 ? "an input"
                              : "the result of " + operator_at(summary.operations[value.producer]);
  }

  // Which input of one graph is which of the other, as far as operations have told.
  struct InputPairs {
    std::unordered_map<uint32_t, uint32_t> now_of;
    std::unordered_map<uint32_t, uint32_t> before_of;
  };

  // An operand that is an input in both graphs, read through the same window.
  std::optional<Explanation> input_link(size_t operation, size_t i, InputPairs& pairs) const {
    const uint32_t from = operand_before(operation, i).index;
    const uint32_t to = operand_now(operation, i).index;
    const TensorType& was = before_.inputs[from];
    const TensorType& is = now_.inputs[to];
    if (was != is) {
      return Explanation{"storage",
                         operand_at(operation, i) + " is part of a storage that held " +
                             shape_text(was.dims) + " " + dtype_text(was.dtype) + ", now " +
                             shape_text(is.dims) + " " + dtype_text(is.dtype),
                         "clone() the slice, so that it has a storage of its own"};
    }
    if (!before_.input_shardings.empty() && !now_.input_shardings.empty() &&
        before_.input_shardings[from] != now_.input_shardings[to]) {
      return Explanation{"sharding",
                         operand_at(operation, i) + " was sharded as " +
                             before_.input_shardings[from]->text() + ", now " +
                             now_.input_shardings[to]->text(),
                         "expected once after a first step; else mark_sharding it before the loop"};
    }
    const bool same_to = pairs.now_of.try_emplace(from, to).first->second == to;
    const bool same_from = pairs.before_of.try_emplace(to, from).first->second == from;
    if (same_to && same_from) {
      return std::nullopt;
    }
    return Explanation{"sharing",
                       operand_at(operation, i) +
                           (same_to ? " is now the same tensor as another input of the graph"
                                    : " was the same tensor as another input of the graph, now "
                                      "it is one of its own"),
                       "tie or copy tensors once, before the loop"};
  }

  // All operations have their counterparts: do these read the counterparts' results?
  std::optional<Explanation> links() const {
    InputPairs pairs;
    for (size_t n = 0; n < now_.operations.size(); ++n) {
      for (size_t i = 0; i < operand_count(n); ++i) {
        const GraphValue from = operand_before(n, i);
        const GraphValue to = operand_now(n, i);
        if (from.producer < 0 && to.producer < 0) {
          if (auto input = input_link(n, i, pairs)) {
            return input;
          }
        } else if (from.producer < 0 || to.producer < 0 ||
                   alignment_.now_of[from.producer] != to.producer || from.index != to.index) {
          return Explanation{
              "links",
              operand_at(n, i) + " was " + origin(before_, from) + ", now " + origin(now_, to), ""};
        }
      }
    }
    return std::nullopt;
  }

  std::optional<Explanation> results() const {
    std::set<std::pair<int32_t, uint32_t>> kept;
    for (GraphValue value : before_.outputs) {
      kept.emplace(value.producer < 0 ? -1 : alignment_.now_of[value.producer], value.index);
    }
    std::set<std::pair<int32_t, uint32_t>> keeps;
    for (GraphValue value : now_.outputs) {
      keeps.emplace(value.producer, value.index);
    }
    auto explanation = [&](std::pair<int32_t, uint32_t> value, const char* what) {
      return Explanation{"results",
                         "the result of " + operator_at(now_.operations[value.first]) + what,
                         "tensors alive at the end of a step are results of its program: delete "
                         "or detach them in every step alike"};
    };
    for (const auto& value : keeps) {
      if (value.first >= 0 && kept.count(value) == 0) {
        return explanation(value, " is now kept after the graph, it was not before");
      }
    }
    for (const auto& value : kept) {
      if (value.first >= 0 && keeps.count(value) == 0) {
        return explanation(value, " is no longer kept after the graph");
      }
    }
    return std::nullopt;
  }

  std::optional<Explanation> donations() const {
    for (size_t o = 0; o < std::min(now_.outputs.size(), before_.outputs.size()); ++o) {
      const bool was = before_.donated[o] >= 0;
      const bool is = now_.donated[o] >= 0;
      if (was == is || now_.outputs[o].producer < 0) {
        continue;
      }
      const std::string result =
          "the result of " + operator_at(now_.operations[now_.outputs[o].producer]);
      return Explanation{
          "donation",
          was ? result + " no longer takes the memory of an input: something still holds that"
              : result + " now takes the memory of an input, which nothing else holds any more",
          was ? "a tensor kept from the step before (a list of losses, a snapshot of the "
                "parameters)? Keep a detached copy on the CPU instead"
              : "expected once, after a first step"};
    }
    if (before_.output_shardings != now_.output_shardings) {
      return Explanation{"sharding", "results must lie on the devices in another way than before",
                         "expected once after a first step"};
    }
    if (before_.donated != now_.donated) {
      return Explanation{"donation", "other inputs give their memory to the results", ""};
    }
    return std::nullopt;
  }

  // The same graph: a number it was compiled for differs, or its program was dropped.
  Explanation numbers() const {
    for (const Operation& operation : now_.operations) {
      for (size_t i = 0; i < operation.signature->number_kinds.size(); ++i) {
        const size_t at = operation.first_number + i;
        if (before_.promoted[at] || same_number(before_.numbers[at], now_.numbers[at])) {
          continue;
        }
        return changed_number(operation, i, before_.numbers[at], now_.numbers[at],
                              now_.promoted[at]);
      }
    }
    return {"dropped", "it was compiled before and has been dropped from memory",
            "raise TORCH_XLA_MEMORY_PROGRAMS or, for hundreds of large programs on the CPU, the "
            "kernel's vm.max_map_count"};
  }

  const GraphSummary& before_;
  const GraphSummary& now_;
  const bool region_;
  const Alignment alignment_;
  std::vector<size_t> new_;   // operations of now_
  std::vector<size_t> gone_;  // operations of before_
  std::set<uint64_t> uneven_;
};

}  // namespace

Alignment align(const GraphSummary& before, const GraphSummary& now) {
  Alignment alignment;
  alignment.before_of.assign(now.operations.size(), -1);
  alignment.now_of.assign(before.operations.size(), -1);
  struct Occurrences {
    std::vector<size_t> at;
    size_t next = 0;
  };
  std::unordered_map<uint64_t, Occurrences> by_key;
  for (size_t i = 0; i < before.operations.size(); ++i) {
    by_key[before.operations[i].key].at.push_back(i);
  }
  for (size_t i = 0; i < now.operations.size(); ++i) {
    auto found = by_key.find(now.operations[i].key);
    if (found == by_key.end() || found->second.next == found->second.at.size()) {
      continue;
    }
    const size_t counterpart = found->second.at[found->second.next++];
    alignment.before_of[i] = static_cast<int32_t>(counterpart);
    alignment.now_of[counterpart] = static_cast<int32_t>(i);
  }
  return alignment;
}

Explanation compare(const GraphSummary& before, const GraphSummary& now, bool region) {
  return Comparison(before, now, region).run();
}

}  // namespace torch_xla::explain
