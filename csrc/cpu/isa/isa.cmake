# kernels.inc is compiled once per instruction set, each time with its own flags and namespace; dispatch.cpp picks one at
# run time. Only these files get instruction-set flags, so one build runs on every machine of its architecture.
string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" STRATA_CPU)
if(CMAKE_OSX_ARCHITECTURES)
  string(TOLOWER "${CMAKE_OSX_ARCHITECTURES}" STRATA_CPU)
endif()
target_sources(strata_core PRIVATE csrc/cpu/isa/dispatch.cpp csrc/cpu/isa/portable.cpp)
if(STRATA_CPU MATCHES "x86_64|amd64")
  target_sources(strata_core PRIVATE csrc/cpu/isa/avx2.cpp csrc/cpu/isa/avx512.cpp
    csrc/cpu/isa/avx512vnni.cpp)
  set_source_files_properties(csrc/cpu/isa/avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties(csrc/cpu/isa/avx512.cpp PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
  set_source_files_properties(csrc/cpu/isa/avx512vnni.cpp PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512vbmi;-mprefer-vector-width=512")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # gcc 12's own AVX-512 header trips these warnings
    set_property(SOURCE csrc/cpu/isa/avx512.cpp csrc/cpu/isa/avx512vnni.cpp APPEND PROPERTY COMPILE_OPTIONS "-Wno-maybe-uninitialized;-Wno-uninitialized")
  endif()
  target_compile_definitions(strata_core PRIVATE STRATA_X86=1)
elseif(STRATA_CPU MATCHES "aarch64|arm64")
  target_sources(strata_core PRIVATE csrc/cpu/isa/neon.cpp csrc/cpu/isa/neon_dotprod.cpp csrc/cpu/isa/neon_i8mm.cpp)
  set_source_files_properties(csrc/cpu/isa/neon_dotprod.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
  set_source_files_properties(csrc/cpu/isa/neon_i8mm.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm")
  target_compile_definitions(strata_core PRIVATE STRATA_ARM64=1)
endif()
