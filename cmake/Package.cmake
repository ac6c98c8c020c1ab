# The contents of the Python package `torch_xla` that CMake makes. The prefix is the folder that
# holds the package: site-packages in a wheel, python/ in a checkout.

include(CMakePackageConfigHelpers)

# A wheel finds PyTorch beside itself; a checkout must remember where it is.
if(NOT SKBUILD AND NOT TORCH_XLA_CORE)
  set_target_properties(torch_xla PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endif()

if(TORCH_XLA_CORE)
  install(FILES ${TORCH_XLA_CORE} ${serve_library} DESTINATION torch_xla/lib COMPONENT torch_xla)
else()
  install(TARGETS torch_xla torch_xla_serve LIBRARY DESTINATION torch_xla/lib COMPONENT torch_xla)
endif()
if(TARGET _XLAC)
  install(TARGETS _XLAC LIBRARY DESTINATION torch_xla COMPONENT torch_xla)
endif()
install(FILES python/_torch_xla_autoload.py DESTINATION . COMPONENT torch_xla)
install(DIRECTORY include/ DESTINATION torch_xla/include COMPONENT torch_xla
        FILES_MATCHING PATTERN "*.h")

set(package_folder torch_xla/share/cmake/TorchXLA)
configure_package_config_file(cmake/TorchXLAConfig.cmake.in TorchXLAConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(TorchXLAConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TorchXLAConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/TorchXLAConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT torch_xla)

# Libraries look for a distribution called torch_xla. The egg-info form, because a wheel may hold
# only one dist-info folder, that of torch-pjrt.
configure_file(cmake/PKG-INFO.in PKG-INFO @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/PKG-INFO
        DESTINATION torch_xla-${PROJECT_VERSION}.egg-info COMPONENT torch_xla)
