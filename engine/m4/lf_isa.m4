dnl SPDX-License-Identifier: Apache-2.0
dnl LF_CPU_ISA: which instruction sets of the CPU kernels the compiler can be asked for. The processor is asked at run time.
AC_DEFUN([LF_CPU_ISA_TRY], [
  lf_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS $2"
  AC_MSG_CHECKING([whether $CC makes $1 kernels])
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#include <immintrin.h>
$4]])], [lf_have_$1=yes], [lf_have_$1=no])
  AC_MSG_RESULT([$lf_have_$1])
  CFLAGS=$lf_save_CFLAGS
  AS_IF([test $lf_have_$1 = yes], [LF_CFLAGS_$3="$2"; lf_isas="$lf_isas $1"
    AC_DEFINE([HAVE_ISA_$3], [1], [the compiler makes $1 kernels])])
  AC_SUBST([LF_CFLAGS_$3])
  AM_CONDITIONAL([HAVE_ISA_$3], [test $lf_have_$1 = yes])
])
AC_DEFUN([LF_CPU_ISA], [
  lf_isas=plain
  LF_CPU_ISA_TRY([avx2], [-mavx2 -mfma -mf16c], [AVX2],
    [__m256 f(__m256 a); __m256 f(__m256 a) { return _mm256_fmadd_ps(a, a, _mm256_cvtph_ps(_mm_setzero_si128())); }])
  LF_CPU_ISA_TRY([avx512], [-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl], [AVX512],
    [__m512 f(__m512 a); __m512 f(__m512 a) { return _mm512_fmadd_ps(a, a, a); }])
  LF_CPU_ISA_TRY([avx512bf16], [-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16], [AVX512BF16],
    [__m512 f(__m512 a, __m512bh b); __m512 f(__m512 a, __m512bh b) { return _mm512_dpbf16_ps(a, b, b); }])
])
