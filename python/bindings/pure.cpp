// assume_pure for Python: flattens arguments, finds their static part, calls the core.
#include "bindings.h"
#include "pytree.h"

#include "base/error.h"
#include "base/location.h"
#include "compile/region_scope.h"
#include "eager/mode.h"
#include "pure/pure_function.h"
#include "pure/stages.h"
#include "pure/trace.h"
#include "record/generator.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <unordered_map>
#include <utility>

namespace torch_xla {

namespace py = pybind11;

namespace {

// What a trace needs beyond its computation.
struct Annotation {
  TreePtr results;
  std::shared_ptr<PyObject> replay;  // replay.py; null: nothing happens on the host
};

// One set of static arguments: the user's function over the tensors alone.
class PythonCallee : public PureCallee {
 public:
  // `run`: calls a function with arguments, and says what calls do on the host.
  PythonCallee(std::shared_ptr<PyObject> function, std::shared_ptr<PyObject> run, TreePtr arguments)
      : function_(std::move(function)), run_(std::move(run)), arguments_(std::move(arguments)) {}

  Tensors run(const Tensors& tensors) override {
    py::gil_scoped_acquire gil;
    py::tuple call = unflatten(*arguments_, tensors).cast<py::tuple>();
    annotation_ = std::make_shared<Annotation>();
    py::object result = run_function(std::move(call));
    Flattened flat;
    flatten(result.ptr(), "the result", false, flat);
    Tensors owned = flat.tensors;
    annotation_->results = own(std::move(flat.tree));
    return owned;
  }

  std::shared_ptr<void> annotation() override { return annotation_; }

 private:
  py::object run_function(py::tuple call) {
    auto args = call[0].cast<py::tuple>();
    auto kwargs = call[1].cast<py::dict>();
    call = py::tuple();
    py::handle function(function_.get());
    if (run_ == nullptr) {
      return function(*args, **kwargs);
    }
    auto made = py::handle(run_.get())(function, args, kwargs).cast<py::tuple>();
    annotation_->replay = made[1].is_none() ? nullptr : shared(made[1]);
    return made[0];
  }

  std::shared_ptr<PyObject> function_, run_;
  TreePtr arguments_;
  std::shared_ptr<Annotation> annotation_;
};

bool is_wrapped(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::Functionalize, c10::DispatchKey::Python});
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kWrappers);
}

class PythonPureFunction {
 public:
  PythonPureFunction(py::object function, const std::string& name, size_t max_entries, bool check,
                     py::object run, py::object find_tensors, py::object find_flags)
      : function_(shared(function)),
        run_(run.is_none() ? nullptr : shared(run)),
        find_tensors_(std::move(find_tensors)),
        find_flags_(std::move(find_flags)),
        pure_(name, {max_entries, check},
              [this](uint64_t before, uint64_t now) { return describe(before, now); }) {}

  py::object call(const py::tuple& args, const py::dict& kwargs) {
    if (c10::impl::TorchDispatchModeTLS::any_modes_set()) {
      return call_directly(args, kwargs);
    }
    return record(args, kwargs, false);
  }

  // Runs the call at once and alone in its program: what is pending runs before. Inside a compiled
  // region or another trace it only becomes part of that. Modes that watch operators see those of
  // the trace: the first call of a graph of torch.compile comes under one.
  py::object launch(const std::shared_ptr<CompiledFunction>& program, const py::args& args,
                    const py::kwargs& kwargs) {
    std::optional<RegionScope> region;
    {
      py::gil_scoped_release no_gil;
      region.emplace(program);
    }
    py::object result = record(args, kwargs, region->is_outermost());
    py::gil_scoped_release no_gil;
    region->end();
    return result;
  }

  // What such a call computes. Nothing is run or changed.
  LoweredCall lower(const py::args& args, const py::kwargs& kwargs) {
    std::optional<PureFunction::Traced> traced;
    Begun begun;
    for (int i = 0; i < 2 && !traced; ++i) {  // a call that meets an optimizer first is not traced
      Flattened flat;
      begun = Begun();
      traced = find(args, kwargs, flat, begun);
    }
    if (!traced) {
      throw Error("lower() of " + pure_.name() +
                  " needs a call that can be traced: outside of modes and transformations that "
                  "watch operators, and, for a training step, after a first one, which makes the "
                  "optimizer's state");
    }
    py::gil_scoped_release no_gil;
    return lower_call(*traced->entry, begun.numbers);
  }

  PureCacheInfo info() const { return pure_.info(); }

  void clear(bool statistics = true) {
    known_.clear();
    watched_.clear();
    py::gil_scoped_release no_gil;
    pure_.clear(statistics);
  }

 private:
  struct Begun;

  // `alone`: as a program of its own.
  py::object record(const py::tuple& args, const py::dict& kwargs, bool alone) {
    Flattened flat;
    Begun begun;
    std::optional<PureFunction::Traced> traced = find(args, kwargs, flat, begun);
    if (!traced) {
      return call_directly(args, kwargs);
    }
    Tensors results = run_call(traced->entry, flat, begun.numbers, alone);
    const auto& annotation = *static_cast<const Annotation*>(traced->annotation.get());
    if (annotation.replay) {
      py::handle(annotation.replay.get()).attr("end")();
    }
    return unflatten(*annotation.results, std::move(results));
  }

  // The call's tensors and its trace, made if need be; nothing where the function must run itself.
  std::optional<PureFunction::Traced> find(const py::tuple& args, const py::dict& kwargs,
                                           Flattened& flat, Begun& begun) {
    flat.tree.words.push_back(uint64_t{4} | uint64_t{2} << 8);  // the tuple (args, kwargs)
    flatten(args.ptr(), name_of_arguments(), true, flat);
    flatten(kwargs.ptr(), name_of_arguments(), true, flat);
    for (const at::Tensor& tensor : flat.tensors) {
      if (is_wrapped(tensor)) {  // under a transformation, which must see the operators
        return std::nullopt;
      }
      if (!is_xla(tensor)) {
        throw Error("the pure function " + pure_.name() + " was given a tensor on " +
                    tensor.device().str() +
                    ": move its arguments to the device first, with "
                    ".to('xla')");
      }
    }
    check_watched();
    const Known& known = find_static(flat.tree, args, kwargs);
    uint64_t key = key_of(known);
    TreePtr tree = known.tree;
    current_location();
    PureFunction::Query query = PureFunction::query(key, flat.tensors);
    std::optional<PureFunction::Traced> traced;
    if (!pure_.checks()) {
      traced = pure_.find(query, flat.tensors, begun);
    }
    if (!traced) {
      begun = Begun();
      try {
        traced = trace(query, flat.tensors, tree, begun);
      } catch (py::error_already_set& error) {
        if (!error.matches(run_as_it_is())) {
          throw;
        }
        return std::nullopt;
      }
      watched_ = find_places(find_tensors_, args, kwargs);
      if (begun.annotation != traced->annotation.get()) {
        TORCH_CHECK(begun(traced->annotation.get()), "the trace of ", pure_.name(),
                    " does not hold for the call that made it");
      }
    }
    return traced;
  }

  // Asks the host's part of a trace whether it holds, and for its numbers.
  struct Begun {
    void* annotation = nullptr;
    CallNumbers numbers;

    bool operator()(void* traced) {
      annotation = traced;
      numbers.clear();
      const auto& replay = static_cast<const Annotation*>(traced)->replay;
      if (!replay) {
        return true;
      }
      py::gil_scoped_acquire gil;
      py::object found = py::handle(replay.get()).attr("begin")();
      if (found.is_none()) {
        return false;
      }
      numbers = found.cast<CallNumbers>();
      return true;
    }
  };

  static py::object run_as_it_is() {
    return py::module_::import("torch_xla._internal.replay").attr("RunAsItIs");
  }

  // A place that holds a tensor or a flag the function may read without being given it.
  class Place {
   public:
    py::object container;  // a dict or a cell
    py::object key;
    py::object seen;

    Place(py::object container, py::object key)
        : container(std::move(container)), key(std::move(key)) {}

    bool is_as_seen() const { return current() == seen.ptr(); }

    // A dictionary in which nothing was put since is not asked again: a step looks at thousands.
    PyObject* current() const {
      if (PyCell_Check(container.ptr())) {
        return PyCell_GET(container.ptr());
      }
#if PY_VERSION_HEX < 0x030D0000  // later dictionaries do not tell
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
      const uint64_t now = reinterpret_cast<PyDictObject*>(container.ptr())->ma_version_tag;
#pragma GCC diagnostic pop
      if (now == std::exchange(version_, now)) {
        return held_;
      }
#endif
      held_ = PyDict_GetItemWithError(container.ptr(), key.ptr());
      if (held_ == nullptr && PyErr_Occurred() != nullptr) {
        version_ = 0;
        throw py::error_already_set();
      }
      return held_;
    }

   private:
    mutable PyObject* held_ = nullptr;  // by the dictionary, while this is its version
    mutable uint64_t version_ = 0;
  };

  // One of many, whose dictionaries are rarely in the processor's caches: those that follow are
  // asked for ahead.
  static const Place& fetched(const std::vector<Place>& places, size_t i) {
    constexpr size_t kAhead = 8;
    if (i + kAhead < places.size()) {
      __builtin_prefetch(places[i + kAhead].container.ptr());
    }
    return places[i];
  }

  struct Known {
    uint64_t key = 0;
    TreePtr tree;
    std::vector<Place> flags;
  };

  PureFunction::Traced trace(const PureFunction::Query& query, const Tensors& borrowed,
                             const TreePtr& tree, Begun& begun) {
    Tensors tensors = borrowed;
    auto make = [&] { return std::make_shared<PythonCallee>(function_, run_, tree); };
    py::gil_scoped_release no_gil;
    return pure_.find_or_trace(query, tensors, make, begun);
  }

  static Tensors run_call(const EntryPtr& entry, const Flattened& flat, const CallNumbers& numbers,
                          bool alone) {
    const bool only_records = !entry->trains && entry->gradient_writes.empty();
    if (!alone && !eager::enabled() && only_records) {
      return call_entry(entry, flat.tensors, numbers);
    }
    const Tensors owned = flat.changeable ? flat.tensors : Tensors();
    const Tensors& tensors = flat.changeable ? owned : flat.tensors;
    py::gil_scoped_release no_gil;
    if (alone) {
      if (std::optional<Tensors> results = launch_entry(entry, tensors, numbers)) {
        return std::move(*results);
      }
    }
    return call_entry(entry, tensors, numbers);
  }

  std::string name_of_arguments() const { return "an argument of " + pure_.name(); }

  py::object call_directly(const py::tuple& args, const py::dict& kwargs) {
    PyObject* result = PyObject_Call(function_.get(), args.ptr(), kwargs.ptr());
    if (result == nullptr) {
      throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(result);
  }

  static std::vector<Place> find_places(const py::object& find, const py::tuple& args,
                                        const py::dict& kwargs) {
    std::vector<Place> places;
    if (find.is_none()) {
      return places;
    }
    for (py::handle item : find(args, kwargs)) {
      auto pair = item.cast<py::tuple>();
      Place place(pair[0], pair[1]);
      if (PyObject* seen = place.current()) {
        place.seen = py::reinterpret_borrow<py::object>(seen);
        places.push_back(std::move(place));
      }
    }
    return places;
  }

  // The static part of the key: 32 bits of the tree, 32 of the flags.
  static uint64_t key_of(const Known& known) {
    uint64_t bits = 0;
    for (size_t i = 0; i < known.flags.size(); ++i) {
      const bool flag = fetched(known.flags, i).current() == Py_True;
      bits = bits * 0x9E3779B97F4A7C15ull + (flag ? 2 : 1);
    }
    return known.key << 32 | ((bits ^ bits >> 32) & 0xFFFFFFFF);
  }

  const Known& find_static(const Tree& tree, const py::tuple& args, const py::dict& kwargs) {
    uint64_t hash = hash_tree(tree);
    auto [first, last] = known_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (it->second.tree->words == tree.words && same_leaves(*it->second.tree, tree)) {
        return it->second;
      }
    }
    if (known_.size() >= 4 * std::max<size_t>(pure_.info().max_size, 64)) {
      known_.clear();
    }
    return known_
        .emplace(hash, Known{next_key_++, own(tree), find_places(find_flags_, args, kwargs)})
        ->second;
  }

  // A name that stands for another tensor than when the function was traced: trace again.
  void check_watched() {
    for (size_t i = 0; i < watched_.size(); ++i) {
      if (!fetched(watched_, i).is_as_seen()) {
        clear(/*statistics=*/false);
        return;
      }
    }
  }

  std::string describe(uint64_t before, uint64_t now) {
    py::gil_scoped_acquire gil;
    TreePtr trees[2];
    for (auto& [hash, known] : known_) {
      if (known.key == before >> 32 || known.key == now >> 32) {
        trees[known.key == now >> 32] = known.tree;
      }
    }
    return trees[0] && trees[1] ? describe_tree_difference(*trees[0], *trees[1])
                                : "an argument that is not a tensor changed";
  }

  std::shared_ptr<PyObject> function_, run_;
  py::object find_tensors_, find_flags_;
  PureFunction pure_;
  // Guarded by the GIL.
  std::unordered_multimap<uint64_t, Known> known_;
  uint64_t next_key_ = 1;
  std::vector<Place> watched_;
};

void collect_garbage() {
  py::gil_scoped_acquire gil;
  py::module_::import("gc").attr("collect")();
}

// A tensor's object has references of ours, of the tensor while C++ has it, too, and of its
// holders.
bool has_holders(PyObject* object, const at::Tensor& tensor, Py_ssize_t ours) {
  return Py_REFCNT(object) > ours + (tensor.use_count() > 1 ? 1 : 0);
}

at::Tensor find_held(const std::function<bool(const at::Tensor&)>& wanted) {
  py::gil_scoped_acquire gil;
  const py::list objects = py::module_::import("gc").attr("get_objects")();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects.ptr()); ++i) {
    PyObject* object = PyList_GET_ITEM(objects.ptr(), i);  // without a reference of its own
    if (!THPVariable_Check(object)) {
      continue;
    }
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (tensor.defined() && has_holders(object, tensor, 1) && wanted(tensor)) {  // the list's
      return tensor;
    }
  }
  return {};
}

bool is_held(const at::Tensor& tensor) {
  py::gil_scoped_acquire gil;
  PyObject* object = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  return object != nullptr && has_holders(object, tensor, 0);
}

// Random numbers of the running trace come from this state.
void use_rng_state(const at::Tensor& state) {
  TraceScope* scope = current_scope();
  TORCH_CHECK(scope != nullptr, "use_rng_state is for functions that are being traced");
  at::Generator generator = new_generator(scope->device);
  xla_generator(generator).adopt(state.clone());
  scope->generator = std::move(generator);
}

}  // namespace

void bind_pure(py::module& m) {
  set_garbage_collector(&collect_garbage);
  set_held_finder(&find_held);
  set_held_check(&is_held);
  py::class_<PureCacheInfo>(m, "PureCacheInfo")
      .def_readonly("hits", &PureCacheInfo::hits)
      .def_readonly("misses", &PureCacheInfo::misses)
      .def_readonly("traces", &PureCacheInfo::traces)
      .def_readonly("size", &PureCacheInfo::size)
      .def_readonly("max_size", &PureCacheInfo::max_size);
  py::class_<PythonPureFunction>(m, "PureFunction")
      .def(py::init<py::object, const std::string&, size_t, bool, py::object, py::object,
                    py::object>(),
           py::arg("function"), py::arg("name"), py::arg("max_entries"), py::arg("check"),
           py::arg("run") = py::none(), py::arg("find_tensors") = py::none(),
           py::arg("find_flags") = py::none())
      .def("call", &PythonPureFunction::call)
      .def("launch", &PythonPureFunction::launch)
      .def("lower", &PythonPureFunction::lower)
      .def("info", &PythonPureFunction::info)
      .def("clear", [](PythonPureFunction& self) { self.clear(); });
  m.def("set_node_functions", &set_node_functions);
  m.def("use_rng_state", &use_rng_state);
  m.def("is_tracing", [] { return current_scope() != nullptr; });
}

}  // namespace torch_xla
