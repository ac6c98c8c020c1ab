// What replay.py needs of the core: numbers of a trace, gradients to watch, the step counts that
// optimizers keep in CPU tensors, and steps that are taken back.
#include "bindings.h"

#include "pure/undo.h"
#include "torch_xla/assume_pure.h"
#include "trace/scope.h"
#include "trace/tensor.h"

#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>

namespace torch_xla {

namespace py = pybind11;

namespace {

// Numbers of the calling thread's trace, also from within traces inside it.
class TraceNumbers {
 public:
  TraceNumbers() : scope_(current_scope_ptr()) {
    TORCH_CHECK(scope_ != nullptr, "TraceNumbers is for functions that are being traced");
  }
  int64_t add(double value) {
    py::gil_scoped_release no_gil;
    return scope_->add_number(value);
  }
  int64_t add_computed(const at::Tensor& number) {
    py::gil_scoped_release no_gil;
    return scope_->add_computed(number);
  }

 private:
  ScopePtr scope_;
};

// CPU tensors of one number each that are read and written as one.
class HostScalars {
 public:
  explicit HostScalars(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    for (const at::Tensor& tensor : tensors_) {
      TORCH_CHECK(tensor.device().is_cpu() && tensor.numel() == 1 &&
                      tensor.scalar_type() == tensors_[0].scalar_type(),
                  "HostScalars are CPU tensors of one number and one dtype");
    }
  }

  // None where they differ.
  py::object read() const {
    std::optional<py::object> result;
    AT_DISPATCH_ALL_TYPES_AND(at::kHalf, tensors_[0].scalar_type(), "HostScalars", [&] {
      const scalar_t first = *tensors_[0].const_data_ptr<scalar_t>();
      bool same = true;
      for (const at::Tensor& tensor : tensors_) {
        same = same && *tensor.const_data_ptr<scalar_t>() == first;
      }
      if (same) {
        result = std::is_integral_v<scalar_t> ? py::object(py::int_(static_cast<int64_t>(first)))
                                              : py::object(py::float_(static_cast<double>(first)));
      }
    });
    return result ? *result : py::none();
  }

  void write(double value) {
    AT_DISPATCH_ALL_TYPES_AND(at::kHalf, tensors_[0].scalar_type(), "HostScalars", [&] {
      for (at::Tensor& tensor : tensors_) {
        *tensor.mutable_data_ptr<scalar_t>() = static_cast<scalar_t>(value);
      }
    });
  }

 private:
  std::vector<at::Tensor> tensors_;
};

// PyTorch hangs a symbolic number on the tensor that wraps it.
std::optional<int64_t> find_number(const at::Tensor& wrapped) {
  py::gil_scoped_acquire gil;
  py::object tensor = py::reinterpret_steal<py::object>(THPVariable_Wrap(wrapped));
  py::object number = py::getattr(tensor, "_wrapped_number", py::none());
  if (number.is_none() || !py::hasattr(number, "node")) {
    return std::nullopt;
  }
  return number.attr("node").attr("maybe_as_int")().cast<int64_t>();
}

// `with`: what is done meanwhile is no part of the trace around it.
class OutsideOfTraces {
 public:
  void enter() { guard_.emplace(nullptr); }
  void exit(const py::args&) { guard_.reset(); }

 private:
  std::optional<ScopeGuard> guard_;
};

}  // namespace

void bind_replay(py::module& m) {
  set_number_finder(&find_number);
  py::class_<TraceNumbers>(m, "TraceNumbers")
      .def(py::init<>())
      .def("add", &TraceNumbers::add)
      .def("add_computed", &TraceNumbers::add_computed);
  py::class_<HostScalars>(m, "HostScalars")
      .def(py::init<std::vector<at::Tensor>>())
      .def("read", &HostScalars::read)
      .def("write", &HostScalars::write);
  py::class_<WriteMark>(m, "WriteMark")
      .def(py::init<>(), py::call_guard<py::gil_scoped_release>())
      .def("undo_where", &WriteMark::undo_where, py::call_guard<py::gil_scoped_release>());
  py::class_<OutsideOfTraces>(m, "OutsideOfTraces")
      .def(py::init<>())
      .def("__enter__", &OutsideOfTraces::enter)
      .def("__exit__", &OutsideOfTraces::exit);
  m.def("watch_gradients", &watch_gradients);
}

}  // namespace torch_xla
