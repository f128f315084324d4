# Matrix products, column sums, fused output layer: sources and tests.
EXTRA_DIST += kernels/README.md
LF_CPU_ISA_SOURCES += kernels/cpu/gemm.c kernels/cpu/gemm_pack.c kernels/cpu/gemm_micro.c kernels/cpu/gemm_epi.c kernels/cpu/gemm_int.h \
  kernels/cpu/gemm_stream.c kernels/cpu/gemm_units.h \
  kernels/cpu/gemm_colsum.c kernels/cpu/gemm_grouped.c kernels/cpu/gemm_heads.c kernels/cpu/fp8.c kernels/cpu/xent.c
kernels_libcpucore_a_SOURCES += kernels/cpu/gemm_core.c kernels/cpu/gemm_onednn.c kernels/cpu/gemm_onednn.h
LF_KERNEL_TEST_LIBS = tests/tap/libtap.a $(LF_KERNEL_LIBS) $(LF_BASE_LIBS)

simd_test_sources = tests/op/simd_test.c tests/op/op_test.h
check_PROGRAMS += tests/op/simd_plain_test
TESTS += tests/op/simd_plain_test
tests_op_simd_plain_test_SOURCES = $(simd_test_sources)
tests_op_simd_plain_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=0
tests_op_simd_plain_test_LDADD = $(LF_KERNEL_TEST_LIBS)
if HAVE_ISA_AVX2
check_PROGRAMS += tests/op/simd_avx2_test
TESTS += tests/op/simd_avx2_test
tests_op_simd_avx2_test_SOURCES = $(simd_test_sources)
tests_op_simd_avx2_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=1
tests_op_simd_avx2_test_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_AVX2)
tests_op_simd_avx2_test_LDADD = $(LF_KERNEL_TEST_LIBS)
endif
if HAVE_ISA_AVX512
check_PROGRAMS += tests/op/simd_avx512_test
TESTS += tests/op/simd_avx512_test
tests_op_simd_avx512_test_SOURCES = $(simd_test_sources)
tests_op_simd_avx512_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=2
tests_op_simd_avx512_test_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_AVX512)
tests_op_simd_avx512_test_LDADD = $(LF_KERNEL_TEST_LIBS)
endif
if HAVE_ISA_AVX512BF16
check_PROGRAMS += tests/op/simd_avx512bf16_test
TESTS += tests/op/simd_avx512bf16_test
tests_op_simd_avx512bf16_test_SOURCES = $(simd_test_sources)
tests_op_simd_avx512bf16_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=3
tests_op_simd_avx512bf16_test_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_AVX512BF16)
tests_op_simd_avx512bf16_test_LDADD = $(LF_KERNEL_TEST_LIBS)
endif
if HAVE_ISA_NEON
check_PROGRAMS += tests/op/simd_neon_test
TESTS += tests/op/simd_neon_test
tests_op_simd_neon_test_SOURCES = $(simd_test_sources)
tests_op_simd_neon_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=4
tests_op_simd_neon_test_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_NEON)
tests_op_simd_neon_test_LDADD = $(LF_KERNEL_TEST_LIBS)
endif
if HAVE_ISA_NEONBF16
check_PROGRAMS += tests/op/simd_neonbf16_test
TESTS += tests/op/simd_neonbf16_test
tests_op_simd_neonbf16_test_SOURCES = $(simd_test_sources)
tests_op_simd_neonbf16_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=5
tests_op_simd_neonbf16_test_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_NEONBF16)
tests_op_simd_neonbf16_test_LDADD = $(LF_KERNEL_TEST_LIBS)
endif
if HAVE_ISA_SVE256BF16
check_PROGRAMS += tests/op/simd_sve256bf16_test
TESTS += tests/op/simd_sve256bf16_test
tests_op_simd_sve256bf16_test_SOURCES = $(simd_test_sources)
tests_op_simd_sve256bf16_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=6
tests_op_simd_sve256bf16_test_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_SVE256BF16)
tests_op_simd_sve256bf16_test_LDADD = $(LF_KERNEL_TEST_LIBS)
endif
if HAVE_ISA_SVE512
check_PROGRAMS += tests/op/simd_sve512_test
TESTS += tests/op/simd_sve512_test
tests_op_simd_sve512_test_SOURCES = $(simd_test_sources)
tests_op_simd_sve512_test_CPPFLAGS = $(AM_CPPFLAGS) -DLF_CPU_ISA=7
tests_op_simd_sve512_test_CFLAGS = $(AM_CFLAGS) $(LF_CFLAGS_SVE512)
tests_op_simd_sve512_test_LDADD = $(LF_KERNEL_TEST_LIBS)
endif

check_PROGRAMS += tests/op/gemm_test
TESTS += tests/op/gemm_test
tests_op_gemm_test_SOURCES = tests/op/gemm_test.c tests/op/op_test.h
tests_op_gemm_test_LDADD = $(LF_KERNEL_TEST_LIBS)

check_PROGRAMS += tests/op/grouped_test
TESTS += tests/op/grouped_test
tests_op_grouped_test_SOURCES = tests/op/grouped_test.c tests/op/op_test.h
tests_op_grouped_test_LDADD = $(LF_KERNEL_TEST_LIBS)
check_PROGRAMS += tests/op/latent_test
TESTS += tests/op/latent_test
tests_op_latent_test_SOURCES = tests/op/latent_test.c tests/op/op_test.h
tests_op_latent_test_LDADD = $(LF_KERNEL_TEST_LIBS)

check_PROGRAMS += tests/op/fp8_test
TESTS += tests/op/fp8_test
tests_op_fp8_test_SOURCES = tests/op/fp8_test.c tests/op/op_test.h
tests_op_fp8_test_LDADD = $(LF_KERNEL_TEST_LIBS)

# Benchmarks: built by name (make kernels/bench/gemm_bench), not by all.
check_LIBRARIES += kernels/bench/libbench.a
kernels_bench_libbench_a_SOURCES = kernels/bench/bench.c kernels/bench/bench.h
check_PROGRAMS += tests/unit/bench_numbers
TESTS += tests/unit/bench_numbers
tests_unit_bench_numbers_SOURCES = tests/unit/bench_numbers.c
tests_unit_bench_numbers_LDADD = tests/tap/libtap.a kernels/bench/libbench.a $(LF_KERNEL_LIBS) \
  $(LF_BASE_LIBS)
check_PROGRAMS += kernels/bench/gemm_bench
CLEANFILES += kernels/bench/gemm_bench
kernels_bench_gemm_bench_SOURCES = kernels/bench/gemm_bench.c
kernels_bench_gemm_bench_LDADD = kernels/bench/libbench.a $(LF_KERNEL_LIBS)
check_PROGRAMS += kernels/bench/moe_bench
CLEANFILES += kernels/bench/moe_bench
kernels_bench_moe_bench_SOURCES = kernels/bench/moe_bench.c
kernels_bench_moe_bench_LDADD = kernels/bench/libbench.a $(LF_KERNEL_LIBS)

check_PROGRAMS += tests/op/xent_test
TESTS += tests/op/xent_test
tests_op_xent_test_SOURCES = tests/op/xent_test.c tests/op/op_test.h
tests_op_xent_test_LDADD = $(LF_KERNEL_TEST_LIBS)
