# What the build takes from the Python environment: PyTorch's libraries and the headers of the
# plugin interface. Packages are located, never imported: importing PyTorch takes seconds.
# TORCH_XLA_PACKAGES is another environment's Python to take them from: what we need of PyTorch is the
# same for every Python of one release.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(Threads REQUIRED)

set(packages_python ${Python_EXECUTABLE})
if(TORCH_XLA_PACKAGES)
  set(packages_python ${TORCH_XLA_PACKAGES})
endif()

function(find_python_package variable package remedy)
  execute_process(
    COMMAND ${packages_python} -c
            "import importlib.util as u; print(u.find_spec('${package}').submodule_search_locations[0])"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${packages_python} has no package '${package}'. ${remedy}")
  endif()
  set(${variable} ${folder} PARENT_SCOPE)
endfunction()

set(remedy "Run dev/setup, or point Python_EXECUTABLE to an environment that has it.")
find_python_package(TORCH_DIR torch "${remedy}")
find_python_package(PJRT_DIR xla_plugins.xla_cpu_pjrt "${remedy} (pip package xla-cpu-pjrt)")
find_python_package(JAXLIB_DIR jaxlib "${remedy}")
find_python_package(EMBEDDED_DIR fastatomstruct_xla_cpu "${remedy}")
set(EMBEDDED_PLUGIN ${EMBEDDED_DIR}/libpjrt_cpu.so)
message(STATUS "PyTorch: ${TORCH_DIR}")

function(import_torch_library target name)
  add_library(${target} SHARED IMPORTED)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${TORCH_DIR}/lib/lib${name}.so)
endfunction()
import_torch_library(torch::c10 c10)
import_torch_library(torch::cpu torch_cpu)
import_torch_library(torch::python torch_python)

add_library(torch_headers INTERFACE)
target_include_directories(torch_headers SYSTEM INTERFACE
  ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include)

add_library(torch_core INTERFACE)
add_library(torch::core ALIAS torch_core)
target_link_libraries(torch_core INTERFACE torch_headers torch::cpu torch::c10 Threads::Threads)

# PJRT's C API and the foreign-function interface of XLA: headers only.
add_library(plugin_headers INTERFACE)
target_include_directories(plugin_headers SYSTEM INTERFACE
  ${PJRT_DIR}/include ${JAXLIB_DIR}/include)

# What every target of this project compiles with.
add_library(torch_xla_build INTERFACE)
target_include_directories(torch_xla_build INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(torch_xla_build INTERFACE torch_xla_flags torch::core plugin_headers)
