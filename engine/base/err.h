/* SPDX-License-Identifier: Apache-2.0
 *
 * One way to report failure everywhere below stages/ and flow/.
 *
 * A function returns 0 on success (an iterator returns a positive count of items) and a negative
 * enum lf_rc on failure. It describes the failure in an lf_err, which the caller owns. lf_err is
 * always the last argument and may be NULL. The first function that knows the cause words it;
 * callers may prefix context once. Outputs are set only on success. Engine code never prints,
 * aborts or exits.
 */
#ifndef LF_BASE_ERR_H
#define LF_BASE_ERR_H

#include <stdarg.h>

enum lf_rc {
    LF_OK = 0,
    LF_EINVAL = -1,   /* a caller or user gave a wrong value */
    LF_ENOMEM = -2,   /* host or planned memory exhausted */
    LF_EIO = -3,      /* the operating system refused an operation (errnum says why) */
    LF_EFORMAT = -4,  /* a file's contents are not what they should be */
    LF_ENOTSUP = -5,  /* valid, but not built in or not on this backend */
    LF_EDEVICE = -6,  /* an accelerator failed */
    LF_ECOMM = -7,    /* ranks could not talk */
    LF_EINTR = -8,    /* stopped on request, at a good point */
    LF_ENOENT = -9,   /* a named thing does not exist */
    LF_EEXIST = -10,  /* a thing to be created exists already */
    LF_EBUSY = -11,   /* held by another process */
    LF_ENUMERIC = -12 /* non-finite or diverged numbers */
};

typedef struct lf_err {
    int rc;           /* enum lf_rc, 0 when nothing failed */
    int errnum;       /* errno of the failing call, 0 when none */
    const char *file; /* where it was worded */
    int line;
    char text[1024]; /* one line, no newline at the end; says what, where, what to do */
} lf_err;

#define LF_ERR_INIT                                                                                \
    {                                                                                              \
        0, 0, 0, 0,                                                                                \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Tells the compiler that a failure code is negative, so that it sees that outputs are set whenever
 * rc is 0. */
#define LF_ERR_NEGATIVE(call)                                                                      \
    ({                                                                                             \
        int lf_rc_ = (call);                                                                       \
        if (lf_rc_ >= 0)                                                                           \
            __builtin_unreachable();                                                               \
        lf_rc_;                                                                                    \
    })

/* Records a failure and returns rc, which is negative. The first failure stays: an lf_err that
 * already holds one is not changed. */
#define lf_fail(err, rc, ...)                                                                      \
    LF_ERR_NEGATIVE(lf_fail_at((err), (rc), __FILE__, __LINE__, __VA_ARGS__))
int lf_fail_at(lf_err *err, int rc, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Records the failure of a system call. rc follows from errno: LF_ENOMEM for ENOMEM, LF_ENOENT for
 * ENOENT, LF_EEXIST for EEXIST, LF_EIO otherwise. The text of errno is appended after ": ". */
#define lf_fail_errno(err, ...)                                                                    \
    LF_ERR_NEGATIVE(lf_fail_errno_at((err), __FILE__, __LINE__, __VA_ARGS__))
int lf_fail_errno_at(lf_err *err, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts context and ": " before the text of a failure that is recorded already. Returns err->rc, or
 * LF_EINVAL when err is NULL. */
int lf_err_prefix(lf_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Forgets a recorded failure, for callers that handle it. */
void lf_err_clear(lf_err *err);

/* Returns the short name of a code: "ok", "invalid", "no memory", "io", "format", ... The names do
 * not change. */
const char *lf_rc_name(int rc);

/* Reports a broken invariant of our own code, never bad input: prints file:line and aborts. */
#define LF_BUG(...) lf_bug_at(__FILE__, __LINE__, __VA_ARGS__)
void lf_bug_at(const char *file, int line, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

#endif
