# The library for serving exported programs: serve/ and the folders that it uses, with neither
# Python nor PyTorch behind it. Its symbols are hidden but for those of torch_xla/serve.h.

if(TORCH_XLA_CORE)
  cmake_path(REPLACE_FILENAME TORCH_XLA_CORE libtorch_xla_serve.so OUTPUT_VARIABLE serve_library)
  return()
endif()

add_library(torch_xla_serve SHARED ${SERVE_SOURCES} $<TARGET_OBJECTS:served_objects>)
target_link_libraries(torch_xla_serve PRIVATE torch_xla_flags torch_headers plugin_headers
                                              Threads::Threads ${CMAKE_DL_LIBS})
target_include_directories(torch_xla_serve PRIVATE ${PROJECT_SOURCE_DIR}/src
                                                   ${PROJECT_SOURCE_DIR}/include)
target_link_options(torch_xla_serve PRIVATE
  -Wl,--no-undefined -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/serve.map)
set_target_properties(torch_xla_serve PROPERTIES CXX_VISIBILITY_PRESET hidden
                                                 LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/serve.map)
