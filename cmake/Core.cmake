# The core: every stage from recorder to plugin, without Python. The folders that include ATen
# share a precompiled header; the others never see one, so each of their files compiles in seconds.

# It is the same for every Python: wheels of several share one (dev/wheel).
if(TORCH_XLA_CORE)
  add_library(torch_xla SHARED IMPORTED)
  set_target_properties(torch_xla PROPERTIES IMPORTED_LOCATION ${TORCH_XLA_CORE})
  target_link_libraries(torch_xla INTERFACE torch::core)
  return()
endif()

add_library(served_objects OBJECT ${SERVED_SOURCES})  # the serving library's, too
target_link_libraries(served_objects PUBLIC torch_xla_build)
add_library(core_objects OBJECT ${CORE_SOURCES})
target_link_libraries(core_objects PUBLIC torch_xla_build)
if(ATEN_SOURCES)
  add_library(aten_objects OBJECT ${ATEN_SOURCES})
  target_link_libraries(aten_objects PUBLIC torch_xla_build)
  precompile_header(aten_objects cmake/aten_pch.h)
  set(aten_objects aten_objects)
endif()

add_library(torch_xla SHARED)
target_link_libraries(torch_xla PRIVATE core_objects served_objects ${aten_objects} ${CMAKE_DL_LIBS}
                                PUBLIC torch::core)
target_link_options(torch_xla PRIVATE -Wl,-Bsymbolic-functions)
set_target_properties(torch_xla PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
