/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a sample become a row.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/corpus/energon_priv.h"
#include "engine/text/corpus/rowmedia.h"

struct sample {
    const lf_energon *e;
    const json_t *parts;
    const char *where;
    lf_err *err;
};

static int no_memory(const struct sample *s)
{
    return lf_fail(s->err, LF_ENOMEM, "%s: no memory for a row", s->where);
}

/* ---- fields ---- */

/* The value at the place p of n bytes, "part[a][b]", or NULL. */
static json_t *at_place(const json_t *parts, const char *p, size_t n)
{
    char name[256];
    size_t len = strcspn(p, "[,");
    len = len < n ? len : n;
    json_t *v = NULL;
    for (const char *end = p + n; len < sizeof name;) {
        memcpy(name, p, len);
        name[len] = 0;
        char *rest;
        const long i = strtol(name, &rest, 10);
        v = p > end            ? NULL
            : json_is_array(v) ? *rest || i < 0 ? NULL : json_array_get(v, (size_t)i)
            : v == NULL ? json_object_get(parts, name)
                               : json_object_get(v, name);
        p += len;
        p += p < end && *p == ']';
        if (!v || p >= end || *p != '[')
            return v;
        len = strcspn(++p, "]");
    }
    return NULL;
}

/* The value of a field: the first of its places that has one. *place: it is a whole part. */
static json_t *field(const struct sample *s, const char *name, bool *part)
{
    const char *p = json_string_value(json_object_get(s->e->fields, name));
    json_t *v = NULL;
    while (p && *p && !v) {
        const size_t n = strcspn(p, ",");
        v = at_place(s->parts, p, n);
        *part = memchr(p, '[', n) == NULL;
        p += n + (p[n] == ',');
    }
    return v;
}

static int lacks(const struct sample *s, const char *name, const char *what)
{
    const char *place = json_string_value(json_object_get(s->e->fields, name));
    return lf_fail(s->err, LF_EFORMAT, "%s: %s of the sample (%.80s) is %s", s->where, name,
                   place ? place : "not in field_map", what);
}

/* A field that is a text. */
static int text_field(const struct sample *s, const char *name, json_t **out)
{
    bool part = false;
    *out = field(s, name, &part);
    return json_is_string(*out) ? 0 : lacks(s, name, *out ? "no text" : "not there");
}

static bool is_picture(const json_t *v)
{
    return json_is_string(json_object_get(v, "bytes")) && json_object_get(v, "path");
}

/* The picture of a sample as the list of pictures of its row; *out is NULL without one. */
static int picture_field(const struct sample *s, bool needed, json_t **out)
{
    bool part = false;
    json_t *v = field(s, "image", &part);
    *out = NULL;
    if (!v && !needed)
        return 0;
    if (!v || !part || !is_picture(v))
        return lacks(s, "image", v ? "no picture" : "not there");
    *out = json_pack("[O]", v);
    return *out ? 0 : no_memory(s);
}

/* ---- rows ---- */

/* Takes the pictures; *row becomes {messages, images}. */
static int put_row(const struct sample *s, json_t **row, json_t *messages, json_t *pictures)
{
    json_t *o = messages ? json_pack("{s:o}", "messages", messages) : NULL;
    int failed = !o;
    if (pictures)
        failed = failed ? (json_decref(pictures), 1) : json_object_set_new(o, "images", pictures);
    if (failed) {
        json_decref(o);
        return no_memory(s);
    }
    json_decref(*row);
    *row = o;
    return 0;
}

static json_t *turn(const char *role, json_t *text)
{
    return json_pack("{s:s,s:O}", "role", role, "content", text);
}

/* The question of a sample, with a mark for its picture unless there is one; owned. */
static json_t *question(const char *text, size_t n)
{
    lf_buf b;
    lf_buf_init(&b);
    if (!memmem(text, n, LF_ROWMEDIA_MARK, sizeof LF_ROWMEDIA_MARK - 1))
        lf_buf_adds(&b, LF_ROWMEDIA_MARK);
    lf_buf_add(&b, text, n);
    json_t *out = b.failed ? NULL : json_stringn_nocheck(b.data, b.len);
    lf_buf_fini(&b);
    return out;
}

static int put_pair(const struct sample *s, json_t **row, json_t *ask, json_t *answer)
{
    json_t *pictures, *q = NULL, *turns = NULL;
    int rc = picture_field(s, true, &pictures);
    if (rc < 0)
        return rc;
    q = question(ask ? json_string_value(ask) : "", json_string_length(ask));
    if (q)
        turns = json_pack("[o,o]", turn("user", q), turn("assistant", answer));
    json_decref(q);
    return put_row(s, row, turns, pictures);
}

/* The first of the answers that has the greatest weight. */
static int best_answer(const struct sample *s, json_t **out)
{
    bool part = false;
    json_t *v = field(s, "answers", &part), *weights = field(s, "answer_weights", &part);
    size_t best = 0;
    if (json_is_string(v)) {
        *out = v;
        return 0;
    }
    if (json_array_size(v) == 0)
        return lacks(s, "answers", v ? "no text and no list of texts" : "not there");
    if (weights && json_array_size(weights) != json_array_size(v))
        return lacks(s, "answer_weights", "not one number for each answer");
    for (size_t i = 0; i < json_array_size(weights); i++) {
        const json_t *w = json_array_get(weights, i);
        if (!json_is_number(w))
            return lacks(s, "answer_weights", "not one number for each answer");
        if (json_number_value(w) > json_number_value(json_array_get(weights, best)))
            best = i;
    }
    *out = json_array_get(v, best);
    return json_is_string(*out) ? 0 : lacks(s, "answers", "no list of texts");
}

static int vqa_row(const struct sample *s, json_t **row)
{
    json_t *ask, *answer = NULL;
    int rc = text_field(s, "context", &ask);
    if (rc == 0)
        rc = best_answer(s, &answer);
    return rc < 0 ? rc : put_pair(s, row, ask, answer);
}

/* Turns, with that of the system in front. */
static int put_turns(const struct sample *s, json_t **row, json_t *turns, json_t *pictures)
{
    bool part = false;
    json_t *system = field(s, "system", &part), *list = NULL;
    if (!json_is_array(turns) || (system && !json_is_string(system) && !json_is_null(system))) {
        json_decref(pictures);
        return lf_fail(s->err, LF_EFORMAT,
                       "%s: the turns of the sample are no list, or system is "
                       "no text",
                       s->where);
    }
    list = json_copy(turns);
    if (list && json_is_string(system) &&
        json_array_insert_new(list, 0, turn("system", system)) != 0) {
        json_decref(list);
        list = NULL;
    }
    return put_row(s, row, list, pictures);
}

static int mix_row(const struct sample *s, json_t **row)
{
    bool part = false;
    json_t *pictures = NULL;
    int rc = picture_field(s, false, &pictures);
    return rc < 0 ? rc : put_turns(s, row, field(s, "messages", &part), pictures);
}

/* ---- known loaders ---- */

/* Adds the part of that name to the pictures. */
static int add_picture(const struct sample *s, json_t *pictures, const json_t *name)
{
    json_t *v = json_is_string(name) ? json_object_get(s->parts, json_string_value(name)) : NULL;
    if (!is_picture(v))
        return lf_fail(s->err, LF_EFORMAT,
                       "%s: the sample has no picture \"%.80s\", which its json "
                       "names",
                       s->where, json_is_string(name) ? json_string_value(name) : "");
    return json_array_append(pictures, v) == 0 ? 0 : no_memory(s);
}

static int texts_row(const struct sample *s, json_t **row)
{
    const json_t *j = json_object_get(s->parts, "json"), *name;
    const char *media = json_string_value(json_object_get(j, "media"));
    size_t i;
    if (media && strcmp(media, "image") != 0 && strcmp(media, "text") != 0)
        return lf_fail(s->err, LF_EFORMAT, "%s: its media is %.40s; pictures alone are read",
                       s->where, media);
    json_t *pictures = json_array();
    int rc = pictures ? 0 : no_memory(s);
    json_array_foreach(json_object_get(j, "name"), i, name)
    {
        if (rc == 0)
            rc = add_picture(s, pictures, name);
    }
    if (rc == 0)
        return put_turns(s, row, json_object_get(j, "texts"), pictures);
    json_decref(pictures);
    return rc;
}

static int interleaved_parts(const struct sample *s, json_t *parts, json_t *pictures)
{
    const json_t *j = json_object_get(s->parts, "json"), *texts = json_object_get(j, "texts"),
                 *images = json_object_get(j, "images"), *text;
    size_t i;
    if (!json_is_array(texts) || json_array_size(texts) != json_array_size(images))
        return lf_fail(s->err, LF_EFORMAT, "%s: json has no lists images and texts of one length",
                       s->where);
    json_array_foreach(texts, i, text)
    {
        json_t *part = json_is_null(text)     ? json_pack("{s:s}", "type", "image")
                       : json_is_string(text) ? json_pack("{s:s,s:O}", "type", "text", "text", text)
                                              : NULL;
        int rc = json_is_null(text) ? add_picture(s, pictures, json_array_get(images, i)) : 0;
        if (!part && rc == 0 && !json_is_string(text) && !json_is_null(text))
            rc = lf_fail(s->err, LF_EFORMAT, "%s: a text of json is neither text nor null",
                         s->where);
        if (rc < 0) {
            json_decref(part);
            return rc;
        }
        if (!part || json_array_append_new(parts, part) != 0)
            return no_memory(s);
    }
    return 0;
}

static int interleaved_row(const struct sample *s, json_t **row)
{
    json_t *parts = json_array(), *pictures = json_array();
    int rc = parts && pictures ? interleaved_parts(s, parts, pictures) : no_memory(s);
    if (rc == 0)
        return put_row(s, row, json_pack("[{s:s,s:o}]", "role", "assistant", "content", parts),
                       pictures);
    json_decref(parts);
    json_decref(pictures);
    return rc;
}

int lf_energon_row(json_t **row, const lf_energon *e, const char *where, lf_err *err)
{
    const struct sample s = {e, *row, where, err};
    json_t *text;
    int rc;
    if (e->loader == LF_ENERGON_TEXTS)
        return texts_row(&s, row);
    if (e->loader == LF_ENERGON_INTERLEAVED)
        return interleaved_row(&s, row);
    switch (e->is) {
    case LF_ENERGON_PLAIN_TEXT:
        if ((rc = text_field(&s, "text", &text)) < 0)
            return rc;
        text = json_pack("{s:O}", "text", text);
        json_decref(*row);
        *row = text;
        return text ? 0 : no_memory(&s);
    case LF_ENERGON_CAPTION:
    case LF_ENERGON_OCR:
        rc = text_field(&s, e->is == LF_ENERGON_OCR ? "text" : "caption", &text);
        return rc < 0 ? rc : put_pair(&s, row, NULL, text);
    case LF_ENERGON_VQA:
        return vqa_row(&s, row);
    case LF_ENERGON_MIX:
        return mix_row(&s, row);
    default:
        return 0;
    }
}
