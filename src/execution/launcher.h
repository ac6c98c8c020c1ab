// The one way to run a graph: its values are promised under the trace lock, so that other threads
// go on recording on top of them, and fulfilled, or failed with the cause, when it has run.
#pragma once

#include "execution/launch.h"
#include "execution/pieces.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch_xla {

class Execution {
 public:
  // `leaves` are read in place of the graph's own inputs (a graph may be kept for many executions).
  Execution(std::shared_ptr<const Graph> graph, std::vector<NodePtr> leaves,
            std::vector<bool> donated, int device) REQUIRES(trace_mutex);
  // What was never run fails: nobody waits for it for ever.
  ~Execution();
  Execution(Execution&&) = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // The storage has the graph's output from now on. When it fails, the storage returns to `before`,
  // if given and still there, unless it has got another value. When it is interrupted, the storage
  // returns to what was recorded: whoever wants it runs it again.
  void assign(StatePtr state, size_t output, NodePtr before) REQUIRES(trace_mutex);

  void reserve_assignments(size_t count) { assignments_.reserve(count); }

  const Graph& graph() const { return *graph_; }
  const DeviceDataPtr& output(size_t index) const { return outputs_[index]; }
  const NodePtr& leaf(size_t index) const { return leaves_[index]; }  // before it runs

  // Without locks. Returns when the program is launched, or the graph interpreted. What throws has
  // been rolled back; outputs that do not need the operation that failed have been computed.
  void run(const std::string& name) EXCLUDES(trace_mutex);

 private:
  struct Assignment {
    StatePtr state;
    size_t output;
    NodePtr before;
  };
  void compute(const std::string& name, std::optional<size_t>& culprit);
  // An execution of its own, whose output j keeps our promise `promises[j]`, unless that is -1.
  std::vector<DeviceDataPtr> run_part(Graph graph, std::vector<NodePtr> leaves,
                                      const std::vector<int32_t>& promises, const std::string& name,
                                      bool edge = false);
  // What several graphs have in common by itself (execution/pieces.h).
  void run_pieces(std::vector<Piece> pieces, const std::string& name);
  bool interpret_now(const std::string& name, std::optional<size_t>& culprit,
                     bool own_kernels = false);
  // Their memory is the results' from here on.
  void give_up_inputs();
  bool begins_write(size_t input);
  void launch(VariantPtr variant, const std::string& name);
  // Runs what can do without the culprit, then fails the rest.
  void fail(const std::exception_ptr& error, std::optional<size_t> culprit,
            const std::string& name);
  void compute_without(size_t culprit, const std::string& name);
  // Whether the graph is one that was recorded, of values that are all there.
  bool can_run_again();
  Value recorded(size_t output) const;
  void roll_back(const std::exception_ptr& error);

  std::shared_ptr<const Graph> graph_;  // null once all is settled
  std::vector<NodePtr> leaves_;
  std::vector<bool> donated_;
  int device_;
  std::vector<DeviceDataPtr> outputs_;
  std::vector<bool> fulfilled_;
  std::vector<Assignment> assignments_;
  std::unique_ptr<InputHold> hold_;
  bool edge_ = false;  // bookkeeping, not worth a program
};

}  // namespace torch_xla
