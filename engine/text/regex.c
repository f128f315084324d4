/* SPDX-License-Identifier: Apache-2.0
 *
 * PCRE2 behind regex.h: translation of the pattern, compilation with JIT, matching with limits.
 */
#include "config.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/regex.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"

/* White_Space and its complement as class contents. */
#define WS "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_WS                                                                                                         \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"       \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define PATTERN_MAX   65536
#define MATCH_LIMIT   200000000u
#define JIT_STACK_MAX ((size_t)8 << 20)

struct lf_regex {
    pcre2_code *code;
};

struct lf_regex_state {
    pcre2_match_data *data;
    pcre2_match_context *ctx;
    pcre2_jit_stack *stack;
};

/* One escape at p (after the backslash) into out. */
static int translate_escape(lf_buf *out, const char *pattern, char c, bool in_class, lf_err *err)
{
    if (c == 's' || c == 'S') {
        if (in_class)
            lf_buf_adds(out, c == 's' ? WS : NOT_WS);
        else
            lf_buf_adds(out, c == 's' ? "[" WS "]" : "[^" WS "]");
        return 0;
    }
    if (c == 0)
        return lf_fail(err, LF_EFORMAT, "pattern \"%.200s\" ends with a backslash", pattern);
    if (strchr("wWbBhHRXKGQEkgyYNO", c))
        return lf_fail(
            err, LF_ENOTSUP,
            "pattern \"%.200s\" uses \\%c, which this program cannot match exactly as the tokenizers library does",
            pattern, c);
    lf_buf_addc(out, '\\');
    lf_buf_addc(out, c);
    return 0;
}

static int translate(lf_buf *out, const char *pattern, lf_err *err)
{
    bool in_class = false;
    for (const char *p = pattern; *p; p++) {
        if (*p == '\\') {
            int rc = translate_escape(out, pattern, *++p, in_class, err);
            if (rc != 0)
                return rc;
            if (strchr("pPx", *p) && p[1] == '{') { /* \p{L} and \x{2028}: not a repeat count */
                while (p[1] && *p != '}')
                    lf_buf_addc(out, *++p);
            }
            continue;
        }
        if (in_class && (*p == '[' || (*p == '&' && p[1] == '&')))
            return lf_fail(err, LF_ENOTSUP,
                           "pattern \"%.200s\" has a set inside a set, which this program does not read", pattern);
        if (!in_class && *p == '[') {
            in_class = true;
            lf_buf_addc(out, *p);
            if (p[1] == '^')
                lf_buf_addc(out, *++p);
            if (p[1] == ']') { /* an empty class or a literal bracket, by dialect */
                return lf_fail(err, LF_ENOTSUP, "pattern \"%.200s\" has ']' first in a set; write \\]", pattern);
            }
            continue;
        }
        if (!in_class && ((*p == '{' && p[1] == ',') || (*p == '}' && p[1] == '+')))
            return lf_fail(err, LF_ENOTSUP, "pattern \"%.200s\" has %.2s, which dialects read differently", pattern, p);
        if (in_class && *p == ']')
            in_class = false;
        lf_buf_addc(out, *p);
    }
    return lf_buf_check(out, err);
}

lf_regex *lf_regex_create(const char *pattern, int literal, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    lf_regex *re = NULL;
    size_t len = strlen(pattern);
    if (len > PATTERN_MAX) {
        lf_fail(err, LF_EFORMAT, "a pattern of %zu bytes is above the limit of %d", len, PATTERN_MAX);
        goto out;
    }
    if (literal)
        lf_buf_add(&text, pattern, len);
    else if (translate(&text, pattern, err) != 0)
        goto out;
    re = lf_calloc(1, sizeof(*re), err);
    if (!re || lf_buf_check(&text, err) != 0)
        goto fail;
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
    if (ctx)
        pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
    re->code = pcre2_compile((PCRE2_SPTR)text.data, text.len, options, &code, &at, ctx);
    pcre2_compile_context_free(ctx);
    if (!re->code) {
        char why[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
        lf_fail(err, LF_EFORMAT, "pattern \"%.200s\": %s", pattern, why);
        goto fail;
    }
    /* Without JIT (a platform it lacks, memory that may not be executed) the interpreter gives the same matches. */
    (void)pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
    goto out;
fail:
    lf_regex_destroy(re);
    re = NULL;
out:
    lf_buf_fini(&text);
    return re;
}

void lf_regex_destroy(lf_regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    free(re);
}

lf_regex_state *lf_regex_state_create(const lf_regex *re, lf_err *err)
{
    lf_regex_state *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return NULL;
    s->data = pcre2_match_data_create_from_pattern(re->code, NULL);
    s->ctx = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(32768, JIT_STACK_MAX, NULL);
    if (!s->data || !s->ctx || !s->stack) {
        lf_fail(err, LF_ENOMEM, "no memory for matching a pattern");
        lf_regex_state_destroy(s);
        return NULL;
    }
    pcre2_set_match_limit(s->ctx, MATCH_LIMIT);
    pcre2_jit_stack_assign(s->ctx, NULL, s->stack);
    return s;
}

void lf_regex_state_destroy(lf_regex_state *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->ctx);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

int lf_regex_find(const lf_regex *re, lf_regex_state *s, const uint8_t *text, size_t len, size_t from, size_t *start,
                  size_t *end, lf_err *err)
{
    int rc = pcre2_match(re->code, text, len, from, PCRE2_NO_UTF_CHECK, s->data, s->ctx);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        char why[160];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
        return lf_fail(err, LF_EFORMAT, "the pre-tokenizer's pattern gave up at byte %zu of a text: %s", from, why);
    }
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(s->data);
    if (o[0] > o[1] || o[1] > len)
        return lf_fail(err, LF_EFORMAT, "the pre-tokenizer's pattern gave a match that ends before it starts");
    *start = o[0];
    *end = o[1];
    return 1;
}
