# Flags, sanitizers, compiler cache and linker, kept in the interface target torch_xla_flags.

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# PyTorch's library was built with NDEBUG: without it some structures of its headers are others.
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1 -DNDEBUG")

add_library(torch_xla_flags INTERFACE)
target_compile_options(torch_xla_flags INTERFACE -Wall -Wextra -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Calls inside the library are direct, although its symbols are visible to tests and bindings.
  # GCC takes the inline storage of c10::SmallVector for uninitialized.
  target_compile_options(torch_xla_flags INTERFACE
                         -fno-semantic-interposition -Wno-maybe-uninitialized)
endif()
if(TORCH_XLA_WERROR)
  target_compile_options(torch_xla_flags INTERFACE -Werror)
endif()
if(TORCH_XLA_SANITIZE)
  # PyTorch hides type information that the vptr check needs.
  set(sanitize -fsanitize=${TORCH_XLA_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer)
  target_compile_options(torch_xla_flags INTERFACE ${sanitize} -O1 -g1)
  target_link_options(torch_xla_flags INTERFACE ${sanitize})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns of every fence, which TSan does not model: those are in shared pointers' releases.
    target_compile_options(torch_xla_flags INTERFACE -Wno-tsan)
  endif()
endif()

find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # With precompiled headers the cache must not insist on time macros and on header times.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

find_program(LLD ld.lld)
mark_as_advanced(LLD)
if(LLD)
  target_link_options(torch_xla_flags INTERFACE -fuse-ld=lld)
endif()

# Gives `target` a precompiled header that the compiler cache can work with.
function(precompile_header target header)
  target_precompile_headers(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${header})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()
