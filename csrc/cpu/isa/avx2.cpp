#define STRATA_SIMD_AVX2 1
#define STRATA_KERNELS kAvx2
#define STRATA_ISA_NAME "avx2"
#include "cpu/isa/kernels.inc"
