/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking the members of a large JSON object in place. Balance of brackets is all that is asked of
 * a value here; what a caller uses it parses in full.
 */
#include <jansson.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/store/tensors_priv.h"

void lf_jscan_init(lf_jscan *j, const char *text, size_t len, const char *what)
{
    memset(j, 0, sizeof *j);
    lf_buf_init(&j->key);
    j->text = j->p = text;
    j->end = text + len;
    j->what = what;
}

void lf_jscan_fini(lf_jscan *j)
{
    if (j->key.data)
        lf_buf_fini(&j->key);
}

static int bad(const lf_jscan *j, const char *want, lf_err *err)
{
    if (j->p >= j->end)
        return lf_fail(err, LF_EFORMAT, "%s: the JSON text ends where %s should be", j->what, want);
    return lf_fail(err, LF_EFORMAT, "%s: byte %zu of the JSON text: %s expected", j->what,
                   (size_t)(j->p - j->text), want);
}

static void skip_space(lf_jscan *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r'))
        j->p++;
}

/* p stands on a quote; past the closing one, or NULL. */
static const char *end_of_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\')
            p++;
    return p < end ? p + 1 : NULL;
}

/* Past the value that begins at p, or NULL. */
static const char *end_of_value(const char *p, const char *end)
{
    size_t depth = 0;
    while (p < end) {
        if (*p == '"') {
            if (!(p = end_of_string(p, end)))
                return NULL;
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            if (depth == 0)
                return NULL;
            depth--;
            p++;
        } else if (depth) {
            p++;
            continue;
        } else {
            const char *from = p;
            while (p < end && !strchr(" \t\r\n,]}", *p))
                p++;
            return p > from ? p : NULL;
        }
        if (depth == 0)
            return p;
    }
    return NULL;
}

/* A quoted string by the JSON library's rules, appended to out after it is cleared. */
static int unquote(lf_buf *out, const char *from, const char *to, const lf_jscan *j, lf_err *err)
{
    json_error_t je;
    lf_buf_clear(out);
    /* The common string has neither escapes nor control bytes; UTF-8 was checked for the whole
     * text. */
    const char *p = from + 1;
    while (p < to - 1 && *p != '\\' && (unsigned char)*p >= 0x20)
        p++;
    if (p == to - 1) {
        lf_buf_add(out, from + 1, (size_t)(to - from - 2));
        return lf_buf_check(out, err);
    }
    json_t *v = json_loadb(from, (size_t)(to - from), JSON_DECODE_ANY, &je);
    if (!json_is_string(v)) {
        json_decref(v);
        return lf_fail(err, LF_EFORMAT, "%s: byte %zu of the JSON text: not a string: %s", j->what,
                       (size_t)(from - j->text), je.text);
    }
    lf_buf_add(out, json_string_value(v), json_string_length(v));
    json_decref(v);
    return lf_buf_check(out, err);
}

static int scan_member(lf_jscan *j, lf_err *err)
{
    const char *from = j->p;
    const char *to = from < j->end && *from == '"' ? end_of_string(from, j->end) : NULL;
    if (!to)
        return bad(j, "a quoted name", err);
    int rc = unquote(&j->key, from, to, j, err);
    if (rc < 0)
        return rc;
    j->p = to;
    skip_space(j);
    if (j->p >= j->end || *j->p != ':')
        return bad(j, "':'", err);
    j->p++;
    skip_space(j);
    to = end_of_value(j->p, j->end);
    if (!to)
        return bad(j, "a value", err);
    j->value = j->p;
    j->value_len = (size_t)(to - j->p);
    j->p = to;
    return 1;
}

int lf_jscan_next(lf_jscan *j, lf_err *err)
{
    skip_space(j);
    if (!j->begun) {
        if (j->p >= j->end || *j->p != '{')
            return bad(j, "'{'", err);
        j->p++;
        skip_space(j);
        j->begun = true;
        if (j->p < j->end && *j->p != '}')
            return scan_member(j, err);
    } else if (j->p < j->end && *j->p == ',') {
        j->p++;
        skip_space(j);
        return scan_member(j, err);
    }
    if (j->p >= j->end || *j->p != '}')
        return bad(j, "',' or '}'", err);
    j->p++;
    skip_space(j);
    return j->p < j->end ? bad(j, "the end", err) : 0;
}

int lf_jscan_string(const lf_jscan *j, lf_buf *out, lf_err *err)
{
    if (j->value_len < 2 || j->value[0] != '"')
        return lf_fail(err, LF_EFORMAT, "%s: \"%.200s\" is not a string", j->what, j->key.data);
    return unquote(out, j->value, j->value + j->value_len, j, err);
}
