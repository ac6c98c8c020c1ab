// Tells the core which Python line is recording.
#include "bindings.h"
#include "frames.h"

#include "base/env.h"
#include "base/location.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>

namespace torch_xla {

namespace {

// Names of files may hold bytes that are no text; they are told as Python shows them.
std::string readable(PyObject* name) {
  auto bytes = pybind11::reinterpret_steal<pybind11::bytes>(
      PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace"));
  if (!bytes) {
    throw pybind11::error_already_set();
  }
  return bytes;
}

bool may_be_a_cell(const std::string& file) {
  return file.starts_with("<ipython-input-") || file.find("/ipykernel_") != std::string::npos;
}

// A cell of a notebook is a file that nobody wrote: IPython knows which it is.
std::string name_of_file(PyCodeObject* code) {
  std::string file = readable(code->co_filename);
  if (!may_be_a_cell(file)) {
    return file;
  }
  try {
    const auto shell = pybind11::module_::import("IPython").attr("get_ipython")();
    const pybind11::handle name_of_code(code->co_filename);
    const auto name = shell.attr("compile").attr("format_code_name")(name_of_code);
    return name.is_none() ? file : pybind11::str(" ").attr("join")(name).cast<std::string>();
  } catch (const pybind11::error_already_set&) {
    return file;  // no IPython is at work, or one that tells nobody
  }
}

constexpr const char* kLibraries[] = {"/torch/", "/torch_xla/", "/IPython/", "/ipykernel/"};

// Code objects of PyTorch, of this package, of what runs and prints a notebook's cells and of
// frozen importers are not the user's; what was typed at a prompt is.
bool is_library_code(PyCodeObject* code) {
  const std::string file = readable(code->co_filename);
  if (file.starts_with("<")) {
    return file != "<stdin>" && !file.starts_with("<ipython-input-");
  }
  return std::any_of(std::begin(kLibraries), std::end(kLibraries),
                     [&](const char* folder) { return file.find(folder) != std::string::npos; });
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

// How often it has started anew.
std::atomic<uint64_t> known_generation{0};

// Valid until the next call.
KnownCode& lookup(PyCodeObject* code) {
  if (known_code().size() >= kMostKnown && known_code().count(code) == 0) {
    known_generation.fetch_add(1, std::memory_order_release);
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

std::string function_name(const PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
  return readable(code->co_qualname);
#else
  return readable(code->co_name);
#endif
}

uint32_t location_in(PyCodeObject* code, KnownCode& known, int offset) {
  auto [it, inserted] = known.locations.try_emplace(offset, 0);
  if (inserted) {
    it->second =
        intern_location({name_of_file(code), PyCode_Addr2Line(code, offset), function_name(code)});
  }
  return it->second;
}

// Where the operation of a graph came from, while the graph is traced; else 0.
thread_local uint32_t graph_location = 0;

#ifdef TORCH_XLA_READS_FRAMES

// Stands for code that is not the user's, in place of a location.
constexpr uint32_t kLibrary = ~uint32_t{0};

// What this thread has found lately, so that the interpreter's lock is taken for new places only.
struct RecentPlaces {
  struct Place {
    PyCodeObject* code = nullptr;
    int offset = 0;
    uint32_t location = 0;
  };
  static constexpr size_t kCount = 1024;
  uint64_t generation = 0;
  Place places[kCount];

  Place& find(PyCodeObject* code, int offset) {
    if (const uint64_t now = known_generation.load(std::memory_order_acquire); now != generation) {
      std::fill(std::begin(places), std::end(places), Place{});
      generation = now;
    }
    const size_t hash = (reinterpret_cast<uintptr_t>(code) >> 4) * 31 + static_cast<size_t>(offset);
    return places[hash % kCount];
  }
};

uint32_t learn_location(PyCodeObject* code, int offset) {
  pybind11::gil_scoped_acquire gil;
  KnownCode& known = lookup(code);
  return known.library ? kLibrary : location_in(code, known, offset);
}

uint32_t location_of_frames(const PyThreadState* thread) {
  thread_local RecentPlaces recent;
  for (frames::Frame* frame = frames::innermost(thread); frame != nullptr;
       frame = frames::caller(frame)) {
    PyCodeObject* code = frames::code(frame);
    const int offset = frames::offset(frame);
    RecentPlaces::Place& place = recent.find(code, offset);
    if (place.code != code || place.offset != offset) {
      place = {code, offset, learn_location(code, offset)};
    }
    if (place.location != kLibrary) {
      return place.location;
    }
  }
  return 0;
}

#else

// Through objects, and under the interpreter's lock.
uint32_t location_of_frames(const PyThreadState*) {
  pybind11::gil_scoped_acquire gil;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  uint32_t result = 0;
  while (frame != nullptr && result == 0) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    KnownCode& known = lookup(code);
    if (!known.library) {
      result = location_in(code, known, PyFrame_GetLasti(frame));
    }
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return result;
}

#endif

// The innermost frame of the user's own code; 0 on threads without one.
uint32_t python_location() {
  if (graph_location != 0) {
    return graph_location;
  }
  const PyThreadState* thread = PyGILState_GetThisThreadState();
  return thread == nullptr || !Py_IsInitialized() ? 0 : location_of_frames(thread);
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
