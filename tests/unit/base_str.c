/* SPDX-License-Identifier: Apache-2.0
 *
 * err.h, json.h, mem.h, str.h: messages, checked sizes, buffers, number and unit vectors.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"
#include "tests/tap/tap.h"

struct vec {
    const char *text;
    int64_t want;
    const char *error; /* NULL: no error */
};

typedef int (*parse_fn)(int64_t *, const char *, lf_err *);

static void run(const char *what, parse_fn parse, const struct vec *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        lf_err err = LF_ERR_INIT;
        char name[128];
        int64_t out = -77;
        int rc = parse(&out, v[i].text, &err);
        snprintf(name, sizeof name, "%s \"%s\"", what, v[i].text);
        if (v[i].error) {
            tap_rc(rc, LF_EINVAL, &err, v[i].error, name);
            if (out != -77)
                tap_i64(out, -77, "output untouched on failure");
        } else if (tap_rc(rc, 0, &err, NULL, name)) {
            tap_i64(out, v[i].want, name);
        }
    }
}
#define RUN(what, parse, v) run(what, parse, v, sizeof(v) / sizeof((v)[0]))

static void test_whole(void)
{
    static const struct vec i64[] = {
        {"0", 0, NULL},
        {"-0", 0, NULL},
        {"1", 1, NULL},
        {"+7", 7, NULL},
        {"0012", 12, NULL},
        {"9223372036854775807", INT64_MAX, NULL},
        {"-9223372036854775808", INT64_MIN, NULL},
        {"9223372036854775808", 0, "\"9223372036854775808\" does not fit in 64 bits"},
        {"-9223372036854775809", 0, "does not fit"},
        {"99999999999999999999999", 0, "does not fit"},
        {"", 0, "\"\" is not a whole number"},
        {"-", 0, "not a whole number"},
        {" 1", 0, "not a whole number"},
        {"1 ", 0, "not a whole number"},
        {"1.0", 0, "not a whole number"},
        {"0x10", 0, "not a whole number"},
        {"1e3", 0, "not a whole number"},
    };
    RUN("i64", lf_parse_i64, i64);
}

static void test_counts(void)
{
    static const struct vec count[] = {
        {"0", 0, NULL},
        {"4096", 4096, NULL},
        {"4k", 4000, NULL},
        {"4K", 4000, NULL},
        {"4ki", 4096, NULL},
        {"1.5M", 1500000, NULL},
        {"0.1k", 100, NULL},
        {"2G", 2000000000, NULL},
        {"1T", 1000000000000, NULL},
        {"9E", 9000000000000000000, NULL},
        {"7Ei", 8070450532247928832, NULL},
        {"-3k", -3000, NULL},
        {"17E", 0, "does not fit in 64 bits"},
        {"8Ei", 0, "does not fit in 64 bits"},
        {"9.3E", 0, "does not fit in 64 bits"},
        {"9223372036854775807k", 0, "does not fit in 64 bits"},
        {"0.0001k", 0, "not a whole number"},
        {"1.", 0, "not a count"},
        {"k", 0, "not a count"},
        {"", 0, "not a count"},
        {"4 k", 0, "unknown unit"},
        {"4kB", 0, "unknown unit"},
        {"4x", 0, "unknown unit \"x\""},
        {"1e6", 0, "unknown unit"},
    };
    RUN("count", lf_parse_count, count);
}

static void test_sizes(void)
{
    static const struct vec bytes[] = {
        {"0", 0, NULL},
        {"512", 512, NULL},
        {"512B", 512, NULL},
        {"80G", (int64_t)80 << 30, NULL},
        {"80GB", (int64_t)80 << 30, NULL},
        {"80GiB", (int64_t)80 << 30, NULL},
        {"1.5k", 1536, NULL},
        {"2T", (int64_t)2 << 40, NULL},
        {"7E", (int64_t)7 << 60, NULL},
        {"17E", 0, "does not fit in 64 bits"},
        {"8E", 0, "does not fit in 64 bits"},
        {"16E", 0, "does not fit in 64 bits"},
        {"-1G", 0, "not a size"},
        {"0.3", 0, "not a whole number"},
        {"80Gi", 0, "unknown unit \"Gi\""},
        {"80Gb", 0, "unknown unit \"Gb\""},
        {"G", 0, "not a size"},
        {"", 0, "not a size"},
    };
    RUN("bytes", lf_parse_bytes, bytes);
}

static void test_durations(void)
{
    static const struct vec duration[] = {
        {"0", 0, NULL},
        {"90", 90, NULL},
        {"90s", 90, NULL},
        {"2h30m", 9000, NULL},
        {"1d", 86400, NULL},
        {"1d1s", 86401, NULL},
        {"1.5h", 5400, NULL},
        {"1-12:30:00", 131400, NULL},
        {"02:30:00", 9000, NULL},
        {"30:15", 109 * 1000 - 100, NULL}, /* hours and minutes */
        {"100:00:00", 360000, NULL},
        {"2h30", 0, "not a duration"},
        {"30m2h", 0, "not a duration"},
        {"1h1h", 0, "not a duration"},
        {"1:60", 0, "not a duration"},
        {"1:00:60", 0, "not a duration"},
        {"1:2:3:4", 0, "not a duration"},
        {"1-", 0, "not a duration"},
        {"1-1-1:00", 0, "not a duration"},
        {"0-0-1:00", 0, "not a duration"},
        {":30", 0, "not a duration"},
        {"1.5:00", 0, "not a duration"},
        {"", 0, "not a duration"},
        {"-5s", 0, "not a duration"},
        {"5 s", 0, "not a duration"},
        {"5y", 0, "not a duration"},
        {"200000000000000d", 0, "does not fit"},
        {"2562047788015216:00:00", 0, "does not fit"},
        {"0.5s", 0, "not a whole number"},
    };
    RUN("duration", lf_parse_duration, duration);
}

static void test_floats(void)
{
    static const char *const bad[] = {"",     "nan", "inf", "1e999", "0x1p3", "1,5",
                                      "1.5 ", "--1", ".",   "1e",    "e5"};
    lf_err err = LF_ERR_INIT;
    double v = 0;
    bool b = false;
    tap_rc(lf_parse_f64(&v, "3e-4", &err), 0, &err, NULL, "f64 3e-4");
    tap_f64(v, 3e-4, 0, "f64 3e-4");
    tap_rc(lf_parse_f64(&v, "-.5", &err), 0, &err, NULL, "f64 -.5");
    tap_f64(v, -.5, 0, "f64 -.5");
    tap_rc(lf_parse_f64(&v, "1e-400", &err), 0, &err, NULL, "an underflow is zero");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        v = 42;
        tap_rc(lf_parse_f64(&v, bad[i], &err), LF_EINVAL, &err, bad[i], "f64 refused");
        tap_f64(v, 42, 0, "untouched");
    }
    tap_rc(lf_parse_bool(&b, "on", &err), 0, &err, NULL, "bool on");
    tap_ok(b, "on is true");
    tap_rc(lf_parse_bool(&b, "0", &err), 0, &err, NULL, "bool 0");
    tap_ok(!b, "0 is false");
    tap_rc(lf_parse_bool(&b, "Yes", &err), LF_EINVAL, &err, "\"Yes\" is neither yes nor no",
           "bool Yes");
}

static void test_formats(void)
{
    char s[32];
    tap_str(lf_fmt_bytes(s, sizeof s, 0), "0 B", "0 bytes");
    tap_str(lf_fmt_bytes(s, sizeof s, 1023), "1023 B", "1023 bytes");
    tap_str(lf_fmt_bytes(s, sizeof s, 1.5 * (1 << 30)), "1.5 GiB", "1.5 GiB");
    tap_str(lf_fmt_bytes(s, sizeof s, 1024.0 * 1024 - 1), "1.0 MiB", "rounds into the next unit");
    tap_str(lf_fmt_count(s, sizeof s, 12345678), "12.3M", "12.3M");
    tap_str(lf_fmt_count(s, sizeof s, 999), "999", "999");
    tap_str(lf_fmt_count(s, sizeof s, 999999), "1.0M", "999999");
    tap_str(lf_fmt_duration(s, sizeof s, 9005), "2h30m05s", "2h30m05s");
    tap_str(lf_fmt_duration(s, sizeof s, 0.25), "0.2s", "0.25 s");
    tap_str(lf_fmt_duration(s, sizeof s, 90000), "1d01h00m", "1d01h00m");
    tap_str(lf_fmt_duration(s, sizeof s, -1), "?", "negative");
}

static void test_buf(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    lf_buf_init(&b);
    tap_str(b.data, "", "empty");
    for (int i = 0; i < 1000; i++)
        lf_buf_addf(&b, "%d,", i);
    tap_i64((int64_t)b.len, 10 * 2 + 90 * 3 + 900 * 4, "length of 1000 numbers");
    lf_buf_clear(&b);
    tap_str(b.data, "", "cleared");
    lf_buf_add_json(&b, "a\"\\\n\x01\x7f\xff\xe2\x82\xac\xed\xa0\x80", 13);
    tap_str(b.data,
            "\"a\\\"\\\\\\n\\u0001\\u007f\xef\xbf\xbd\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\xef\xbf"
            "\xbd\"",
            "JSON escapes");
    lf_buf_clear(&b);
    lf_buf_add_shell(&b, "plain/path-1.txt");
    lf_buf_addc(&b, ' ');
    lf_buf_add_shell(&b, "it's $x");
    lf_buf_addc(&b, ' ');
    lf_buf_add_shell(&b, "");
    tap_str(b.data, "plain/path-1.txt 'it'\\''s $x' ''", "shell words");
    lf_buf_clear(&b);
    lf_buf_add_visible(&b, "a\x1b[2J\n\tb\0c\x7f\xc2\x9b\xc2\xa9\xff", 16);
    tap_str(b.data, "a?[2J\n\tb?c??\xc2\xa9?", "no control characters for a terminal");
    char *s = lf_buf_steal(&b, &err);
    tap_ok(s && b.len == 0 && b.data[0] == '\0', "steal leaves it empty");
    free(s);
    s = lf_buf_steal(&b, &err);
    tap_str(s, "", "stealing nothing gives an empty text");
    free(s);
    lf_buf_add(&b, "x", SIZE_MAX);
    lf_buf_adds(&b, "y");
    tap_rc(lf_buf_check(&b, &err), LF_ENOMEM, &err, NULL, "an impossible size sticks");
    lf_buf_fini(&b);
}

static void test_nearest(void)
{
    static const char *const names[] = {"learning_rate", "batch", "warmup", "seed"};
    tap_str(lf_nearest("lerning_rate", names, 4), "learning_rate", "one letter missing");
    tap_str(lf_nearest("bach", names, 4), "batch", "bach");
    tap_str(lf_nearest("seeds", names, 4), "seed", "seeds");
    tap_ok(!lf_nearest("zzzzzz", names, 4), "nothing near zzzzzz");
    tap_ok(!lf_nearest("", names, 0), "no names");
    tap_ok(lf_str_has_prefix("abc", "ab") && !lf_str_has_prefix("a", "ab"), "prefix");
    tap_ok(lf_str_has_suffix("abc", "bc") && !lf_str_has_suffix("c", "bc"), "suffix");
}

static void test_err(void)
{
    lf_err err = LF_ERR_INIT;
    char big[3000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    tap_i64(lf_fail(NULL, LF_EIO, "nobody listens"), LF_EIO, "NULL box");
    lf_fail(&err, LF_EFORMAT, "first\nline");
    lf_fail(&err, LF_EIO, "second");
    tap_str(err.text, "first line", "the first failure wins and is one line");
    tap_i64(err.rc, LF_EFORMAT, "its code");
    tap_i64(lf_err_prefix(&err, "file %d", 7), LF_EFORMAT, "prefix keeps the code");
    tap_str(err.text, "file 7: first line", "prefix");
    lf_err_prefix(&err, "%s", big);
    tap_i64((int64_t)strlen(err.text), (int64_t)sizeof err.text - 1, "a long text is cut");
    lf_err_clear(&err);
    errno = ENOENT;
    tap_rc(lf_fail_errno(&err, "cannot open %s", "x"), LF_ENOENT, &err,
           "cannot open x: No such file", "errno");
    errno = EACCES;
    lf_fail_errno(&err, "y");
    tap_i64(err.errnum, EACCES, "errnum kept");
    tap_str(lf_rc_name(LF_EFORMAT), "format", "name of a code");
    tap_str(lf_rc_name(-99), "unknown", "name of no code");
}

static void test_mem(void)
{
    lf_err err = LF_ERR_INIT;
    size_t n = 5;
    tap_ok(!lf_size_mul(&n, SIZE_MAX, 2) && n == 5, "multiplication overflow");
    tap_ok(!lf_size_add(&n, SIZE_MAX, 1) && n == 5, "addition overflow");
    tap_ok(lf_size_mul(&n, 0, SIZE_MAX) && n == 0, "zero times");
    tap_ok(!lf_malloc(SIZE_MAX / 2, 3, &err), "overflowing malloc");
    tap_rc(err.rc, LF_ENOMEM, &err, "size overflow", "its message");
    void *p = lf_calloc(0, 8, &err);
    tap_ok(p != NULL, "zero bytes give a pointer");
    free(p);
    int *v = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < 100; i++) {
        lf_grow(&v, &cap, i, sizeof *v, &err);
        v[i] = (int)i;
    }
    tap_ok(cap >= 100 && v[99] == 99 && v[0] == 0, "grow to 100");
    free(v);
    lf_arena *a = lf_arena_create(&err);
    bool aligned = true, zero = true;
    for (size_t i = 0; i < 3000; i++) {
        unsigned char *q = lf_arena_alloc(a, i % 97 * (i % 400 == 3 ? 1000 : 1), 1, &err);
        aligned = aligned && (uintptr_t)q % 16 == 0;
        for (size_t k = 0; k < i % 97; k++)
            zero = zero && q[k] == 0;
        memset(q, 0xAA, i % 97);
    }
    tap_ok(aligned && zero, "arena blocks are aligned and zero");
    tap_str(lf_arena_printf(a, &err, "%s-%d", "x", 5), "x-5", "arena printf");
    tap_ok(!lf_arena_alloc(a, SIZE_MAX, 1, &err), "an impossible arena block");
    lf_err_clear(&err);
    lf_arena_destroy(a);
    unsigned char *pages = lf_pages_alloc(3 << 20, &err);
    tap_ok(pages && (uintptr_t)pages % (2 << 20) == 0 && pages[0] == 0 && pages[(3 << 20) - 1] == 0,
           "pages");
    lf_pages_free(pages, 3 << 20);
    tap_ok(!lf_pages_alloc(SIZE_MAX, &err), "impossible pages");
}

static void test_utf8(void)
{
    static const struct {
        const char *s;
        size_t n, ok;
    } v[] = {{"a", 1, 1},
             {"\xc2\x80", 2, 2},
             {"\xc1\xbf", 2, 0},
             {"\xe0\x9f\xbf", 3, 0},
             {"\xed\x9f\xbf", 3, 3},
             {"\xed\xa0\x80", 3, 0},
             {"\xf0\x8f\xbf\xbf", 4, 0},
             {"\xf4\x8f\xbf\xbf", 4, 4},
             {"\xf4\x90\x80\x80", 4, 0},
             {"a\xe2\x82", 3, 1},
             {"\x80", 1, 0}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        tap_i64((int64_t)lf_utf8_check(v[i].s, v[i].n), (int64_t)v[i].ok, "valid UTF-8 prefix");
}

static void test_json_set(void)
{
    lf_err err = LF_ERR_INIT;
    json_t *o = json_object(), *behind = json_real(3);
    const struct lf_json_member m[] = {
        {"a", json_integer(1)}, {"b", NULL}, {"c", json_incref(behind)}};
    tap_rc(lf_json_set(o, m, 3, "plan", &err), LF_ENOMEM, &err, "plan: no memory for \"b\"",
           "members are set up to the first that fails");
    tap_ok(json_object_size(o) == 1 && json_object_get(o, "a"), "those before it are there");
    tap_i64((int64_t)behind->refcount, 1, "the value behind it is let go");
    lf_err_clear(&err);
    const struct lf_json_member more[] = {{"c", behind}, {"a", json_integer(2)}};
    tap_rc(lf_json_set(o, more, 2, "plan", &err), 0, &err, NULL, "more are set");
    tap_i64(json_integer_value(json_object_get(o, "a")), 2, "the last of a name counts");
    json_decref(o);
}

int main(void)
{
    TAP(24, test_whole());
    TAP(36, test_counts());
    TAP(27, test_sizes());
    TAP(40, test_durations());
    TAP(32, test_floats());
    TAP(11, test_formats());
    TAP(9, test_buf());
    TAP(7, test_nearest());
    TAP(10, test_err());
    TAP(12, test_mem());
    TAP(11, test_utf8());
    TAP(5, test_json_set());
    return tap_done();
}
