/* SPDX-License-Identifier: Apache-2.0
 *
 * jansson with caps, positions and typed members.
 */
#include "engine/base/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"

/* Digits of the longest integer that always fits; a longer one may. */
#define SAFE_DIGITS 18

/* The same text with integers of more digits as reals: transformers writes model_max_length =
 * 1000000000000000019884624838656 for "none". */
static int widen(lf_buf *out, const char *text, size_t len, lf_err *err)
{
    bool quoted = false;
    for (size_t i = 0, n; i < len; i += n) {
        n = 1;
        if (quoted && text[i] == '\\' && i + 1 < len)
            n = 2;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && text[i] >= '0' && text[i] <= '9')
            while (i + n < len && text[i + n] && strchr("0123456789.eE+-", text[i + n]))
                n++;
        lf_buf_add(out, text + i, n);
        if (!quoted && n > SAFE_DIGITS && !memchr(text + i, '.', n) && !memchr(text + i, 'e', n) &&
            !memchr(text + i, 'E', n))
            lf_buf_addf(out, ".0");
    }
    return lf_buf_check(out, err);
}

static json_t *load_widened(const char *text, size_t len, json_error_t *je)
{
    lf_buf b;
    json_t *v = NULL;
    lf_buf_init(&b);
    if (widen(&b, text, len, NULL) == 0)
        v = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, je);
    lf_buf_fini(&b);
    return v;
}

json_t *lf_json_load_text(const char *text, size_t len, const char *path_for_messages, lf_err *err)
{
    json_error_t je;
    size_t bom = lf_utf8_bom(text, len);
    text += bom;
    len -= bom;
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!v && json_error_code(&je) == json_error_numeric_overflow)
        v = load_widened(text, len, &je);
    if (!v)
        lf_fail(err, LF_EFORMAT, "%s:%d:%d: %s", path_for_messages, je.line < 1 ? 1 : je.line,
                je.column < 1 ? 1 : je.column, je.text);
    return v;
}

json_t *lf_json_load_file(const char *path, size_t max_bytes, lf_err *err)
{
    lf_buf b;
    json_t *v = NULL;
    lf_buf_init(&b);
    if (lf_io_read_file(path, max_bytes, &b, err) == 0)
        v = lf_json_load_text(b.data, b.len, path, err);
    lf_buf_fini(&b);
    return v;
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

/* 1: *v is the member; 0: absent and not needed; negative: failed. */
static int member(json_t **v, json_t *o, const char *key, bool need, const char *what, lf_err *err)
{
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "%s is %s, not an object", what,
                       o ? type_name(o) : "missing");
    *v = json_object_get(o, key);
    if (*v)
        return 1;
    return need ? lf_fail(err, LF_EFORMAT, "%s has no \"%s\"", what, key) : 0;
}

static int wrong_type(const json_t *v, const char *key, const char *want, const char *what,
                      lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: \"%s\" is %s, not %s", what, key, type_name(v), want);
}

int lf_json_get_str(const char **out, json_t *o, const char *key, bool need, const char *what,
                    lf_err *err)
{
    json_t *v;
    int rc = member(&v, o, key, need, what, err);
    if (rc <= 0)
        return rc;
    if (!json_is_string(v))
        return wrong_type(v, key, "a string", what, err);
    *out = json_string_value(v);
    return 0;
}

int lf_json_get_i64(int64_t *out, json_t *o, const char *key, bool need, const char *what,
                    lf_err *err)
{
    json_t *v;
    int rc = member(&v, o, key, need, what, err);
    if (rc <= 0)
        return rc;
    if (!json_is_integer(v))
        return wrong_type(v, key, "an integer", what, err);
    *out = json_integer_value(v);
    return 0;
}

int lf_json_get_f64(double *out, json_t *o, const char *key, bool need, const char *what,
                    lf_err *err)
{
    json_t *v;
    int rc = member(&v, o, key, need, what, err);
    if (rc <= 0)
        return rc;
    if (!json_is_number(v))
        return wrong_type(v, key, "a number", what, err);
    *out = json_number_value(v);
    return 0;
}

int lf_json_get_bool(bool *out, json_t *o, const char *key, bool need, const char *what,
                     lf_err *err)
{
    json_t *v;
    int rc = member(&v, o, key, need, what, err);
    if (rc <= 0)
        return rc;
    if (!json_is_boolean(v))
        return wrong_type(v, key, "a boolean", what, err);
    *out = json_is_true(v);
    return 0;
}

int lf_json_get_array(json_t **out, json_t *o, const char *key, bool need, const char *what,
                      lf_err *err)
{
    json_t *v;
    int rc = member(&v, o, key, need, what, err);
    if (rc <= 0)
        return rc;
    if (!json_is_array(v))
        return wrong_type(v, key, "a list", what, err);
    *out = v;
    return 0;
}

int lf_json_get_object(json_t **out, json_t *o, const char *key, bool need, const char *what,
                       lf_err *err)
{
    json_t *v;
    int rc = member(&v, o, key, need, what, err);
    if (rc <= 0)
        return rc;
    if (!json_is_object(v))
        return wrong_type(v, key, "an object", what, err);
    *out = v;
    return 0;
}

int lf_json_set(json_t *o, const struct lf_json_member *members, size_t n, const char *what,
                lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (rc != 0)
            json_decref(members[i].value);
        else if (json_object_set_new(o, members[i].key, members[i].value) != 0)
            rc = lf_fail(err, LF_ENOMEM, "%s: no memory for \"%s\", or it is no UTF-8", what,
                         members[i].key);
    }
    return rc;
}

char *lf_json_dump(const json_t *v, lf_err *err)
{
    char *s =
        json_dumps(v, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!s)
        lf_fail(err, LF_ENOMEM,
                "cannot write a JSON value: no memory, or a string that is not UTF-8");
    return s;
}
