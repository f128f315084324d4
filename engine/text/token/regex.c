/* SPDX-License-Identifier: Apache-2.0
 *
 * PCRE2 behind regex.h: compilation with JIT, matching with limits. regex_pattern.c translates the
 * pattern.
 */
#include "config.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/token/regex_priv.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define PATTERN_MAX   65536
#define MATCH_LIMIT   200000000u
#define JIT_STACK_MAX ((size_t)8 << 20)

struct lf_regex {
    pcre2_code *code;
};

struct lf_regex_state {
    const lf_regex *re;
    pcre2_match_data *data;
    pcre2_match_context *ctx;
    pcre2_jit_stack *stack;
};

bool lf_regex_pcre2_classes(void)
{
    char version[32] = "";
    int major = 0;
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > (int)sizeof(version) ||
        pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version) < 0)
        return false;
    for (const char *p = version; *p >= '0' && *p <= '9' && major < 1000; p++)
        major = 10 * major + (*p - '0');
    return major >= 14 && major <= 16;
}

/* How PCRE2 is to compile it. $ is an end of line to Oniguruma, the end of the text to Rust's
 * library. */
static uint32_t compile_options(unsigned how)
{
    if (how & LF_REGEX_LITERAL)
        return PCRE2_UTF | PCRE2_LITERAL;
    return PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C |
           (how & LF_REGEX_RUST ? PCRE2_DOLLAR_ENDONLY : PCRE2_MULTILINE);
}

lf_regex *lf_regex_create(const char *pattern, unsigned how, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    lf_regex *re = NULL;
    size_t len = strlen(pattern);
    if (len > PATTERN_MAX) {
        lf_fail(err, LF_EFORMAT, "a pattern of %zu bytes is above the limit of %d", len,
                PATTERN_MAX);
        goto out;
    }
    if (how & LF_REGEX_LITERAL)
        lf_buf_add(&text, pattern, len);
    else if (lf_regex_translate(&text, pattern, how, err) != 0)
        goto out;
    re = lf_calloc(1, sizeof(*re), err);
    if (!re || lf_buf_check(&text, err) != 0)
        goto fail;
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
    if (ctx)
        pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    re->code =
        pcre2_compile((PCRE2_SPTR)text.data, text.len, compile_options(how), &code, &at, ctx);
    pcre2_compile_context_free(ctx);
    if (!re->code) {
        char why[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
        lf_fail(err, LF_EFORMAT, "pattern \"%.200s\": %s", pattern, why);
        goto fail;
    }
    /* Without JIT (a platform it lacks, memory that may not be executed) the interpreter gives the
     * same matches. */
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
    s->re = re;
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

int lf_regex_find(lf_regex_state *s, const uint8_t *text, size_t len, size_t from, size_t *start,
                  size_t *end, lf_err *err)
{
    int rc = pcre2_match(s->re->code, text, len, from, PCRE2_NO_UTF_CHECK, s->data, s->ctx);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        char why[160];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
        return lf_fail(err, LF_EFORMAT,
                       "the pre-tokenizer's pattern gave up at byte %zu of a text: %s", from, why);
    }
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(s->data);
    if (o[0] > o[1] || o[1] > len)
        return lf_fail(err, LF_EFORMAT,
                       "the pre-tokenizer's pattern gave a match that ends before it starts");
    *start = o[0];
    *end = o[1];
    return 1;
}
