/* SPDX-License-Identifier: Apache-2.0
 *
 * See rowjson.h. A row of parquet is made into an object value by value; of a document, where one
 * text is all that is wanted, no object is made.
 */
#include "config.h"

#include "engine/text/corpus/rowjson.h"

#include <string.h>

#include "engine/text/corpus/corpus_samples.h"
#include "engine/text/parquet/rowpack.h"
#include "engine/text/token/tokenizer_priv.h"

struct unpack {
    const lf_corpus_record *r;
    size_t at;
    unsigned flags;
    const char *where;
    uint64_t *replaced;
};

/* The bytes of a text as UTF-8, in `fixed` when they had to be repaired. */
static int repair(const struct unpack *u, const lf_rowpack_item *it, lf_bytes *text, lf_buf *fixed,
                  lf_err *err)
{
    *text = (lf_bytes){(const uint8_t *)it->text.p, it->text.n};
    int rc = lf_text_repair(text, fixed, (u->flags & LF_ROW_STRICT) != 0, u->replaced, err);
    if (rc < 0)
        return lf_err_prefix(err, "%s", u->where);
    if (!(u->flags & LF_ROW_NUL) && text->n > 0 && memchr(text->p, 0, text->n))
        return lf_fail(err, LF_EFORMAT, "%s: a text holds a NUL, which is not allowed here",
                       u->where);
    return 0;
}

static int make_text(json_t **out, const struct unpack *u, const lf_rowpack_item *it, lf_err *err)
{
    lf_bytes text;
    lf_buf fixed;
    lf_buf_init(&fixed);
    int rc = repair(u, it, &text, &fixed, err);
    if (rc == 0)
        *out = json_stringn_nocheck((const char *)text.p, text.n);
    lf_buf_fini(&fixed);
    return rc;
}

static int damaged(const struct unpack *u, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: the row's form in memory is damaged", u->where);
}

static int make_value(json_t **out, struct unpack *u, const lf_rowpack_item *it, lf_err *err);

/* Values until the list or object ends. */
static int fill(json_t *into, struct unpack *u, lf_err *err)
{
    lf_rowpack_item it;
    for (;;) {
        const char *name = NULL;
        json_t *v = NULL;
        if (!lf_rowpack_get(&it, u->r->raw, u->r->len, &u->at))
            return damaged(u, err);
        if (it.tag == LF_ROWPACK_LIST_END || it.tag == LF_ROWPACK_OBJECT_END)
            return 0;
        if (it.tag == LF_ROWPACK_MEMBER) {
            name = it.text.p;
            if (!lf_rowpack_get(&it, u->r->raw, u->r->len, &u->at))
                return damaged(u, err);
        }
        if ((name != NULL) != json_is_object(into))
            return damaged(u, err);
        if (name && u->r->folder && json_object_get(into, name))
            return lf_fail(err, LF_EFORMAT, "%s: the sample has two parts called %.100s", u->where,
                           name);
        int rc = make_value(&v, u, &it, err);
        if (rc < 0)
            return rc;
        int put = name ? json_object_set_new_nocheck(into, name, v)
                       : json_array_append_new(into, v); /* a v that is NULL fails, too */
        if (put != 0)
            return lf_fail(err, LF_ENOMEM, "%s: no memory for a row", u->where);
    }
}

static int make_value(json_t **out, struct unpack *u, const lf_rowpack_item *it, lf_err *err)
{
    *out = NULL;
    switch (it->tag) {
    case LF_ROWPACK_NULL:
        *out = json_null();
        return 0;
    case LF_ROWPACK_FALSE:
    case LF_ROWPACK_TRUE:
        *out = json_boolean(it->tag == LF_ROWPACK_TRUE);
        return 0;
    case LF_ROWPACK_INT:
        *out = json_integer(it->i);
        return 0;
    case LF_ROWPACK_REAL:
        *out = json_real(it->d);
        return 0;
    case LF_ROWPACK_TEXT:
        return make_text(out, u, it, err);
    case LF_ROWPACK_BYTES: /* never shown or sent: rowmedia.h takes it out of the row */
        *out = json_stringn_nocheck(it->text.p, it->text.n);
        return 0;
    case LF_ROWPACK_LIST:
    case LF_ROWPACK_OBJECT: {
        json_t *v = it->tag == LF_ROWPACK_LIST ? json_array() : json_object();
        int rc = v ? fill(v, u, err) : lf_fail(err, LF_ENOMEM, "%s: no memory", u->where);
        if (rc < 0)
            json_decref(v);
        else
            *out = v;
        return rc;
    }
    default:
        return damaged(u, err);
    }
}

/* The columns of a sample's json; pictures that stand beside it are those that it names. */
static int add_json(json_t *row, const struct unpack *u, lf_err *err)
{
    json_t *text = json_object_get(row, LF_WEBSAMPLES_JSON), *own = NULL;
    if (!text)
        return 0;
    const lf_shape_line line = {json_string_value(text), json_string_length(text),
                                (u->flags & LF_ROW_STRICT) != 0, (u->flags & LF_ROW_NUL) != 0};
    int rc = lf_shape_json(&own, &line, u->where, u->replaced, err);
    if (rc < 0)
        return rc;
    if (json_object_get(row, "images"))
        json_object_del(own, "image");
    if (json_object_get(own, "messages") || json_object_get(own, "conversations"))
        json_object_del(row, "messages");
    json_object_del(row, LF_WEBSAMPLES_JSON);
    if (json_object_update_missing(row, own) != 0)
        rc = lf_fail(err, LF_ENOMEM, "%s: no memory for a row", u->where);
    json_decref(own);
    return rc;
}

/* The parts of a sample of Energon that are JSON become what they say. */
static int read_parts(json_t *parts, const struct unpack *u, lf_err *err)
{
    const char *name;
    json_t *v;
    int rc = 0;
    json_object_foreach(parts, name, v)
    {
        json_t *own = NULL;
        const lf_shape_line line = {json_string_value(v), json_string_length(v),
                                    (u->flags & LF_ROW_STRICT) != 0, (u->flags & LF_ROW_NUL) != 0};
        if (rc < 0 || !json_is_string(v) || lf_energon_part_kind(name) != LF_ENERGON_JSON)
            continue;
        rc = lf_shape_json(&own, &line, u->where, u->replaced, err);
        if (rc == 0 && json_object_set_new(parts, name, own) != 0)
            rc = lf_fail(err, LF_ENOMEM, "%s: no memory for a row", u->where);
    }
    return rc;
}

/* What makes a row of the object that was packed. */
static int finish_row(json_t **row, const struct unpack *u, lf_err *err)
{
    if (!u->r->folder)
        return add_json(*row, u, err);
    int rc = read_parts(*row, u, err);
    return rc < 0 ? rc : lf_energon_row(row, u->r->folder, u->where, err);
}

static int unpack(json_t **out, struct unpack *u, lf_err *err)
{
    lf_rowpack_item it;
    if (!lf_rowpack_get(&it, u->r->raw, u->r->len, &u->at) || it.tag != LF_ROWPACK_OBJECT)
        return damaged(u, err);
    int rc = make_value(out, u, &it, err);
    if (rc == 0 && !*out)
        rc = lf_fail(err, LF_ENOMEM, "%s: no memory for a row", u->where);
    if (rc == 0 && (rc = finish_row(out, u, err)) < 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int lf_row_json(json_t **out, const lf_corpus_record *r, unsigned flags, const char *where,
                uint64_t *replaced, lf_err *err)
{
    struct unpack u = {.r = r, .flags = flags, .where = where, .replaced = replaced};
    if (r->form == LF_RECORD_PACKED)
        return unpack(out, &u, err);
    if (r->form == LF_RECORD_TEXT)
        return lf_fail(err, LF_EFORMAT, "%s: it is plain text, no row", where);
    if (r->form == LF_RECORD_BROKEN)
        return lf_fail(err, LF_EFORMAT, "%s: %.*s", where, (int)r->len, r->raw);
    const lf_shape_line line = {r->raw, r->len, (flags & LF_ROW_STRICT) != 0,
                                (flags & LF_ROW_NUL) != 0};
    return lf_shape_json(out, &line, where, replaced, err);
}

int lf_row_shape(lf_row *out, const lf_shape_opts *o, const lf_corpus_record *r, const char *where,
                 uint64_t *replaced, lf_err *err)
{
    json_t *root = NULL;
    unsigned flags = LF_ROW_NUL | (o->strict ? LF_ROW_STRICT : 0u);
    int rc = lf_row_json(&root, r, flags, where, replaced, err);
    lf_shape_opts mine = *o;
    mine.passed = r->passed;
    return rc < 0 ? rc : lf_shape_object(out, &mine, root, where, err);
}

/* ---- one text ---- */

static int no_text(json_t *root, const char *field, bool other, const char *where, lf_err *err)
{
    char list[400];
    lf_shape_column_list(list, sizeof list, root);
    return lf_fail(err, LF_EFORMAT,
                   other ? "%s: \"%.100s\" is not a string; the fields are %s; set text_field"
                         : "%s: the object has no field \"%.100s\"; its fields are %s; set "
                           "text_field",
                   where, field, list);
}

/* The text of a packed row: 1; 0: it has none of this name. */
static int find_text(struct unpack *u, const char *field, lf_buf *out, lf_err *err)
{
    const char *p = u->r->raw;
    lf_rowpack_item it;
    size_t n = u->r->len;
    if (!lf_rowpack_get(&it, p, n, &u->at) || it.tag != LF_ROWPACK_OBJECT)
        return damaged(u, err);
    while (lf_rowpack_get(&it, p, n, &u->at) && it.tag == LF_ROWPACK_MEMBER) {
        bool is = strcmp(it.text.p, field) == 0;
        if (!is && !lf_rowpack_skip(p, n, &u->at))
            return damaged(u, err);
        if (!is)
            continue;
        if (!lf_rowpack_get(&it, p, n, &u->at) || it.tag != LF_ROWPACK_TEXT)
            return 0;
        lf_bytes text;
        lf_buf fixed;
        lf_buf_init(&fixed);
        int rc = repair(u, &it, &text, &fixed, err);
        lf_buf_add(out, text.p, text.n);
        lf_buf_fini(&fixed);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

int lf_row_text(lf_buf *out, const lf_corpus_record *r, const char *field, unsigned flags,
                const char *where, uint64_t *replaced, lf_err *err)
{
    struct unpack u = {.r = r, .flags = flags, .where = where, .replaced = replaced};
    json_t *root = NULL;
    int rc = r->form == LF_RECORD_PACKED && !r->folder ? find_text(&u, field, out, err) : 0;
    if (rc == 1)
        return lf_buf_check(out, err);
    if (rc == 0)
        rc = lf_row_json(&root, r, flags, where, replaced, err);
    if (rc < 0)
        return rc;
    const json_t *v = json_object_get(root, field);
    if (json_is_string(v)) {
        lf_buf_add(out, json_string_value(v), json_string_length(v));
        rc = lf_buf_check(out, err);
    } else {
        rc = no_text(root, field, v != NULL, where, err);
    }
    json_decref(root);
    return rc;
}
