dnl SPDX-License-Identifier: Apache-2.0
dnl LF_CPU_ISA: which instruction sets of the CPU kernels the compiler can be asked for. The processor is asked at run time.
dnl --enable-native asks it here and makes the kernels of its best set only (plain: of none): half of the build is kernels, once for each set.
AC_DEFUN([LF_CPU_ISA_TRY], [
  lf_have_$1=no
  AS_IF([test $lf_native = no || test $lf_native$lf_isas = yes], [
    lf_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS $2"
    AC_MSG_CHECKING([whether $CC makes $1 kernels])
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#include <immintrin.h>
$4]])], [lf_have_$1=yes], [lf_have_$1=no])
    AC_MSG_RESULT([$lf_have_$1])
    CFLAGS=$lf_save_CFLAGS
    AS_IF([test $lf_native = yes && test $lf_have_$1 = yes], [
      AC_MSG_CHECKING([whether this processor runs them])
      AC_RUN_IFELSE([AC_LANG_PROGRAM([], [__builtin_cpu_init(); return !($5);])], [], [lf_have_$1=no],
        [AC_MSG_ERROR([--enable-native asks the processor, which cannot be done for another machine])])
      AC_MSG_RESULT([$lf_have_$1])
    ])
  ])
  AS_IF([test $lf_have_$1 = yes], [LF_CFLAGS_$3="$2"; lf_isas=" $1$lf_isas"
    AC_DEFINE([HAVE_ISA_$3], [1], [the compiler makes $1 kernels])])
  AC_SUBST([LF_CFLAGS_$3])
  AM_CONDITIONAL([HAVE_ISA_$3], [test $lf_have_$1 = yes])
])
AC_DEFUN([LF_CPU_ISA], [
  AC_ARG_ENABLE([native], [AS_HELP_STRING([--enable-native@<:@=plain@:>@],
      [CPU kernels of this machine's processor only, or of none (plain); others run plain C (default: of all processors)])],
    [lf_native=$enableval], [lf_native=no])
  lf_isas=
  LF_CPU_ISA_TRY([avx512bf16], [-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16], [AVX512BF16],
    [__m512 f(__m512 a, __m512bh b); __m512 f(__m512 a, __m512bh b) { return _mm512_dpbf16_ps(a, b, b); }],
    [__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl")])
  LF_CPU_ISA_TRY([avx512], [-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl], [AVX512],
    [__m512 f(__m512 a); __m512 f(__m512 a) { return _mm512_fmadd_ps(a, a, a); }],
    [__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
     __builtin_cpu_supports("avx512vl")])
  LF_CPU_ISA_TRY([avx2], [-mavx2 -mfma -mf16c], [AVX2],
    [__m256 f(__m256 a); __m256 f(__m256 a) { return _mm256_fmadd_ps(a, a, _mm256_cvtph_ps(_mm_setzero_si128())); }],
    [__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")])
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
