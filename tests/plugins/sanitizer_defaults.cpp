// What the sanitizers must know about plugins, so that each of their reports is about our code.

// An impossible allocation is to fail, as it does without a sanitizer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

// The embedded plugin is not instrumented: the thread sanitizer sees its memory, not how it
// synchronises. (Others are tested without that sanitizer.)
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libpjrt_cpu.so\n"; }
