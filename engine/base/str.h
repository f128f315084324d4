/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing byte strings, number and unit parsing, nearest-name search. No locale is used anywhere.
 */
#ifndef LF_BASE_STR_H
#define LF_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* A growing string. data is always NUL-terminated at len; NULs inside are allowed. Once an add
 * fails, later adds do nothing and `failed` stays set, so that callers check once with
 * lf_buf_check(). */
typedef struct lf_buf {
    char *data; /* never NULL after lf_buf_init; "" when empty */
    size_t len;
    size_t cap;
    bool failed;
} lf_buf;

void lf_buf_init(lf_buf *b);
void lf_buf_fini(lf_buf *b);
void lf_buf_clear(lf_buf *b); /* keeps the memory */
void lf_buf_add(lf_buf *b, const void *data, size_t len);
void lf_buf_adds(lf_buf *b, const char *s);
void lf_buf_addc(lf_buf *b, char c);
void lf_buf_addf(lf_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* a quoted and escaped JSON string; invalid UTF-8 becomes U+FFFD */
void lf_buf_add_json(lf_buf *b, const char *s, size_t len);
void lf_buf_add_shell(lf_buf *b, const char *s); /* single-quoted for sh when needed */
/* A text for terminals: control characters (C0, DEL, C1) other than newline and tab, and bytes that
 * are not UTF-8, become '?'. */
void lf_buf_add_visible(lf_buf *b, const char *s, size_t len);
int lf_buf_check(const lf_buf *b, lf_err *err); /* LF_ENOMEM when an add failed */
char *lf_buf_steal(lf_buf *b, lf_err *err);     /* the caller owns the text; b is empty again */

/* The parsers below read the whole string or fail (LF_EINVAL). On failure *out is not changed.
 * Messages quote the text. */
int lf_parse_i64(int64_t *out, const char *s, lf_err *err);
int lf_parse_f64(double *out, const char *s, lf_err *err); /* finite decimal only */
int lf_parse_bool(bool *out, const char *s, lf_err *err);  /* yes/no true/false on/off 1/0 */
/* Counts: "4096", "4k" = 4000, "4ki" = 4096, "1.5M", "2G", "1T"; without a unit 1. The result must
 * be a whole number. */
int lf_parse_count(int64_t *out, const char *s, lf_err *err);
/* Bytes: "512", "80G" = 80 * 2^30, as schedulers mean it. K, M, G and T are binary; "B" or "iB" may
 * follow. */
int lf_parse_bytes(int64_t *out, const char *s, lf_err *err);
/* Durations in seconds: "90", "90s", "2h30m", "1d", "1-12:30:00", "02:30:00". */
int lf_parse_duration(int64_t *out, const char *s, lf_err *err);

/* These write a readable form into buf and return buf: "1.5 GiB", "12.3M", "2h30m05s". */
const char *lf_fmt_bytes(char *buf, size_t cap, double bytes);
const char *lf_fmt_count(char *buf, size_t cap, double n);
const char *lf_fmt_duration(char *buf, size_t cap, double seconds);

/* Returns the name with the smallest edit distance to s, borrowed from names, or NULL when none is
 * near (distance > len/3 + 1). */
const char *lf_nearest(const char *s, const char *const *names, size_t n);

bool lf_str_has_prefix(const char *s, const char *prefix);
bool lf_str_has_suffix(const char *s, const char *suffix);

#endif
