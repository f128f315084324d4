dnl SPDX-License-Identifier: Apache-2.0
dnl LF_CPU_ISA: which instruction sets of the CPU kernels the compiler can be asked for. The processor is asked at run time.
dnl --enable-native asks it here and makes the kernels of its best set only (plain: of none): half of the build is kernels, once for each set.
dnl LF_CPU_ISA_TRY(name, options, NAME, processors, source that wants it, condition at run time, its declarations). The user's options stand
dnl behind ours, as in the Makefile: a set that they take the ground from (-march of an older processor) is not made.
AC_DEFUN([LF_CPU_ISA_TRY], [
  lf_have_$1=no
  AS_CASE([$host_cpu], [$4], [AS_IF([test $lf_native = no || test $lf_native$lf_isas = yes], [
    lf_save_CFLAGS=$CFLAGS; CFLAGS="$2 $CFLAGS"
    AC_MSG_CHECKING([whether $CC makes $1 kernels])
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[$5]])], [lf_have_$1=yes], [lf_have_$1=no])
    AC_MSG_RESULT([$lf_have_$1])
    CFLAGS=$lf_save_CFLAGS
    AS_IF([test $lf_native = yes && test $lf_have_$1 = yes], [
      AC_MSG_CHECKING([whether this processor runs them])
      AC_RUN_IFELSE([AC_LANG_PROGRAM([[$7]], [return !($6);])], [], [lf_have_$1=no],
        [AC_MSG_ERROR([--enable-native asks the processor, which cannot be done for another machine])])
      AC_MSG_RESULT([$lf_have_$1])
    ])
  ])])
  AS_IF([test $lf_have_$1 = yes], [LF_CFLAGS_$3="$2"; lf_isas=" $1$lf_isas"
    AC_DEFINE([HAVE_ISA_$3], [1], [the compiler makes $1 kernels])])
  AC_SUBST([LF_CFLAGS_$3])
  AM_CONDITIONAL([HAVE_ISA_$3], [test $lf_have_$1 = yes])
])
m4_define([LF_ARM_ASKS], [#include <sys/auxv.h>
#include <sys/prctl.h>])
AC_DEFUN([LF_CPU_ISA], [
  AC_ARG_ENABLE([native], [AS_HELP_STRING([--enable-native@<:@=plain@:>@],
      [CPU kernels of this machine's processor only, or of none (plain); others run plain C (default: of all processors)])],
    [lf_native=$enableval], [lf_native=no])
  lf_isas=
  LF_CPU_ISA_TRY([avx512bf16], [-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16], [AVX512BF16], [x86_64],
    [#include <immintrin.h>
__m512 f(__m512 a, __m512bh b); __m512 f(__m512 a, __m512bh b) { return _mm512_dpbf16_ps(a, b, b); }],
    [__builtin_cpu_init(), __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl")])
  LF_CPU_ISA_TRY([avx512], [-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl], [AVX512], [x86_64],
    [#include <immintrin.h>
__m512 f(__m512 a); __m512 f(__m512 a) { return _mm512_fmadd_ps(a, a, a); }],
    [__builtin_cpu_init(), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")])
  LF_CPU_ISA_TRY([avx2], [-mavx2 -mfma -mf16c], [AVX2], [x86_64],
    [#include <immintrin.h>
__m256 f(__m256 a); __m256 f(__m256 a) { return _mm256_fmadd_ps(a, a, _mm256_cvtph_ps(_mm_setzero_si128())); }],
    [__builtin_cpu_init(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")])
  dnl A set of SVE wants one vector length; that of 128 bits is NEON's. The conditions are those of kernels/cpu/isa.c.
  LF_CPU_ISA_TRY([sve512], [-march=armv8.2-a+sve -msve-vector-bits=512], [SVE512], [aarch64],
    [#include <arm_sve.h>
typedef float v __attribute__((vector_size(64)));
v f(v a); v f(v a) { return (v)svmla_f32_x(svptrue_b32(), a, a, a); }],
    [getauxval(AT_HWCAP) >> 22 & 1 && (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) == 64], [LF_ARM_ASKS])
  LF_CPU_ISA_TRY([sve256bf16], [-march=armv8.2-a+sve+bf16 -msve-vector-bits=256], [SVE256BF16], [aarch64],
    [#include <arm_sve.h>
typedef float v __attribute__((vector_size(32)));
v f(v a); v f(v a) { return (v)svbfdot_f32(a, svreinterpret_bf16_f32(a), svreinterpret_bf16_f32(a)); }],
    [getauxval(AT_HWCAP) >> 22 & 1 && getauxval(AT_HWCAP2) >> 12 & 1 && (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) == 32], [LF_ARM_ASKS])
  LF_CPU_ISA_TRY([neonbf16], [-march=armv8.2-a+bf16], [NEONBF16], [aarch64],
    [#include <arm_neon.h>
float32x4_t f(float32x4_t a, bfloat16x8_t b); float32x4_t f(float32x4_t a, bfloat16x8_t b) { return vbfdotq_f32(a, b, b); }],
    [getauxval(AT_HWCAP2) >> 14 & 1], [LF_ARM_ASKS])
  LF_CPU_ISA_TRY([neon], [], [NEON], [aarch64],
    [#include <arm_neon.h>
float32x4_t f(float32x4_t a); float32x4_t f(float32x4_t a) { return vfmaq_f32(a, a, a); }],
    [1])
  lf_isas="plain$lf_isas"
])
dnl LF_EMU_CFLAGS: for the emulated GPU of the tests, which runs where it is built. Its kernels multiply and add in one rounding; without the
dnl processor's instruction each of that is a call of libm, with the same bits.
AC_DEFUN([LF_EMU_FMA], [
  AC_CACHE_CHECK([whether this processor multiplies and adds in one instruction], [lf_cv_fma], [
    lf_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS -mfma"
    AC_RUN_IFELSE([AC_LANG_PROGRAM([], [__builtin_cpu_init(); return !(__builtin_cpu_supports("avx") && __builtin_cpu_supports("fma"));])],
      [lf_cv_fma=yes], [lf_cv_fma=no], [lf_cv_fma=no])
    CFLAGS=$lf_save_CFLAGS
  ])
  LF_EMU_CFLAGS=
  AS_IF([test $lf_cv_fma = yes], [LF_EMU_CFLAGS=-mfma])
  AC_SUBST([LF_EMU_CFLAGS])
])
dnl LF_TARGET_CLONES: does the compiler make a function several times, and the loader take the one for the processor? For loops over whole numbers,
dnl whose results no set of instructions changes. Not with sanitizers, which are not ready yet when the loader asks.
AC_DEFUN([LF_TARGET_CLONES], [
  AC_MSG_CHECKING([whether $CC makes clones of functions for processors])
  AC_LINK_IFELSE([AC_LANG_SOURCE([[
__attribute__((target_clones("arch=x86-64-v4", "avx2", "default"))) int sum(const int *a, int n);
__attribute__((target_clones("arch=x86-64-v4", "avx2", "default"))) int sum(const int *a, int n) { int s = 0; while (n) s += a[--n]; return s; }
int main(void) { const int a[] = {1, -1}; return sum(a, 2); }]])], [lf_clones=yes], [lf_clones=no])
  AS_IF([test "${enable_sanitizers:-no}" != no], [lf_clones=no])
  AC_MSG_RESULT([$lf_clones])
  AS_IF([test $lf_clones = yes], [AC_DEFINE([HAVE_TARGET_CLONES], [1], [the compiler makes clones of functions for processors])])
])
