/* SPDX-License-Identifier: Apache-2.0
 *
 * TAP output for unit tests. Each assertion prints both sides when it fails. main calls the test
 * functions through TAP, which states how many points each makes, and ends with
 * `return tap_done();`, which prints the plan and gives the exit code:
 *
 *     TAP(12, name_rules());
 *     TAP_MIN(3, random_cases(seed)); // as many as the processor has instruction sets
 *
 * A function that returns early loses points that no plan made of the points seen would miss.
 */
#ifndef LF_TESTS_TAP_H
#define LF_TESTS_TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

bool tap_ok_at(const char *file, int line, bool ok, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool tap_i64_at(const char *file, int line, int64_t got, int64_t want, const char *name);
/* |got-want| <= tol */
bool tap_f64_at(const char *file, int line, double got, double want, double tol, const char *name);
/* NULLs allowed */
bool tap_str_at(const char *file, int line, const char *got, const char *want, const char *name);
bool tap_mem_at(const char *file, int line, const void *got, const void *want, size_t n,
                const char *name);
/* rc equals want, and when want != 0 the error's text contains `contains` (NULL: any). Clears
 * err. */
bool tap_rc_at(const char *file, int line, int rc, int want, lf_err *err, const char *contains,
               const char *name);
#define tap_ok(ok, ...)               tap_ok_at(__FILE__, __LINE__, (ok), __VA_ARGS__)
#define tap_i64(got, want, name)      tap_i64_at(__FILE__, __LINE__, (got), (want), (name))
#define tap_f64(got, want, tol, name) tap_f64_at(__FILE__, __LINE__, (got), (want), (tol), (name))
#define tap_str(got, want, name)      tap_str_at(__FILE__, __LINE__, (got), (want), (name))
#define tap_mem(got, want, n, name)   tap_mem_at(__FILE__, __LINE__, (got), (want), (n), (name))
#define tap_rc(rc, want, err, contains, name)                                                      \
    tap_rc_at(__FILE__, __LINE__, (rc), (want), (err), (contains), (name))

/* The call makes exactly n points, skipped ones too; when it does not, that is one more point,
 * which fails and tells the call and both numbers. A call within a call is fine: its points count
 * for both. */
#define TAP(n, ...)                                                                                \
    do {                                                                                           \
        tap_begin();                                                                               \
        __VA_ARGS__;                                                                               \
        tap_end_at(__FILE__, __LINE__, (int)(n), false, #__VA_ARGS__);                             \
    } while (0)
/* At least n points. Only where their number depends on the machine: say there on what of it. */
#define TAP_MIN(n, ...)                                                                            \
    do {                                                                                           \
        tap_begin();                                                                               \
        __VA_ARGS__;                                                                               \
        tap_end_at(__FILE__, __LINE__, (int)(n), true, #__VA_ARGS__);                              \
    } while (0)
void tap_begin(void);
void tap_end_at(const char *file, int line, int want, bool least, const char *call);

void tap_diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void tap_skip(int n, const char *reason); /* counts n skipped points */
void tap_skip_all(const char *reason) __attribute__((noreturn));
void tap_bail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
int tap_done(void);

/* A fresh directory for this test, removed by tap_done unless a test failed or LF_KEEP is set. It
 * is in memory (/dev/shm), where fsync costs nothing; below $TMPDIR where that has less than 4 GiB
 * left or LF_TEST_ON_DISK is set. */
const char *tap_tmpdir(void);

/* The larger of two errors. NaN is larger than any: fmax would drop it, and a test whose results
 * are not numbers would pass. */
static inline double tap_worse(double a, double b)
{
    return a > b || a != a ? a : b;
}

#endif
