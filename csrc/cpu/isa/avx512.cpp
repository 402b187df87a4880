#define STRATA_SIMD_AVX512 1
#define STRATA_KERNELS kAvx512
#define STRATA_ISA_NAME "avx512"
#include "cpu/isa/kernels.inc"
