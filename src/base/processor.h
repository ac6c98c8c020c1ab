// What the processor has that decides which kernel is faster. Any thread.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace torch_xla::processor {

#if defined(__x86_64__)
// Instructions for products of bfloat16. Vectors of 512 bits cost such processors no frequency.
inline bool multiplies_bfloat16() {
  static const bool does = __builtin_cpu_supports("avx512bf16") != 0;
  return does;
}

// oneDNN has kernels for bfloat16, if without instructions for it. Elsewhere PyTorch's own loops
// are left.
inline bool has_kernels_of_bfloat16() {
  static const bool has = __builtin_cpu_supports("avx512f") != 0;
  return has;
}

inline bool has_kernels_of_half() {
  static const bool has = [] {
    constexpr unsigned kFeatures = 7, kAvx512Fp16 = 1u << 23;
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) != 0 && (d & kAvx512Fp16) != 0;
  }();
  return has;
}

// Some of a vector of 16-bit numbers are loaded at once.
inline bool loads_16_bits_by_mask() {
  static const bool does = __builtin_cpu_supports("avx512bw") != 0;
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
inline bool has_kernels_of_bfloat16() { return true; }
inline bool has_kernels_of_half() { return true; }
inline bool loads_16_bits_by_mask() { return true; }
inline bool is_held_back_by_mkl() { return false; }
#endif

}  // namespace torch_xla::processor
