// Tells the core which Python line is recording.
#include "bindings.h"

#include "base/env.h"
#include "base/location.h"

#include <frameobject.h>

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace torch_xla {

namespace {

// Code objects of PyTorch, of this package and of frozen importers are not the user's.
bool is_library_code(PyCodeObject* code) {
  std::string file = PyUnicode_AsUTF8(code->co_filename);
  return file.find("/torch/") != std::string::npos ||
         file.find("/torch_xla/") != std::string::npos || file.rfind("<", 0) == 0;
}

struct KnownCode {
  bool library = false;
  std::unordered_map<int, uint32_t> locations;  // by instruction offset
};

// Guarded by the GIL. Holds a reference to every code object it knows, so that keys stay unique;
// programs may make code without end, so it starts anew from time to time.
constexpr size_t kMostKnown = size_t{1} << 14;
std::unordered_map<PyCodeObject*, KnownCode>& known_code() {
  static auto* table = new std::unordered_map<PyCodeObject*, KnownCode>;
  return *table;
}

// Valid until the next call.
KnownCode& lookup(PyCodeObject* code) {
  if (known_code().size() >= kMostKnown && known_code().count(code) == 0) {
    for (auto& [known, unused] : std::exchange(known_code(), {})) {
      Py_DECREF(known);
    }
  }
  auto [it, inserted] = known_code().try_emplace(code);
  if (inserted) {
    Py_INCREF(code);
    it->second.library = is_library_code(code);
  }
  return it->second;
}

uint32_t location_of_frame(PyFrameObject* frame, PyCodeObject* code, KnownCode& known) {
  int offset = PyFrame_GetLasti(frame);
  auto [it, inserted] = known.locations.try_emplace(offset, 0);
  if (inserted) {
    it->second = intern_location({PyUnicode_AsUTF8(code->co_filename), PyFrame_GetLineNumber(frame),
                                  PyUnicode_AsUTF8(code->co_qualname)});
  }
  return it->second;
}

// Where the operation of a graph came from, while the graph is traced; else 0.
thread_local uint32_t graph_location = 0;

// The innermost frame of the user's own code; 0 on threads without one (autograd's).
uint32_t python_location() {
  if (graph_location != 0) {
    return graph_location;
  }
  if (PyGILState_GetThisThreadState() == nullptr || !Py_IsInitialized()) {
    return 0;
  }
  pybind11::gil_scoped_acquire gil;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  uint32_t result = 0;
  while (frame != nullptr && result == 0) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    KnownCode& known = lookup(code);
    if (!known.library) {
      result = location_of_frame(frame, code, known);
    }
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return result;
}

}  // namespace

void bind_location(pybind11::module& m) {
  m.def("record_locations", [] {
    set_location_provider(env::flag("TORCH_XLA_LOCATIONS") ? &python_location : nullptr);
  });
  m.def("begin_region", &begin_region, pybind11::arg("name"));
  m.def("end_region", &end_region);
  m.def("set_graph_location", [](std::string file, int line, std::string scope) {
    graph_location = intern_location({std::move(file), line, std::move(scope)});
  });
  m.def("clear_graph_location", [] { graph_location = 0; });
}

}  // namespace torch_xla
