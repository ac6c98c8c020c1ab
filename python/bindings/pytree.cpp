#include "pytree.h"

#include <torch/csrc/autograd/python_variable.h>

#include <bit>

namespace torch_xla {

namespace py = pybind11;

namespace {

enum Code : uint64_t { kNone, kTensor, kDict, kList, kTuple, kNode, kBool, kInt, kFloat, kStatic };

uint64_t word(Code code, uint64_t count = 0) { return code | count << 8; }
Code code_of(uint64_t w) { return static_cast<Code>(w & 0xFF); }
size_t count_of(uint64_t w) { return static_cast<size_t>(w >> 8); }

struct NodeFunctions {
  py::object flatten, unflatten;
};

NodeFunctions& node_functions() {
  static auto* functions = new NodeFunctions;
  return *functions;
}

at::Tensor borrowed(const at::Tensor& tensor) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(
      tensor.unsafeGetTensorImpl()));
}

class Flattener {
 public:
  Flattener(const std::string& what, bool hashable, Flattened& out)
      : what_(what), hashable_(hashable), out_(out) {}

  void add(PyObject* value) {
    if (THPVariable_Check(value)) {
      push(kTensor);
      out_.tensors.push_back(borrowed(THPVariable_Unpack(value)));
    } else if (value == Py_None) {
      push(kNone);
    } else if (PyDict_CheckExact(value)) {
      out_.changeable = out_.changeable || PyDict_GET_SIZE(value) > 0;
      add_dict(value);
    } else if (PyTuple_CheckExact(value)) {
      push(kTuple, static_cast<size_t>(PyTuple_GET_SIZE(value)));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
        add(PyTuple_GET_ITEM(value, i));
      }
    } else if (PyList_CheckExact(value)) {
      out_.changeable = true;
      push(kList, static_cast<size_t>(PyList_GET_SIZE(value)));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) {
        add(PyList_GET_ITEM(value, i));
      }
    } else if (!add_number(value)) {
      add_other(value);
    }
  }

 private:
  void push(Code code, uint64_t count = 0) { out_.tree.words.push_back(word(code, count)); }

  void add_dict(PyObject* dict) {
    push(kDict, static_cast<size_t>(PyDict_GET_SIZE(dict)));
    // Of a dictionary of a thousand parameters little is in the processor's caches: what follows is
    // asked for ahead.
    constexpr int kAhead = 8;
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0, ahead = 0;
    const auto fetch = [&] {
      const bool more = PyDict_Next(dict, &ahead, &key, &value) != 0;
      if (more) {
        __builtin_prefetch(key);
        __builtin_prefetch(value);
      }
      return more;
    };
    for (int i = 0; i < kAhead && fetch(); ++i) {
    }
    while (fetch(), PyDict_Next(dict, &position, &key, &value) != 0) {
      leaf(key);
      add(value);
    }
  }

  // Numbers are told apart by type and bits: 1, 1.0 and True are different arguments.
  bool add_number(PyObject* value) {
    if (PyBool_Check(value)) {
      push(kBool, value == Py_True ? 1 : 0);
      out_.tree.leaves.push_back(value);
      return true;
    }
    if (PyFloat_CheckExact(value)) {
      push(kFloat);
      out_.tree.words.push_back(std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(value)));
      out_.tree.leaves.push_back(value);
      return true;
    }
    if (PyLong_CheckExact(value)) {
      push(kInt);
      leaf(value);
      return true;
    }
    return false;
  }

  void add_other(PyObject* value) {
    if (!PyUnicode_CheckExact(value)) {
      py::object parts = node_functions().flatten(py::handle(value));
      if (!parts.is_none()) {
        add_node(parts);
        return;
      }
    }
    push(kStatic);
    leaf(value);
  }

  void add_node(const py::object& parts) {
    auto pair = parts.cast<py::tuple>();
    auto children = pair[0].cast<py::list>();
    out_.changeable = true;
    PyObject* context = pair[1].ptr();
    Py_INCREF(context);
    out_.kept.push_back(context);
    push(kNode, children.size());
    out_.tree.words.push_back(0);
    out_.tree.leaves.push_back(context);
    for (py::handle child : children) {
      add(child.ptr());
      Py_INCREF(child.ptr());
      out_.kept.push_back(child.ptr());
    }
  }

  void leaf(PyObject* value) {
    Py_hash_t hash = PyObject_Hash(value);
    if (hash == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      if (hashable_) {
        throw py::type_error("assume_pure: " + what_ + " holds a " +
                             std::string(Py_TYPE(value)->tp_name) +
                             ", which is not a tensor and cannot be hashed, so that calls with "
                             "equal values could not be recognised: pass its parts instead, or "
                             "register the type with torch.utils._pytree");
      }
      hash = 0;
    }
    out_.tree.words.push_back(static_cast<uint64_t>(hash));
    out_.tree.leaves.push_back(value);
  }

  const std::string& what_;
  const bool hashable_;
  Flattened& out_;
};

class Unflattener {
 public:
  Unflattener(const Tree& tree, std::vector<at::Tensor> tensors)
      : tree_(tree), tensors_(std::move(tensors)) {}

  py::object next() {
    uint64_t w = tree_.words[word_++];
    switch (code_of(w)) {
      case kNone:
        return py::none();
      case kTensor:
        return py::reinterpret_steal<py::object>(
            THPVariable_Wrap(std::move(tensors_.at(tensor_++))));
      case kDict:
        return dict(count_of(w));
      case kList:
        return list(count_of(w));
      case kTuple:
        return tuple(count_of(w));
      case kNode: {
        ++word_;
        py::object context = py::reinterpret_borrow<py::object>(tree_.leaves[leaf_++]);
        return node_functions().unflatten(context, list(count_of(w)));
      }
      case kBool:
        return py::reinterpret_borrow<py::object>(tree_.leaves[leaf_++]);
      default:
        ++word_;
        return py::reinterpret_borrow<py::object>(tree_.leaves[leaf_++]);
    }
  }

 private:
  py::list list(size_t count) {
    py::list result(count);
    for (size_t i = 0; i < count; ++i) {
      result[i] = next();
    }
    return result;
  }

  py::tuple tuple(size_t count) {
    py::tuple result(count);
    for (size_t i = 0; i < count; ++i) {
      PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), next().release().ptr());
    }
    return result;
  }

  py::dict dict(size_t count) {
    py::dict result;
    for (size_t i = 0; i < count; ++i) {
      ++word_;
      py::object key = py::reinterpret_borrow<py::object>(tree_.leaves[leaf_++]);
      result[key] = next();
    }
    return result;
  }

  const Tree& tree_;
  std::vector<at::Tensor> tensors_;
  size_t word_ = 0, leaf_ = 0, tensor_ = 0;
};

std::string text(PyObject* value) {
  auto result = py::repr(py::handle(value)).cast<std::string>();
  return result.size() > 60 ? result.substr(0, 57) + "..." : result;
}

}  // namespace

Flattened::~Flattened() {
  for (at::Tensor& tensor : tensors) {
    tensor.unsafeReleaseTensorImpl();
  }
  for (PyObject* object : kept) {
    Py_DECREF(object);
  }
}

std::shared_ptr<PyObject> shared(py::handle object) {
  Py_INCREF(object.ptr());
  return {object.ptr(), [](PyObject* dead) {
            if (Py_IsInitialized() != 0) {
              py::gil_scoped_acquire gil;
              Py_DECREF(dead);
            }
          }};
}

TreePtr own(Tree tree) {
  for (PyObject* leaf : tree.leaves) {
    Py_INCREF(leaf);
  }
  return {new Tree(std::move(tree)), [](const Tree* dead) {
            if (Py_IsInitialized() != 0) {
              py::gil_scoped_acquire gil;
              for (PyObject* leaf : dead->leaves) {
                Py_DECREF(leaf);
              }
            }
            delete dead;
          }};
}

void flatten(PyObject* value, const std::string& what, bool hashable, Flattened& out) {
  Flattener(what, hashable, out).add(value);
}

bool same_leaves(const Tree& x, const Tree& y) {
  if (x.leaves.size() != y.leaves.size()) {
    return false;
  }
  for (size_t i = 0; i < x.leaves.size(); ++i) {
    PyObject *a = x.leaves[i], *b = y.leaves[i];
    if (a == b) {
      continue;
    }
    if (PyFloat_CheckExact(a) && PyFloat_CheckExact(b)) {
      continue;  // compared by bits
    }
    int equal = Py_TYPE(a) == Py_TYPE(b) ? PyObject_RichCompareBool(a, b, Py_EQ) : 0;
    if (equal < 0) {
      throw py::error_already_set();
    }
    if (equal == 0) {
      return false;
    }
  }
  return true;
}

uint64_t hash_tree(const Tree& tree) {
  uint64_t hash = 0x9E3779B97F4A7C15ull;
  for (uint64_t w : tree.words) {
    hash = (hash ^ w) * 0xFF51AFD7ED558CCDull;
    hash ^= hash >> 32;
  }
  return hash;
}

py::object unflatten(const Tree& tree, std::vector<at::Tensor> tensors) {
  return Unflattener(tree, std::move(tensors)).next();
}

std::string describe_tree_difference(const Tree& before, const Tree& now) {
  for (size_t i = 0; i < std::min(before.leaves.size(), now.leaves.size()); ++i) {
    if (before.leaves[i] != now.leaves[i] && text(before.leaves[i]) != text(now.leaves[i])) {
      return "the argument " + text(before.leaves[i]) + " became " + text(now.leaves[i]);
    }
  }
  return "the structure of the arguments changed";
}

void set_node_functions(py::object flatten, py::object unflatten) {
  node_functions() = {std::move(flatten), std::move(unflatten)};
}

}  // namespace torch_xla
