/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of rows: the files that say what a model makes of them, reading and decoding them, and
 * where their placeholders stand.
 */
#include "config.h"

#include "stages/tokenize_media.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#define MAX_PICTURE ((size_t)256 << 20)

/* ---- options ---- */

int lf_tokenize_media_setup(tok_media *m, const struct tok_media_opts *o, lf_err *err)
{
    lf_buf_init(&m->image_processor);
    lf_buf_init(&m->settings);
    if (!o->processor)
        return 0;
    m->dir = o->dir;
    m->header_only = o->header_only;
    const lf_expand_place at = {o->processor, o->tokenizer, o->placeholders};
    if (!o->tokenizer)
        return lf_fail(err, LF_EINVAL, "processor needs a tokenizer, that of the model");
    const int rc = lf_expand_load(&m->processor, &m->expand,
                                  &(lf_expand_texts){&m->image_processor, &m->settings}, &at, err);
    m->on = rc == 0;
    return rc;
}

void lf_tokenize_media_fini(tok_media *m)
{
    if (m->settings.data) {
        lf_buf_fini(&m->image_processor);
        lf_buf_fini(&m->settings);
    }
}

/* The names of tiles, as far as the tokenizer has tokens for them. */
static void add_tile_names(tok_media *m, const lf_tokenizer *t)
{
    for (int k = 0; k < LF_TOK_TILE_NAMES && m->expand.kind == LF_EXPAND_IDEFICS3; k++) {
        char text[32];
        snprintf(text, sizeof text, "<row_%d_col_%d>", k / 6 + 1, k % 6 + 1);
        const int64_t id = lf_tokenizer_find(t, text);
        if (id >= 0)
            m->untrained[m->n_untrained++] = (uint32_t)id;
    }
}

int lf_tokenize_media_tokens(tok_media *m, const lf_tokenizer *t, lf_rowdocs_opts *o, lf_err *err)
{
    const char *texts[] = {m->expand.image_token, m->expand.begin, m->expand.end};
    if (!m->on)
        return 0;
    m->n_untrained = 0;
    m->image_token = 0;
    if (lf_expand_beside(&m->expand)) /* no token stands for them */
        return 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int64_t id = texts[i][0] ? lf_tokenizer_find(t, texts[i]) : -1;
        if (texts[i][0] && id < 0)
            return lf_fail(err, LF_EINVAL,
                           "the tokenizer has no token %s, which stands for pictures; name "
                           "another with placeholders",
                           texts[i]);
        if (i == 0)
            m->image_token = id;
        if (id >= 0)
            m->untrained[m->n_untrained++] = (uint32_t)id;
    }
    add_tile_names(m, t);
    o->untrained = m->untrained;
    o->n_untrained = m->n_untrained;
    return 0;
}

/* ---- the pictures of a row ---- */

void lf_tokenize_pics_init(tok_pics *p, const tok_media *m)
{
    *p = (tok_pics){.m = m};
    lf_buf_init(&p->bytes);
}

void lf_tokenize_pics_fini(tok_pics *p)
{
    lf_rowmedia_fini(&p->from);
    lf_buf_fini(&p->bytes);
    free(p->v);
    free(p->e);
}

static enum lf_shard_picture_kind kind_of(const char *format)
{
    return strcmp(format, "JPEG") == 0  ? LF_PICTURE_JPEG
           : strcmp(format, "PNG") == 0 ? LF_PICTURE_PNG
                                        : LF_PICTURE_WEBP;
}

/* The n bytes at `bytes` as picture i; its place in the document is not known yet. */
static int take_picture(tok_pics *p, size_t i, const char *bytes, size_t n, bool alone, lf_err *err)
{
    const tok_media *m = p->m;
    lf_image im = {0};
    lf_pixels x;
    int rc = m->header_only ? lf_image_probe(&im, bytes, n, NULL, err)
                            : lf_image_decode(&im, bytes, n, NULL, err);
    const lf_size size = {im.w, im.h};
    if (rc < 0)
        return rc;
    p->v[i] = (lf_shard_picture){
        .n = n, .kind = kind_of(im.format), .w = (uint32_t)im.w, .h = (uint32_t)im.h};
    lf_image_fini(&im);
    rc = lf_processor_plan(&x, &m->processor, size, alone, err);
    if (rc == 0)
        rc = lf_hash_buf(p->v[i].sha256, bytes, n, err);
    if (rc < 0)
        return rc;
    p->v[i].tiles = x.tiles;
    p->v[i].grid_h = x.grid_h;
    p->v[i].grid_w = x.grid_w;
    p->e[i] = lf_expand_measure(&m->expand, &m->processor, &x, alone);
    if ((p->e[i].count < 1 && !lf_expand_beside(&m->expand)) || p->e[i].count > INT32_MAX)
        return lf_fail(err, LF_EFORMAT, "it would have %lld placeholders",
                       (long long)p->e[i].count);
    p->v[i].count = (uint32_t)p->e[i].count;
    return 0;
}

/* A pair has two documents, which use the pictures at places of their own. */
static int room_for(tok_pics *p, size_t n, lf_err *err)
{
    if (n <= p->cap)
        return 0;
    int rc = lf_realloc(&p->v, 2 * n, sizeof *p->v, err);
    if (rc == 0)
        rc = lf_realloc(&p->e, n, sizeof *p->e, err);
    if (rc == 0)
        p->cap = n;
    return rc;
}

/* Whatever a picture fails with is its row's fault, but for memory. */
static int read_pictures(tok_pics *p, const char *where, lf_err *err)
{
    const size_t n = json_array_size(p->from.list);
    lf_err why = LF_ERR_INIT;
    int rc = room_for(p, n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const size_t at = p->bytes.len;
        rc = lf_rowmedia_read(&p->from, i, p->m->dir, MAX_PICTURE, &p->bytes, &why);
        if (rc == 0)
            rc = take_picture(p, i, p->bytes.data + at, p->bytes.len - at, n == 1, &why);
        if (rc < 0)
            return lf_fail(err, rc == LF_ENOMEM ? rc : LF_EFORMAT, "%s: picture %zu: %s", where,
                           i + 1, why.text);
    }
    p->n = n;
    return 0;
}

static int rewrite(const void *arg, lf_buf *text, size_t *place, size_t n_place, bool part,
                   lf_err *err)
{
    const tok_pics *p = arg;
    const struct lf_expand_places places = {place, n_place, part};
    return lf_expand_text(&p->m->expand, p->e, p->n, text, &places, err);
}

static int check_kind(const lf_row *row, const char *where, lf_err *err)
{
    if (row->shape == LF_SHAPE_TOKENS)
        return lf_fail(err, LF_EFORMAT, "%s: pictures in a row of shape %s are not kept", where,
                       lf_shape_name(row->shape));
    return 0;
}

int lf_tokenize_pics_row(tok_pics *p, lf_row *row, const lf_shape_opts *o,
                         const lf_corpus_record *r, const char *where, uint64_t *replaced,
                         lf_err *err)
{
    const unsigned flags = LF_ROW_NUL | (o->strict ? LF_ROW_STRICT : 0u);
    json_t *root = NULL;
    lf_shape_opts mine = *o;
    mine.passed = r->passed;
    lf_rowmedia_fini(&p->from);
    lf_buf_clear(&p->bytes);
    p->n = 0;
    p->fault = PICS_FINE;
    int rc = lf_row_json(&root, r, flags, where, replaced, err);
    if (rc == 0 && (rc = lf_rowmedia_take(&p->from, root, o, where, err)) < 0)
        json_decref(root);
    if (rc == 0)
        rc = lf_shape_object(row, &mine, root, where, err);
    if (rc < 0)
        return rc;
    rc = lf_rowmedia_turns(&p->from, row, where, err);
    p->fault = rc < 0 ? PICS_MISMATCH : PICS_FINE;
    if (rc == 0 && json_array_size(p->from.list) > 0)
        rc = check_kind(row, where, err);
    if (rc == 0 && (rc = read_pictures(p, where, err)) < 0)
        p->fault = PICS_BROKEN;
    if (rc < 0) {
        lf_row_fini(row);
        return rc;
    }
    p->rewrite = (lf_rewrite){rewrite, p, p->m->expand.kind == LF_EXPAND_PALIGEMMA,
                              lf_expand_beside(&p->m->expand)};
    row->rewrite = p->n > 0 ? &p->rewrite : NULL;
    return 0;
}

/* ---- places ---- */

static int misplaced(const tok_pics *p, const uint32_t *ids, size_t n, lf_err *err)
{
    size_t found = 0;
    uint64_t want = 0;
    for (size_t i = 0; i < n; i++)
        found += ids[i] == (uint32_t)p->m->image_token;
    for (size_t i = 0; i < p->n; i++)
        want += p->v[i].count;
    return lf_fail(err, LF_EFORMAT,
                   "the text has %zu times the token %s, and its %zu picture%s %llu; a picture is "
                   "told by its mark alone",
                   found, p->m->expand.image_token, p->n, p->n == 1 ? " needs" : "s need",
                   (unsigned long long)want);
}

/* The uses of the pictures by a document of n tokens. */
static int place(const tok_pics *p, lf_shard_picture *v, const uint32_t *ids, size_t n, lf_err *err)
{
    const uint32_t token = (uint32_t)p->m->image_token;
    const lf_expand *e = &p->m->expand;
    const bool gaps = e->kind == LF_EXPAND_GEMMA3 /* crops stand apart */ || lf_expand_apart(e);
    size_t at = 0;
    if (lf_expand_beside(e)) {
        for (size_t i = 0; i < p->n; i++)
            v[i].first = 0;
        return 0;
    }
    for (size_t i = 0; i < p->n; i++) {
        while (at < n && ids[at] != token)
            at++;
        v[i].first = (uint32_t)at;
        for (uint32_t k = 0; k < v[i].count; k++, at++) {
            while (gaps && at < n && ids[at] != token)
                at++;
            if (at >= n || ids[at] != token)
                return misplaced(p, ids, n, err);
        }
    }
    for (; at < n; at++)
        if (ids[at] == token)
            return misplaced(p, ids, n, err);
    return 0;
}

int lf_tokenize_pics_place(tok_pics *p, const lf_rowdocs *d, lf_err *err)
{
    const uint32_t *ids = d->ids.v;
    int rc = 0;
    for (size_t k = 1; k < d->n_docs && p->n; k++)
        memcpy(p->v + k * p->n, p->v, p->n * sizeof *p->v);
    for (size_t k = 0; k < d->n_docs && rc == 0; k++) {
        rc = place(p, p->v + k * p->n, ids, d->len[k], err);
        ids += d->len[k];
    }
    return rc;
}
