# Kernels. libkernels.a chooses the instruction set; libcpu_<isa>.a hold the same sources compiled once for each; libcpucore.a
# holds what all of them call. Every source in LF_CPU_ISA_SOURCES wraps its external names in LF_SYM (kernels/cpu/cpu.h).
noinst_LIBRARIES += kernels/libkernels.a kernels/libcpu_plain.a kernels/libcpucore.a
kernels_libkernels_a_SOURCES = kernels/kernels.h kernels/attn_rows.h kernels/experts.h kernels/norm.h kernels/scan.h kernels/xielu.h kernels/dwconv.h kernels/altup.h kernels/cpu/isa.c
kernels_libcpucore_a_SOURCES = kernels/cpu/cpu.h kernels/cpu/isa.h kernels/cpu/queue.c kernels/cpu/team.h kernels/cpu/team.c kernels/cpu/peak.h kernels/cpu/peak.c

LF_CPU_ISA_SOURCES = kernels/cpu/table.c kernels/cpu/simd.h
include kernels/gemm.mk
include kernels/kern.mk

kernels_libcpu_plain_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_plain_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=0
LF_ISA_LIBS += kernels/libcpu_plain.a
if HAVE_ISA_AVX2
noinst_LIBRARIES += kernels/libcpu_avx2.a
kernels_libcpu_avx2_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_avx2_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=1
kernels_libcpu_avx2_a_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_AVX2)
LF_ISA_LIBS += kernels/libcpu_avx2.a
endif
if HAVE_ISA_AVX512
noinst_LIBRARIES += kernels/libcpu_avx512.a
kernels_libcpu_avx512_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_avx512_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=2
kernels_libcpu_avx512_a_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_AVX512)
LF_ISA_LIBS += kernels/libcpu_avx512.a
endif
if HAVE_ISA_AVX512BF16
noinst_LIBRARIES += kernels/libcpu_avx512bf16.a
kernels_libcpu_avx512bf16_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_avx512bf16_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=3
kernels_libcpu_avx512bf16_a_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_AVX512BF16)
LF_ISA_LIBS += kernels/libcpu_avx512bf16.a
endif
if HAVE_ISA_NEON
noinst_LIBRARIES += kernels/libcpu_neon.a
kernels_libcpu_neon_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_neon_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=4
kernels_libcpu_neon_a_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_NEON)
LF_ISA_LIBS += kernels/libcpu_neon.a
endif
if HAVE_ISA_NEONBF16
noinst_LIBRARIES += kernels/libcpu_neonbf16.a
kernels_libcpu_neonbf16_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_neonbf16_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=5
kernels_libcpu_neonbf16_a_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_NEONBF16)
LF_ISA_LIBS += kernels/libcpu_neonbf16.a
endif
if HAVE_ISA_SVE256BF16
noinst_LIBRARIES += kernels/libcpu_sve256bf16.a
kernels_libcpu_sve256bf16_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_sve256bf16_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=6
kernels_libcpu_sve256bf16_a_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_SVE256BF16)
LF_ISA_LIBS += kernels/libcpu_sve256bf16.a
endif
if HAVE_ISA_SVE512
noinst_LIBRARIES += kernels/libcpu_sve512.a
kernels_libcpu_sve512_a_SOURCES = $(LF_CPU_ISA_SOURCES)
kernels_libcpu_sve512_a_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=7
kernels_libcpu_sve512_a_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_SVE512)
LF_ISA_LIBS += kernels/libcpu_sve512.a
endif
LF_ISA_LIBS += kernels/libcpucore.a
include kernels/cuda.mk
include kernels/cuda_gemm.mk
