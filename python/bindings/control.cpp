// Control flow for Python: functions over flat lists of tensors.
#include "bindings.h"
#include "pytree.h"

#include "base/location.h"
#include "pure/control.h"
#include "pure/pure_function.h"

namespace torch_xla {

namespace py = pybind11;

namespace {

// function(*tensors) -> (tensors, anything): what it says of the structure of its results.
class FlatCallee : public PureCallee {
 public:
  explicit FlatCallee(std::shared_ptr<PyObject> function) : function_(std::move(function)) {}

  Tensors run(const Tensors& tensors) override {
    py::gil_scoped_acquire gil;
    py::tuple arguments(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      arguments[i] = py::cast(tensors[i]);
    }
    auto result =
        py::reinterpret_steal<py::object>(PyObject_CallObject(function_.get(), arguments.ptr()));
    if (!result) {
      throw py::error_already_set();
    }
    auto pair = result.cast<py::tuple>();
    structure_ = shared(pair[1]);
    return pair[0].cast<Tensors>();
  }

  std::shared_ptr<void> annotation() override { return structure_; }

 private:
  const std::shared_ptr<PyObject> function_;
  std::shared_ptr<PyObject> structure_;
};

// A function that control flow calls, with its traces.
class FlatFunction {
 public:
  // `carried`: how many of its first results take the place of its first arguments, if it is the
  // body of a scan.
  FlatFunction(const py::object& function, const std::string& name, size_t carried)
      : function_(shared(function)), carried_(carried), pure_(name) {}

  // `structure`: of the results of the last trace that was asked for.
  Subgraph subgraph(std::shared_ptr<void>& structure) {
    return [this, &structure](const Tensors& examples) {
      PureFunction::Traced traced = pure_.find_or_trace(
          PureFunction::query(0, examples), examples,
          [this] { return with_own_results(std::make_shared<FlatCallee>(function_), carried_); });
      structure = traced.annotation;
      return traced.entry;
    };
  }

 private:
  const std::shared_ptr<PyObject> function_;
  const size_t carried_;
  PureFunction pure_;
};

py::object as_object(const std::shared_ptr<void>& structure) {
  return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(structure.get()));
}

py::tuple cond(const at::Tensor& predicate, FlatFunction& on_true, FlatFunction& on_false,
               const Tensors& operands) {
  current_location();
  std::shared_ptr<void> taken, otherwise;
  Tensors results;
  {
    py::gil_scoped_release no_gil;
    results = run_cond(predicate, on_true.subgraph(taken), on_false.subgraph(otherwise), operands);
  }
  return py::make_tuple(results, as_object(taken), as_object(otherwise));
}

py::tuple while_loop(FlatFunction& condition, FlatFunction& body, const Tensors& init,
                     const Tensors& same) {
  current_location();
  std::shared_ptr<void> tested, carried;
  Tensors results;
  {
    py::gil_scoped_release no_gil;
    results = run_while(condition.subgraph(tested), body.subgraph(carried), init, same);
  }
  return py::make_tuple(results, as_object(carried));
}

py::tuple scan(FlatFunction& body, const Tensors& init, const Tensors& stacks, const Tensors& same,
               int64_t length, bool reverse) {
  current_location();
  std::shared_ptr<void> structure;
  Tensors results;
  {
    py::gil_scoped_release no_gil;
    results = run_scan(body.subgraph(structure), {init, stacks, same, length, reverse});
  }
  return py::make_tuple(results, as_object(structure));
}

}  // namespace

void bind_control(py::module& m) {
  py::class_<FlatFunction, std::shared_ptr<FlatFunction>>(m, "FlatFunction")
      .def(py::init<py::object, const std::string&, size_t>(), py::arg("function"), py::arg("name"),
           py::arg("carried"));
  m.def("cond", &cond);
  m.def("while_loop", &while_loop);
  m.def("scan", &scan);
}

}  // namespace torch_xla
