// What the sanitizers must know about code that is not built with them (plugins, PyTorch), so that
// each of their reports is about ours.

// An impossible allocation is to fail, as it does without a sanitizer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

// The thread sanitizer sees the locks of such code, and judges only what ours does under them.
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1 ignore_noninstrumented_modules=1";
}

// PyTorch's lock around registrations is taken inside it and released in our destructors.
extern "C" const char* __tsan_default_suppressions() {
  return "mutex:c10::RegistrationHandleRAII\n";
}
