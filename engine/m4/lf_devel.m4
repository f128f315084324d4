dnl SPDX-License-Identifier: Apache-2.0
dnl LF_ENABLE_DEVEL: all warnings are errors.
AC_DEFUN([LF_ENABLE_DEVEL], [
  AC_ARG_ENABLE([devel], [AS_HELP_STRING([--enable-devel], [all warnings, as errors])], [lf_devel=$enableval], [lf_devel=no])
  LF_WARN_CFLAGS="-Wall -Wextra"
  AS_IF([test $lf_devel = yes], [LF_WARN_CFLAGS="-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
-Wold-style-definition -Wvla -Wwrite-strings -Wformat=2 -Wpointer-arith -Wcast-qual -Wundef -Wdouble-promotion \
-Wfloat-conversion -fno-common -Werror"])
  AC_SUBST([LF_WARN_CFLAGS])
])
dnl LF_ENABLE_SANITIZERS: address and undefined, fatal on the first finding. Behind a checked index gcc takes the path where the check
dnl fails for one that is run, and warns of it; the check itself finds such an access.
AC_DEFUN([LF_ENABLE_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers], [AS_HELP_STRING([--enable-sanitizers], [address and undefined-behaviour sanitizers])],
    [lf_sanitizers=$enableval], [lf_sanitizers=no])
  AS_IF([test $lf_sanitizers = yes], [LF_SAN_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -Wno-stringop-overflow"
    AC_DEFINE([LF_SANITIZERS], [1], [built with sanitizers: tests that measure memory step aside])])
  AC_SUBST([LF_SAN_CFLAGS])
  AM_CONDITIONAL([SANITIZERS], [test $lf_sanitizers = yes])
])
dnl LF_CHECK_TSAN: can a program be built and run under ThreadSanitizer? It cannot beside other sanitizers, nor where the
dnl system lays out memory in a way that it does not know; then tests/op/team_race is not made.
AC_DEFUN([LF_CHECK_TSAN], [
  AC_CACHE_CHECK([for ThreadSanitizer], [lf_cv_tsan], [
    lf_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS -fsanitize=thread -pthread"
    AC_RUN_IFELSE([AC_LANG_PROGRAM([[#include <pthread.h>
static void *f(void *p) { return p; }]], [[pthread_t t; return pthread_create(&t, NULL, f, NULL) || pthread_join(t, NULL);]])],
      [lf_cv_tsan=yes], [lf_cv_tsan=no], [lf_cv_tsan=no])
    CFLAGS=$lf_save_CFLAGS])
  AM_CONDITIONAL([TSAN], [test $lf_cv_tsan = yes && test $lf_sanitizers = no && test $lf_fuzz = no])
])
dnl LF_ENABLE_FUZZ: libFuzzer targets (clang only).
AC_DEFUN([LF_ENABLE_FUZZ], [
  AC_ARG_ENABLE([fuzz], [AS_HELP_STRING([--enable-fuzz], [build libFuzzer targets; needs CC=clang])], [lf_fuzz=$enableval], [lf_fuzz=no])
  AS_IF([test $lf_fuzz = yes], [
    lf_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS -fsanitize=fuzzer"
    AC_MSG_CHECKING([whether $CC has libFuzzer])
    AC_LINK_IFELSE([AC_LANG_SOURCE([[#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *d, size_t n); int LLVMFuzzerTestOneInput(const unsigned char *d, size_t n) { (void)d; (void)n; return 0; }]])],
      [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no]); AC_MSG_ERROR([--enable-fuzz needs CC=clang and its compiler-rt (Debian: clang libclang-rt-14-dev)])])
    CFLAGS=$lf_save_CFLAGS
    LF_FUZZ_CFLAGS="-fsanitize=fuzzer-no-link,address,undefined" LF_FUZZ_LDFLAGS="-fsanitize=fuzzer,address,undefined"])
  AC_SUBST([LF_FUZZ_CFLAGS]) AC_SUBST([LF_FUZZ_LDFLAGS])
  AM_CONDITIONAL([FUZZ], [test $lf_fuzz = yes])
  AM_CONDITIONAL([INSTRUMENTED], [test $lf_fuzz = yes || test $lf_sanitizers = yes])
])
dnl LF_ENABLE_BUNDLE: programs look for libraries beside themselves first, as `make bundle` wants it.
AC_DEFUN([LF_ENABLE_BUNDLE], [
  AC_ARG_ENABLE([bundle], [AS_HELP_STRING([--disable-bundle], [no run path in the programs; no make bundle])],
    [lf_bundle=$enableval], [lf_bundle=yes])
  AM_CONDITIONAL([BUNDLE], [test $lf_bundle != no])
])
