#include "bindings.h"

#include "program/cache_listing.h"
#include "program/program.h"

namespace torch_xla {

void bind_cache(pybind11::module& m) {
  pybind11::class_<ListedEntry>(m, "CacheEntry")
      .def_readonly("file", &ListedEntry::file)
      .def_readonly("name", &ListedEntry::name)
      .def_readonly("problem", &ListedEntry::problem)
      .def_readonly("size", &ListedEntry::size)
      .def_readonly("used", &ListedEntry::used);
  m.def("default_cache_directory", &default_cache_directory);
  m.def("initialize_cache", &initialize_disk_cache, NoGil());
  m.def("list_cache", &list_cache, pybind11::arg("directory"), pybind11::arg("verify"), NoGil());
  m.def("clear_cache", &clear_cache, NoGil());
}

}  // namespace torch_xla
