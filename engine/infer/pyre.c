/* SPDX-License-Identifier: Apache-2.0
 *
 * See pyre.h. An empty match is followed by one that is not empty there, as in Python since 3.7.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/infer/pyre.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define MATCH_LIMIT 10000000u

struct lf_pyre {
    char *pattern;
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *ctx;
    uint32_t groups;
};

/* The pattern in PCRE2's words. */
static int translate(lf_buf *out, const char *pattern, lf_err *err)
{
    bool in_set = false;
    for (const char *p = pattern; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            if (*p == 'Z' && !in_set)
                lf_buf_adds(out, "\\z");
            else if (*p == 'u' && strspn(p + 1, "0123456789abcdefABCDEF") >= 4) {
                lf_buf_addf(out, "\\x{%.4s}", p + 1);
                p += 4;
            } else {
                lf_buf_addf(out, "\\%c", *p);
            }
            continue;
        }
        if ((in_set && *p == '[') || (!in_set && *p == '{' && p[1] == ','))
            return lf_fail(err, LF_ENOTSUP,
                           "pattern \"%.200s\": '%.2s' is read differently; write \\[ in a set, "
                           "{0,n} for {,n}",
                           pattern, p);
        if (!in_set && *p == '[') {
            in_set = true;
            lf_buf_addc(out, *p);
            if (p[1] == '^')
                lf_buf_addc(out, *++p);
            if (p[1] == ']') /* first in a set it is itself */
                lf_buf_adds(out, (p++, "\\]"));
            continue;
        }
        in_set = in_set && *p != ']';
        lf_buf_addc(out, *p);
    }
    return lf_buf_check(out, err);
}

lf_pyre *lf_pyre_create(const char *pattern, lf_err *err)
{
    lf_buf text;
    int code = 0;
    PCRE2_SIZE at;
    lf_buf_init(&text);
    lf_pyre *re = translate(&text, pattern, err) ? NULL : lf_calloc(1, sizeof *re, err);
    if (!re)
        goto out;
    re->pattern = lf_strdup(pattern, err);
    re->code = pcre2_compile((PCRE2_SPTR)text.data, text.len,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (re->code) {
        re->data = pcre2_match_data_create_from_pattern(re->code, NULL);
        re->ctx = pcre2_match_context_create(NULL);
        pcre2_pattern_info(re->code, PCRE2_INFO_CAPTURECOUNT, &re->groups);
    } else {
        char why[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        lf_fail(err, LF_EFORMAT, "pattern \"%.200s\": %s", pattern, why);
    }
    if (!re->pattern || !re->code || !re->data || !re->ctx) {
        lf_pyre_destroy(re);
        re = NULL;
        goto out;
    }
    pcre2_set_match_limit(re->ctx, MATCH_LIMIT);
out:
    lf_buf_fini(&text);
    return re;
}

void lf_pyre_destroy(lf_pyre *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    pcre2_match_data_free(re->data);
    pcre2_match_context_free(re->ctx);
    free(re->pattern);
    free(re);
}

/* Next match at or behind *at; 1 with the ovector filled and *at, *empty moved on, 0 none. */
static int next(lf_pyre *re, const char *text, size_t len, size_t *at, bool *empty, lf_err *err)
{
    int rc =
        pcre2_match(re->code, (PCRE2_SPTR)text, len, *at,
                    PCRE2_NO_UTF_CHECK | (*empty ? PCRE2_NOTEMPTY_ATSTART : 0), re->data, re->ctx);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        char why[160];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return lf_fail(err, LF_EFORMAT, "pattern \"%.200s\" gave up: %s", re->pattern, why);
    }
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(re->data);
    if (o[0] > o[1]) /* \K in a lookahead */
        return lf_fail(err, LF_EFORMAT, "pattern \"%.200s\" ends a match before it starts",
                       re->pattern);
    *at = o[1];
    *empty = o[0] == o[1];
    return 1;
}

static json_t *group(const lf_pyre *re, const char *text, uint32_t g)
{
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(re->data);
    return o[2 * g] == PCRE2_UNSET ? json_string("")
                                   : json_stringn_nocheck(text + o[2 * g], o[2 * g + 1] - o[2 * g]);
}

json_t *lf_pyre_findall(lf_pyre *re, const char *text, size_t len, lf_err *err)
{
    json_t *all = json_array();
    size_t at = 0;
    bool empty = false;
    int rc;
    while ((rc = next(re, text, len, &at, &empty, err)) > 0) {
        json_t *m = re->groups > 1 ? json_array() : group(re, text, re->groups);
        for (uint32_t g = 1; re->groups > 1 && g <= re->groups; g++)
            json_array_append_new(m, group(re, text, g));
        if (json_array_append_new(all, m))
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
    }
    if (rc == 0)
        return all;
    json_decref(all);
    return NULL;
}

int lf_pyre_remove(lf_pyre *re, const char *text, size_t len, lf_buf *out, lf_err *err)
{
    size_t at = 0, from = 0;
    bool empty = false;
    int rc;
    while ((rc = next(re, text, len, &at, &empty, err)) > 0) {
        size_t start = pcre2_get_ovector_pointer(re->data)[0];
        lf_buf_add(out, text + from, start - from);
        from = at;
    }
    lf_buf_add(out, text + from, len - from);
    return rc < 0 ? rc : lf_buf_check(out, err);
}
