/* SPDX-License-Identifier: Apache-2.0
 *
 * Built-in rules: see reward.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/post/reward.h"

#define MATCH_LIMIT 1000000 /* steps of a match: a completion is not trusted with more */

enum rule_kind {
    RULE_EXACT = 0,
    RULE_REGEX,
    RULE_NUMBER,
    RULE_NUMBER_STRICT,
    RULE_FORMAT,
    RULE_LENGTH,
    RULE_KINDS
};
static const char *const kinds[] = {"exact",         "regex",  "number",
                                    "number-strict", "format", "length"};

struct lf_rule {
    enum rule_kind kind;
    double weight;
    char *spec, *column;
    double max;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

const char *lf_rule_name(const lf_rule *r)
{
    return kinds[r->kind];
}

const char *lf_rule_spec(const lf_rule *r)
{
    return r->spec;
}

double lf_rule_weight(const lf_rule *r)
{
    return r->weight;
}

void lf_rule_destroy(lf_rule *r)
{
    if (!r)
        return;
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->limits);
    pcre2_code_free(r->code);
    free(r->column);
    free(r->spec);
    free(r);
}

static int compile(lf_rule *r, const char *pattern, lf_err *err)
{
    int code;
    PCRE2_SIZE at;
    char why[160];
    uint32_t flags = PCRE2_UTF | PCRE2_DOTALL |
                     (r->kind == RULE_FORMAT ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0);
    r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, flags, &code, &at, NULL);
    if (!r->code) {
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return lf_fail(err, LF_EINVAL, "pattern %s: %s at character %zu", pattern, why,
                       (size_t)at + 1);
    }
    r->match = pcre2_match_data_create_from_pattern(r->code, NULL);
    r->limits = pcre2_match_context_create(NULL);
    if (!r->match || !r->limits)
        return lf_fail(err, LF_ENOMEM, "out of memory for a pattern");
    pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    return 0;
}

/* "0.5 * rest" or "rest". */
static int parse_weight(lf_rule *r, const char **at, lf_err *err)
{
    const char *star = strchr(*at, '*'), *colon = strchr(*at, ':');
    char number[64];
    r->weight = 1;
    if (!star || (colon && colon < star)) /* a star of the pattern */
        return 0;
    size_t n = (size_t)(star - *at);
    while (n > 0 && (*at)[n - 1] == ' ')
        n--;
    if (n >= sizeof number)
        return lf_fail(err, LF_EINVAL, "the weight before '*' is too long");
    memcpy(number, *at, n);
    number[n] = 0;
    *at = star + 1;
    return lf_parse_f64(&r->weight, number, err);
}

static int parse_argument(lf_rule *r, const char *arg, lf_err *err)
{
    int64_t max;
    int rc;
    switch (r->kind) {
    case RULE_FORMAT:
        return compile(r, arg, err);
    case RULE_LENGTH:
        rc = lf_parse_count(&max, arg, err);
        r->max = (double)max;
        return rc != 0 ? rc : max > 0 ? 0 : lf_fail(err, LF_EINVAL, "the length must be above 0");
    case RULE_REGEX: {
        const char *colon = strchr(arg, ':');
        if (!colon)
            return lf_fail(err, LF_EINVAL, "regex wants COLUMN:PATTERN");
        r->column = lf_strndup(arg, (size_t)(colon - arg), err);
        return r->column ? compile(r, colon + 1, err) : LF_ENOMEM;
    }
    default:
        r->column = lf_strdup(arg, err);
        return r->column ? 0 : LF_ENOMEM;
    }
}

static int parse(lf_rule *r, const char *spec, lf_err *err)
{
    const char *at = spec;
    while (*at == ' ')
        at++;
    int rc = parse_weight(r, &at, err);
    if (rc != 0)
        return rc;
    while (*at == ' ')
        at++;
    for (int k = 0; k < RULE_KINDS; k++) {
        size_t n = strlen(kinds[k]);
        if (strncmp(at, kinds[k], n) == 0 && at[n] == ':') {
            r->kind = (enum rule_kind)k;
            return at[n + 1] ? parse_argument(r, at + n + 1, err)
                             : lf_fail(err, LF_EINVAL, "nothing follows %s:", kinds[k]);
        }
    }
    return lf_fail(err, LF_EINVAL,
                   "no such rule; there are exact, regex, number, number-strict, format, length, "
                   "each with :ARGUMENT");
}

lf_rule *lf_rule_create(const char *spec, lf_err *err)
{
    lf_rule *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->spec = lf_strdup(spec, err);
    if (!r->spec || parse(r, spec, err)) {
        lf_err_prefix(err, "reward '%s'", spec);
        lf_rule_destroy(r);
        return NULL;
    }
    return r;
}

/* ---- numbers ---- */

/* A number at p: its length, 0 when there is none. `before`: the character before p, which decides
 * whether '-' is a sign. */
static size_t number_length(const char *p, char before)
{
    const char *q = p;
    if (*q == '-') {
        if (isalnum((unsigned char)before))
            return 0;
        q++;
    }
    if (*q == '$')
        q++;
    if (!isdigit((unsigned char)*q))
        return 0;
    while (isdigit((unsigned char)*q) || (*q == ',' && isdigit((unsigned char)q[1])))
        q++;
    if (*q == '.' && isdigit((unsigned char)q[1]))
        for (q++; isdigit((unsigned char)*q);)
            q++;
    return (size_t)(q - p);
}

/* Canonical: no $ and commas, no zeros that say nothing, no minus before zero. */
static char *canonical(const char *p, size_t n)
{
    char *out = malloc(n + 2), *w = out;
    const char *end = p + n;
    if (!out)
        return NULL;
    if (*p == '-')
        *w++ = *p++;
    while (p < end && (*p == '$' || *p == ',' || *p == '0'))
        p++;
    if (p == end || *p == '.')
        *w++ = '0';
    bool point = false;
    for (; p < end; p++)
        if (*p != ',') {
            point = point || *p == '.';
            *w++ = *p;
        }
    while (point && (w[-1] == '0' || w[-1] == '.')) {
        point = w[-1] != '.';
        w--;
    }
    *w = 0;
    if (strcmp(out, "-0") == 0)
        memmove(out, out + 1, 2);
    return out;
}

char *lf_rule_number(const char *text, bool strict)
{
    const char *from = text, *hit = NULL, *found = NULL;
    size_t length = 0;
    for (const char *p = text; (p = strstr(p, "####")); p += 4)
        hit = p + 4;
    if (hit)
        from = hit;
    else if (strict)
        return NULL;
    for (const char *p = from; *p;) {
        size_t n = number_length(p, p > text ? p[-1] : ' ');
        if (n) {
            found = p;
            length = n;
            if (hit) /* the first behind the mark */
                break;
        }
        p += n ? n : 1;
    }
    return found ? canonical(found, length) : NULL;
}

/* ---- scoring ---- */

/* The row's column as text, owned. */
static int column_text(char **out, const lf_rule *r, const struct lf_reward_item *it, lf_err *err)
{
    json_t *v = json_object_get(it->rest, r->column);
    if (!v || json_is_null(v))
        return lf_fail(err, LF_EFORMAT,
                       "%s: its row has no column '%s', which the reward %s compares with", it->id,
                       r->column, kinds[r->kind]);
    *out = json_is_string(v) ? lf_strdup(json_string_value(v), err)
                             : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    return *out ? 0 : lf_fail(err, LF_ENOMEM, "out of memory for a column");
}

static bool same_trimmed(const char *a, size_t n, const char *b)
{
    size_t m = strlen(b);
    while (n > 0 && isspace((unsigned char)*a))
        a++, n--;
    while (n > 0 && isspace((unsigned char)a[n - 1]))
        n--;
    while (m > 0 && isspace((unsigned char)*b))
        b++, m--;
    while (m > 0 && isspace((unsigned char)b[m - 1]))
        m--;
    return n == m && memcmp(a, b, n) == 0;
}

/* 1: *start, *end is group 1 (or all) of the last match. 0: none, or the pattern wants more steps
 * than it may have. */
static int last_match(lf_rule *r, const char *text, size_t *start, size_t *end)
{
    size_t at = 0, n = strlen(text);
    int found = 0;
    while (at <= n) {
        int rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, at, 0, r->match, r->limits);
        if (rc < 0)
            break;
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(r->match);
        int g = rc > 1 && v[2] != PCRE2_UNSET ? 1 : 0;
        *start = v[2 * g];
        *end = v[2 * g + 1];
        found = 1;
        at = v[1] > at ? v[1] : at + 1;
        while (at < n && ((unsigned char)text[at] & 0xC0) == 0x80)
            at++;
    }
    return found;
}

static bool same_number(const char *text, const char *want, bool strict, bool *known)
{
    char *a = lf_rule_number(text, strict), *b = lf_rule_number(want, false);
    bool same = a && b && strcmp(a, b) == 0;
    *known = b != NULL;
    free(a);
    free(b);
    return same;
}

static int compare(lf_rule *r, const struct lf_reward_item *it, const char *want, double *score,
                   lf_err *err)
{
    size_t start, end;
    bool known = true;
    if (r->kind == RULE_EXACT)
        *score = same_trimmed(it->completion, strlen(it->completion), want);
    else if (r->kind == RULE_REGEX)
        *score = last_match(r, it->completion, &start, &end) &&
                 same_trimmed(it->completion + start, end - start, want);
    else
        *score = same_number(it->completion, want, r->kind == RULE_NUMBER_STRICT, &known);
    return known ? 0
                 : lf_fail(err, LF_EFORMAT, "%s: column '%s' of its row holds no number: %.60s",
                           it->id, r->column, want);
}

int lf_rule_score(lf_rule *r, const struct lf_reward_item *it, double *score, lf_err *err)
{
    char *want = NULL;
    if (r->kind == RULE_LENGTH) {
        double over = (double)it->tokens - r->max;
        *score = over > 0 ? -fmin(1, over / r->max) : 0;
        return 0;
    }
    if (r->kind == RULE_FORMAT) {
        *score = pcre2_match(r->code, (PCRE2_SPTR)it->completion, strlen(it->completion), 0, 0,
                             r->match, r->limits) >= 0;
        return 0;
    }
    int rc = column_text(&want, r, it, err);
    if (rc == 0)
        rc = compare(r, it, want, score, err);
    free(want);
    return rc;
}
