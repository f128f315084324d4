/* SPDX-License-Identifier: Apache-2.0
 *
 * The hand-written scanners against PCRE2 with the same pattern: every string of up to five symbols
 * from an alphabet with one or two members of each class, then long random strings, and every code
 * point on its own and after an apostrophe.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/text/token/regex.h"
#include "engine/text/token/scan.h"
#include "engine/text/token/uniclass.h"
#include "tests/tap/tap.h"
#include "tests/unit/text_vectors.h"

static uint8_t *cls;

typedef struct pair {
    enum lf_scan_kind kind;
    const char *name, *pattern;
    lf_regex *re;
    lf_regex_state *st;
    uint64_t cuts, bad;
} pair;

/* Do both cut text at the same places? */
static bool same(pair *p, const uint8_t *text, size_t n)
{
    lf_err err = LF_ERR_INIT;
    for (size_t at = 0; at < n;) {
        size_t start, end;
        int rc = lf_regex_find(p->st, text, n, at, &start, &end, &err);
        if (rc != 1 || start != at)
            return false;
        if (lf_scan_next(p->kind, cls, text + at, text + n) != end - at)
            return false;
        at = end;
        p->cuts++;
    }
    return true;
}

static void check(pair *p, const uint8_t *text, size_t n)
{
    if (same(p, text, n))
        return;
    if (p->bad++ < 5) {
        char hex[256] = "";
        for (size_t i = 0; i < n && i < 100; i++)
            snprintf(hex + 2 * i, 3, "%02x", text[i]);
        tap_diag("%s differs on %s", p->name, hex);
    }
}

/* The classes of the scanners' table and of patterns are the same on every code point. */
static size_t disagreed(void)
{
    lf_err err = LF_ERR_INIT;
    static const char *const pat[] = {"\\p{L}", "\\p{N}", "\\s"};
    static const unsigned bit[] = {LF_UC_L, LF_UC_N, LF_UC_S};
    size_t bad = 0;
    for (int k = 0; k < 3; k++) {
        lf_regex *re = lf_regex_create(pat[k], 0, &err);
        lf_regex_state *st = lf_regex_state_create(re, &err);
        for (uint32_t c = 0; c < LF_UNICLASS_SIZE; c++) {
            uint8_t b[4];
            size_t s, e;
            bool hit = (c < 0xD800 || c > 0xDFFF) &&
                       lf_regex_find(st, b, vectors_utf8(b, c), 0, &s, &e, &err) == 1;
            bad += hit != ((cls[c] & bit[k]) != 0);
        }
        lf_regex_state_destroy(st);
        lf_regex_destroy(re);
    }
    return bad;
}

static void all_short(pair *p)
{
    /* Letters that matter to contractions, other letters, long s, digits, newlines, spaces,
     * punctuation, an emoji. */
    static const uint32_t sym[] = {'\'', 's',  'L',  'e', 'V',  'z',    0x17F, 0xE9,   '1',
                                   0xBD, '\n', '\r', ' ', '\t', 0x3000, '!',   0x1F600};
    const size_t n_sym = sizeof(sym) / sizeof(sym[0]);
    for (int len = 1; len <= 5; len++) {
        size_t total = 1;
        for (int i = 0; i < len; i++)
            total *= n_sym;
        for (size_t k = 0; k < total; k += len == 5 ? 3 : 1) {
            uint8_t text[32];
            size_t n = 0, r = k;
            for (int i = 0; i < len; i++, r /= n_sym)
                n += vectors_utf8(text + n, sym[r % n_sym]);
            check(p, text, n);
        }
    }
}

static void random_long(pair *p)
{
    uint8_t text[4 * 200];
    for (uint32_t t = 0; t < 3000; t++) {
        size_t n = 0;
        for (uint32_t i = 0; i < 180; i++) {
            uint32_t r = lf_rng_u32(t, 1, i), kind = lf_rng_u32(t, 2, i / 3) % 8, c;
            static const uint32_t base[] = {32, 97, 0x300, 0x9, 0x2000, 0x4E00, 0x30, 0};
            static const uint32_t span[] = {95, 26, 0x600, 5, 0x300, 0x5000, 10, 0x110000};
            c = base[kind] + r % span[kind];
            n += vectors_utf8(text + n, c >= 0xD800 && c <= 0xDFFF ? ' ' : c);
        }
        check(p, text, n);
    }
}

static void each_code_point(pair *p)
{
    for (uint32_t c = 0; c < LF_UNICLASS_SIZE; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        uint8_t text[16];
        size_t n = vectors_utf8(text, ' ');
        n += vectors_utf8(text + n, c);
        n += vectors_utf8(text + n, '\'');
        n += vectors_utf8(text + n, c);
        n += vectors_utf8(text + n, 'e');
        check(p, text, n);
    }
}

static void test_pattern(pair *p)
{
    lf_err err = LF_ERR_INIT;
    tap_i64(lf_scan_find(p->pattern), p->kind, "the pattern is recognised");
    p->re = lf_regex_create(p->pattern, 0, &err);
    p->st = lf_regex_state_create(p->re, &err);
    all_short(p);
    tap_i64((int64_t)p->bad, 0, "short strings are cut alike");
    random_long(p);
    each_code_point(p);
    tap_i64((int64_t)p->bad, 0, "random strings and every code point are cut alike");
    tap_ok(p->cuts > 1000000, "%s: %llu cuts compared", p->name, (unsigned long long)p->cuts);
    lf_regex_state_destroy(p->st);
    lf_regex_destroy(p->re);
}

static void test_wrong(void)
{
    lf_err err = LF_ERR_INIT;
    /* The comparison can fail: two patterns that differ. */
    pair wrong = {.kind = LF_SCAN_QWEN2, .name = "wrong"};
    wrong.re = lf_regex_create(LF_PATTERN_LLAMA3, 0, &err);
    wrong.st = lf_regex_state_create(wrong.re, &err);
    tap_ok(!same(&wrong, (const uint8_t *)"12", 2), "a wrong scanner is noticed");
    lf_regex_state_destroy(wrong.st);
    lf_regex_destroy(wrong.re);
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    cls = lf_uniclass_create(&err);
    pair pairs[] = {{.kind = LF_SCAN_GPT2, .name = "gpt2", .pattern = LF_PATTERN_GPT2},
                    {.kind = LF_SCAN_LLAMA3, .name = "llama3", .pattern = LF_PATTERN_LLAMA3},
                    {.kind = LF_SCAN_QWEN2, .name = "qwen2", .pattern = LF_PATTERN_QWEN2}};
    tap_i64((int64_t)disagreed(), 0, "code points that are of another class in a pattern");
    for (size_t i = 0; i < 3; i++)
        TAP(4, test_pattern(&pairs[i]));
    TAP(1, test_wrong());
    tap_i64(lf_scan_find("\\p{L}+"), LF_SCAN_NONE, "another pattern has no scanner");
    free(cls);
    return tap_done();
}
