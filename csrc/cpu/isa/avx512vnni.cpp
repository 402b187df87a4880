#define STRATA_SIMD_AVX512 1
#define STRATA_SIMD_VNNI 1
#define STRATA_KERNELS kAvx512Vnni
#define STRATA_ISA_NAME "avx512vnni"
#include "cpu/isa/kernels.inc"
