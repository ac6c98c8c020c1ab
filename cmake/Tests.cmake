# One test program of all *_test.cpp and of the plugins' conformance suite.

find_package(GTest)
set(test_sources ${CORE_TEST_SOURCES} ${PLUGIN_TEST_SOURCES} ${ATEN_TEST_SOURCES})
if(NOT GTest_FOUND)
  message(STATUS "GoogleTest is missing (Debian: libgtest-dev): no C++ tests")
elseif(test_sources)
  enable_testing()
  include(GoogleTest)
  add_executable(torch_xla_tests ${CORE_TEST_SOURCES} ${PLUGIN_TEST_SOURCES})
  target_link_libraries(torch_xla_tests PRIVATE torch_xla torch_xla_build GTest::gtest_main)
  if(ATEN_TEST_SOURCES)
    add_library(aten_test_objects OBJECT ${ATEN_TEST_SOURCES})
    target_link_libraries(aten_test_objects PRIVATE torch_xla_build GTest::gtest)
    precompile_header(aten_test_objects cmake/aten_pch.h)
    target_sources(torch_xla_tests PRIVATE $<TARGET_OBJECTS:aten_test_objects>)
  endif()
  # An executable at a fixed address, as Debian's own Python is one: what code sees of functions is
  # different there. It is enough that one file takes their addresses.
  target_link_options(torch_xla_tests PRIVATE -no-pie)
  add_library(allocating_test_library MODULE tests/plugins/loaded/allocating.cpp)
  set_source_files_properties(src/pjrt/imports_test.cpp PROPERTIES
    COMPILE_OPTIONS "-fno-pie;-fno-pic"
    COMPILE_DEFINITIONS "IMPORTS_TEST_LIBRARY=\"$<TARGET_FILE:allocating_test_library>\""
    SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(torch_xla_tests allocating_test_library)
  # Tests of lowering and programs want programs at once: those of tiers choose for themselves.
  # Every test that needs a plugin takes it from here; the suite of what a plugin must do runs a
  # second time, with the other one.
  gtest_discover_tests(torch_xla_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
    PROPERTIES ENVIRONMENT "TORCH_XLA_PLUGIN_PATH=${EMBEDDED_PLUGIN}"
               ENVIRONMENT_MODIFICATION "TORCH_XLA_TIERS=set:off")
  gtest_discover_tests(torch_xla_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
    TEST_FILTER "PluginTest*:FfiTest*" TEST_PREFIX "xla_cpu_pjrt/"
    PROPERTIES ENVIRONMENT "TORCH_XLA_PLUGIN_PATH=${PJRT_DIR}/xla_cpu_pjrt.so"
               ENVIRONMENT_MODIFICATION "TORCH_XLA_TIERS=set:off")
  gtest_discover_tests(torch_xla_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
    TEST_FILTER "ThreadsTest*" TEST_PREFIX "foreign/"
    PROPERTIES ENVIRONMENT "TORCH_XLA_PLUGIN_PATH=${EMBEDDED_PLUGIN}"
               ENVIRONMENT_MODIFICATION "PJRT_DEVICE=set:FOREIGN")

  # The generated pages of docs/ are those of the tables in the source.
  add_executable(reference_pages dev/reference_pages.cpp)
  target_link_libraries(reference_pages PRIVATE torch_xla torch_xla_build)
  add_test(NAME reference_pages
           COMMAND reference_pages --check ${CMAKE_CURRENT_SOURCE_DIR}/docs)
endif()
