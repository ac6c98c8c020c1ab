// Nested Python arguments as a flat list of tensors and a description of all the rest. Needs the
// GIL.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <vector>

namespace torch_xla {

// A Python object that may be dropped without the GIL.
std::shared_ptr<PyObject> shared(pybind11::handle object);

// Everything of a value but its tensors. Equal trees have equal words and equal leaves.
struct Tree {
  std::vector<uint64_t> words;
  std::vector<PyObject*> leaves;  // static values, dictionary keys, node contexts; see TreePtr
};

// A tree that owns its leaves; may be dropped without the GIL.
using TreePtr = std::shared_ptr<const Tree>;
TreePtr own(Tree tree);

// Borrows from the value it was made of, which must outlive it and not change: counting references
// to hundreds of tensors would cost more than all the rest of a call.
struct Flattened {
  Tree tree;
  std::vector<at::Tensor> tensors;
  std::vector<PyObject*> kept;  // what flattening made: released by the destructor
  bool changeable = false;      // it has containers that other threads could change without the GIL
  Flattened() = default;
  ~Flattened();
  Flattened(const Flattened&) = delete;
  Flattened& operator=(const Flattened&) = delete;
};

// Appends a value. `what` names it in errors ("argument 'x' of f"). Static values that cannot be
// hashed are refused when `hashable` is set.
void flatten(PyObject* value, const std::string& what, bool hashable, Flattened& out);

bool same_leaves(const Tree& x, const Tree& y);
uint64_t hash_tree(const Tree& tree);

// The value again, with these tensors in the places of the first ones.
pybind11::object unflatten(const Tree& tree, std::vector<at::Tensor> tensors);

// What differs between two trees, in words.
std::string describe_tree_difference(const Tree& before, const Tree& now);

// flatten(value) -> None or (children, context), and its inverse, for types known only to Python.
void set_node_functions(pybind11::object flatten, pybind11::object unflatten);

}  // namespace torch_xla
