#include "bindings.h"

#include "base/env.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/mutex.h"

#include <torch/csrc/Exceptions.h>

#include <deque>

namespace torch_xla {

namespace {

pybind11::object& warning_callback() {
  static auto* callback = new pybind11::object;
  return *callback;
}

void forward_warning(const std::string& message) {
  pybind11::gil_scoped_acquire gil;
  try {
    warning_callback()(message);
  } catch (pybind11::error_already_set& error) {
    // Warnings turned into errors must not unwind through the core.
    if (error.matches(PyExc_KeyboardInterrupt)) {
      PyErr_SetInterrupt();  // raised again by the next bytecode
    } else {
      error.discard_as_unraisable("torch_xla warning");
    }
  }
}

// Python runs signal handlers on its main thread; what they raise goes on through the core.
void raise_if_interrupted() {
  pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw pybind11::error_already_set();
  }
}

// pybind11's or PyTorch's wrapper of what `except Exception` would not catch.
bool passes_every_handler(const std::exception& error) {
  pybind11::gil_scoped_acquire gil;
  if (const auto* raised = dynamic_cast<const pybind11::error_already_set*>(&error)) {
    return !raised->matches(PyExc_Exception);
  }
  const auto* raised = dynamic_cast<const python_error*>(&error);
  return raised != nullptr && raised->type != nullptr &&
         PyErr_GivenExceptionMatches(raised->type, PyExc_Exception) == 0;
}

// Once the interpreter is gone, nobody waits for its lock.
bool wait_without_interpreter(c10::function_ref<void()> wait) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
    return false;
  }
  pybind11::gil_scoped_release no_gil;
  wait();
  return true;
}

void bind_errors(pybind11::module& m) {
  pybind11::register_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (const OutOfMemoryError& error) {
      auto type = pybind11::module_::import("torch").attr("OutOfMemoryError");
      PyErr_SetString(type.ptr(), error.what());
    } catch (const Error& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
  });
  m.def("set_warning_handler", [](pybind11::object callback) {
    warning_callback() = std::move(callback);
    set_warning_handler(&forward_warning);
  });
  set_step_aside(&wait_without_interpreter);
  set_interrupt_handler(&raise_if_interrupted, &passes_every_handler);
  m.def("environment_markdown", &env::markdown);
  m.def("environment_problems", &env::problems);
}

}  // namespace

PYBIND11_MODULE(_XLAC, m) {
  bind_errors(m);
  bind_device(m);
  bind_cache(m);
  bind_sync(m);
  bind_random(m);
  bind_metrics(m);
  bind_decompose(m);
  bind_explain(m);
  bind_timeline(m);
  bind_location(m);
  bind_eager(m);
  bind_pure(m);
  bind_replay(m);
  bind_control(m);
  bind_dynamo(m);
  bind_spmd(m);
  bind_export(m);
  bind_tensors(m);
}

}  // namespace torch_xla
