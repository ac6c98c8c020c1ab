// What the processor has that decides which kernel is faster. Any thread.
#pragma once

namespace torch_xla::processor {

#if defined(__x86_64__)
// Instructions for products of bfloat16. Vectors of 512 bits cost such processors no frequency.
inline bool multiplies_bfloat16() {
  static const bool does = __builtin_cpu_supports("avx512bf16") != 0;
  return does;
}

// MKL keeps its kernels for AVX-512 to the processors of one maker; on the others oneDNN's take
// less than half the time.
inline bool is_held_back_by_mkl() {
  static const bool is = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_is("intel") == 0;
  return is;
}
#else
inline bool multiplies_bfloat16() { return false; }
inline bool is_held_back_by_mkl() { return false; }
#endif

}  // namespace torch_xla::processor
