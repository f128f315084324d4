/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows in, result lines out: see rm_rows.h. */
#include "engine/post/rm_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/post/label_loss.h"
#include "engine/post/rm_rows_priv.h"

lf_rm_rows *lf_rm_rows_create(const struct lf_rm_rows_opts *o, lf_err *err)
{
    lf_rm_rows *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->o = *o;
    r->o.shape.ignore_unmapped = true;
    r->o.docs.shape = &r->o.shape;
    r->o.docs.max_length = (size_t)o->max_context;
    r->o.docs.truncate = LF_TRUNCATE_DROP;
    r->arena = lf_arena_create(err);
    r->tok = lf_tok_state_create(o->docs.tok, err);
    if (!r->arena || !r->tok) {
        lf_rm_rows_destroy(r);
        return NULL;
    }
    lf_rowdocs_init(&r->docs);
    return r;
}

void lf_rm_rows_destroy(lf_rm_rows *r)
{
    if (!r)
        return;
    if (r->tok)
        lf_rowdocs_fini(&r->docs);
    lf_tok_state_destroy(r->tok);
    lf_arena_destroy(r->arena);
    free(r->rows);
    free(r);
}

size_t lf_rm_rows_n(const lf_rm_rows *r)
{
    return r->n;
}

/* ---- rows ---- */

static char *id_of(lf_rm_rows *r, json_t *row, size_t line, lf_err *err)
{
    json_t *id = json_object_get(row, "id");
    if (json_is_string(id) && json_string_length(id) <= LF_RM_MAX_ID)
        return lf_arena_strdup(r->arena, json_string_value(id), err);
    if (json_is_integer(id))
        return lf_arena_printf(r->arena, err, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    return lf_arena_printf(r->arena, err, "line-%zu", line);
}

/* In a column that lf_rowmedia_take would take. */
static bool names_pictures(const lf_rm_rows *r, const json_t *row)
{
    static const char *const columns[] = {"image", "images"};
    bool any = false;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const json_t *v = json_object_get(row, lf_shape_column(&r->o.shape, columns[i]));
        any = any || (v && !json_is_null(v) && !(json_is_array(v) && json_array_size(v) == 0));
    }
    return any;
}

/* What is right of a text, as in training (label_data.h): a number, true or false; NaN: neither. */
static double right_of(const json_t *label)
{
    return json_is_boolean(label)  ? (double)json_is_true(label)
           : json_is_number(label) ? json_number_value(label)
                                   : (double)NAN;
}

static int add_row(lf_rm_rows *r, const lf_rowfile *f, lf_err *err)
{
    const lf_corpus_record *from = &f->record;
    json_t *o = NULL;
    int rc = lf_grow(&r->rows, &r->cap, r->n, sizeof *r->rows, err);
    if (rc != 0)
        return rc;
    lf_row_json(&o, from, LF_ROW_STRICT, f->where, NULL, NULL); /* a broken row is told of later */
    const char *subset = json_string_value(json_object_get(o, "subset"));
    struct lf_rm_row *row = &r->rows[r->n];
    *row = (struct lf_rm_row){.len = from->len,
                              .form = from->form,
                              .text = lf_arena_alloc(r->arena, from->len + 1, 1, err),
                              .where = lf_arena_strdup(r->arena, f->where, err),
                              .id = id_of(r, o, (size_t)from->line, err),
                              .subset = subset ? lf_arena_strdup(r->arena, subset, err) : NULL,
                              .label = right_of(json_object_get(o, "label")),
                              .pictures = names_pictures(r, o)};
    bool missing = subset && !row->subset;
    json_decref(o);
    if (!row->text || !row->where || !row->id || missing)
        return LF_ENOMEM;
    memcpy(row->text, from->raw, from->len);
    r->n++;
    return 0;
}

int lf_rm_rows_add_file(lf_rm_rows *r, const char *path, lf_err *err)
{
    lf_rowfile f = {0};
    int rc = lf_rowfile_open_glue(&f, path, r->o.glue, err), more = 1;
    while (rc == 0 && (more = lf_rowfile_next(&f, err)) == 1)
        rc = add_row(r, &f, err);
    lf_rowfile_close(&f);
    return more < 0 ? more : rc;
}

/* ---- scoring ---- */

/* Texts of a block: ids of all, one after the other. */
struct block {
    int32_t *ids;
    size_t n_ids, cap_ids;
    char *said; /* [n_ids]: lf_rm_text */
    size_t cap_said;
    lf_rm_text *texts; /* tokens: NULL until all ids are there */
    size_t n_texts, cap_texts;
    float *score;
    /* pictures of text t: pics[from[t] .. from[t + 1]), whose bytes begin at `id` of bytes */
    lf_shard_picture *pics;
    size_t n_pics, cap_pics, *from, cap_from;
    lf_buf bytes;
    const struct lf_rm_rows_media *media;
};

static void block_fini(struct block *b)
{
    free(b->ids);
    free(b->said);
    free(b->texts);
    free(b->score);
    free(b->pics);
    free(b->from);
    lf_buf_fini(&b->bytes);
}

static int add_text(struct block *b, const uint32_t *ids, const char *said, size_t n, lf_err *err)
{
    int rc = lf_grow(&b->texts, &b->cap_texts, b->n_texts, sizeof *b->texts, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = lf_grow(&b->ids, &b->cap_ids, b->n_ids, sizeof *b->ids, err);
        if (rc == 0)
            rc = lf_grow(&b->said, &b->cap_said, b->n_ids, sizeof *b->said, err);
        if (rc != 0)
            break;
        b->said[b->n_ids] = said[i];
        b->ids[b->n_ids++] = (int32_t)ids[i];
    }
    if (rc == 0)
        b->texts[b->n_texts++] = (lf_rm_text){.n = n};
    return rc;
}

/* ---- pictures ---- */

static uint64_t count(void *arg, uint64_t doc)
{
    const struct block *b = arg;
    return b->from[doc + 1] - b->from[doc];
}

static void get(void *arg, uint64_t doc, uint64_t i, lf_shard_picture *out)
{
    const struct block *b = arg;
    *out = b->pics[b->from[doc] + i];
}

static int read_one(void *arg, uint64_t doc, uint64_t i, lf_pixels *out, lf_err *err)
{
    const struct block *b = arg;
    lf_shard_picture p;
    lf_image im = {0};
    get(arg, doc, i, &p);
    int rc = lf_image_decode(&im, b->bytes.data + p.id, p.n, NULL, err);
    if (rc == 0)
        rc = lf_processor_run(out, b->media->processor, &im, count(arg, doc) == 1, err);
    lf_image_fini(&im);
    return rc;
}

static lf_pictures pictures_of(struct block *b)
{
    return (lf_pictures){.arg = b,
                         .processor = b->media->processor,
                         .expand = b->media->expand,
                         .image_token = b->media->image_token,
                         .count = count,
                         .get = get,
                         .read = read_one};
}

/* Those of document k of the row, which is the last text of the block. */
static int add_pictures(struct block *b, size_t k, lf_err *err)
{
    const lf_shard_picture *v = NULL;
    const char *bytes = NULL;
    const size_t n = b->media ? b->media->pictures(b->media->arg, &v, &bytes) : 0;
    uint64_t at = b->bytes.len;
    lf_rm_text *t = &b->texts[b->n_texts - 1];
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if ((rc = lf_grow(&b->pics, &b->cap_pics, b->n_pics, sizeof *b->pics, err)) != 0)
            break;
        b->pics[b->n_pics] = v[k * n + i];
        b->pics[b->n_pics++].id = at;
        at += v[k * n + i].n;
    }
    if (n)
        lf_buf_add(&b->bytes, bytes, at - b->bytes.len);
    t->sees = n > 0;
    t->doc = b->n_texts - 1;
    if (rc == 0)
        rc = lf_grow(&b->from, &b->cap_from, b->n_texts, sizeof *b->from, err);
    if (rc == 0)
        b->from[b->n_texts] = b->n_pics;
    if (rc == 0 && b->n_texts == 1)
        b->from[0] = 0;
    return rc != 0 ? rc : lf_buf_check(&b->bytes, err);
}

/* Why the pictures of the row cannot be scored, or NULL. */
static const char *too_many(const lf_rm_rows *r)
{
    const lf_shard_picture *v = NULL;
    const char *bytes = NULL;
    const size_t n = r->o.media ? r->o.media->pictures(r->o.media->arg, &v, &bytes) : 0;
    int64_t patches = 0, tiles = 0;
    for (size_t i = 0; i < n; i++) {
        patches += (int64_t)v[i].tiles * v[i].grid_h * v[i].grid_w;
        tiles += v[i].tiles;
    }
    if (n && !r->o.patches)
        return "give max_patches, and a model that sees";
    return patches > r->o.patches || tiles > r->o.tiles ? "raise max_patches or max_tiles" : NULL;
}

#define NO_PROMPT "nothing stands before the answer"

/* Why a document has no log-probability of an answer, or NULL. */
static const char *no_answer(const lf_rm_rows *r, const char *said, size_t n)
{
    const char *first = memchr(said, 1, n);
    if (!first)
        return "no answer";
    if (first == said)
        return NO_PROMPT;
    return r->o.one_answer && memchr(first, 0, n - (size_t)(first - said))
               ? "it goes on behind an answer, and an encoder-decoder says one"
               : NULL;
}

static int refuse(lf_rm_rows *r, struct lf_rm_row *row, const char *what, const char *why,
                  lf_err *err)
{
    row->error = lf_arena_printf(r->arena, err, "%s%s%.900s", what, *why ? ": " : "", why);
    return row->error ? 0 : LF_ENOMEM;
}

/* Texts of one row; a row at fault gets an error instead. */
static int encode(lf_rm_rows *r, struct lf_rm_row *row, struct block *b, lf_err *err)
{
    lf_row shaped = {0};
    lf_err why = LF_ERR_INIT;
    uint64_t replaced = 0;
    const lf_corpus_record from = {.raw = row->text, .len = row->len, .form = row->form};
    const struct lf_rm_rows_media *m = r->o.media;
    const char *why_not;
    if (!m && r->o.sees && row->pictures) {
        row->texts = 0;
        return refuse(r, row, "pictures", "give processor and max_patches", err);
    }
    int rc = m ? m->row(m->arg, &shaped, &r->o.shape, &from, row->where, &why)
               : lf_row_shape(&shaped, &r->o.shape, &from, row->where, &replaced, &why);
    row->texts = 0;
    row->error = NULL;
    if (rc != 0)
        return rc == LF_EFORMAT ? refuse(r, row, "broken", why.text, err)
                                : lf_fail(err, rc, "%s", why.text);
    lf_rowdocs *d = &r->docs;
    rc = lf_rowdocs_encode(d, &r->o.docs, r->tok, &shaped, err);
    lf_row_fini(&shaped);
    if (rc != 0)
        return lf_err_prefix(err, "%s", row->where);
    if (d->fate != LF_ROW_KEPT)
        return refuse(r, row, lf_row_fate_name(d->fate), d->why.rc ? d->why.text : "", err);
    if (m && m->place(m->arg, d, &why) < 0)
        return refuse(r, row, "broken", why.text, err);
    if (too_many(r))
        return refuse(r, row, "pictures", too_many(r), err);
    const bool logprob = r->o.gives == LF_RM_GIVES_LOGPROB, one = r->o.gives == LF_RM_GIVES_SCORE;
    if (d->kind == LF_ROW_PROMPT && (one || logprob))
        return refuse(r, row, "broken", "a prompt without an answer", err);
    if (d->n_docs > 1 && !one && !logprob)
        return refuse(r, row, "broken", "two answers, where one text is asked for", err);
    for (size_t i = 0, at = 0; logprob && i < d->n_docs; at += d->len[i++])
        if ((why_not = d->bare_answer ? NO_PROMPT : no_answer(r, d->mask.data + at, d->len[i])))
            return refuse(r, row, "broken", why_not, err);
    for (size_t i = 0, at = 0; i < d->n_docs && rc == 0; at += d->len[i++])
        if ((rc = add_text(b, d->ids.v + at, d->mask.data + at, d->len[i], err)) == 0)
            rc = add_pictures(b, i, err);
    row->texts = d->n_docs;
    return rc;
}

/* ---- lines ---- */

static void add_ids(lf_buf *out, const lf_rm_text *t)
{
    lf_buf_addc(out, '[');
    for (size_t i = 0; i < t->n; i++)
        lf_buf_addf(out, "%s%d", i ? "," : "", (int)t->tokens[i]);
    lf_buf_addc(out, ']');
}

/* 9 digits bring an f32 back exactly, 17 an f64. */
static void add_score(const lf_rm_rows *r, lf_buf *out, const char *key, const lf_rm_norm *norm,
                      float x)
{
    lf_buf_addf(out, ",\"%s\":%.*g", key, r->o.normalized ? 17 : 9,
                r->o.normalized ? lf_rm_normalized(norm, (double)x) : (double)x);
}

/* What a model that gives no score told of a text. */
static void add_told(const lf_rm_rows *r, const json_t *names, int64_t width, const float *x,
                     lf_buf *out)
{
    static const char *const told[] = {[LF_RM_GIVES_LABELS] = "labels",
                                       [LF_RM_GIVES_SPAN] = "span",
                                       [LF_RM_GIVES_VECTOR] = "embedding"};
    lf_buf_addf(out, ",\"%s\":", told[r->o.gives]);
    for (int64_t i = 0; i < width; i++)
        lf_buf_addf(out, "%c%.9g", i ? ',' : '[', (double)x[i]);
    lf_buf_addc(out, ']');
    if (r->o.gives != LF_RM_GIVES_LABELS || width < 2)
        return;
    const int64_t best = lf_label_best(x, width);
    const json_t *name = names ? json_array_get(names, (size_t)best) : NULL;
    lf_buf_addf(out, ",\"class\":%lld", (long long)best);
    if (name) {
        lf_buf_adds(out, ",\"name\":");
        lf_buf_add_json(out, json_string_value(name), json_string_length(name));
    }
}

static size_t count_said(const lf_rm_text *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->said[i] != 0;
    return n;
}

static void add_line(const lf_rm_rows *r, const struct lf_rm_row *row, const lf_rm *rm,
                     const lf_rm_text *t, const float *x, int64_t width, lf_buf *out)
{
    const lf_rm_norm *norm = lf_rm_norm_of(rm);
    lf_buf_adds(out, "{\"id\":");
    lf_buf_add_json(out, row->id, strlen(row->id));
    if (row->subset) {
        lf_buf_adds(out, ",\"subset\":");
        lf_buf_add_json(out, row->subset, strlen(row->subset));
    }
    if (row->error) {
        lf_buf_adds(out, ",\"error\":");
        lf_buf_add_json(out, row->error, strlen(row->error));
    } else if (row->texts == 2) {
        add_score(r, out, "chosen", norm, x[0]);
        add_score(r, out, "rejected", norm, x[1]);
        lf_buf_addf(out, ",\"correct\":%s,\"tokens\":[%zu,%zu]", x[0] > x[1] ? "true" : "false",
                    t[0].n, t[1].n);
    } else {
        if (r->o.gives == LF_RM_GIVES_SCORE)
            add_score(r, out, "score", norm, x[0]);
        else if (r->o.gives == LF_RM_GIVES_LOGPROB)
            lf_buf_addf(out, ",\"logprob\":%.9g,\"answer\":%zu", (double)x[0], count_said(t));
        else
            add_told(r, lf_rm_label_names(rm), width, x, out);
        lf_buf_addf(out, ",\"tokens\":%zu", t[0].n);
    }
    if (r->o.ids && row->texts) {
        lf_buf_adds(out, row->texts == 2 ? ",\"token_ids\":[" : ",\"token_ids\":");
        add_ids(out, &t[0]);
        if (row->texts == 2) {
            lf_buf_addc(out, ',');
            add_ids(out, &t[1]);
            lf_buf_addc(out, ']');
        }
    }
    lf_buf_adds(out, "}\n");
}

int lf_rm_rows_score(lf_rm_rows *r, lf_rm *rm, size_t first, size_t n, lf_buf *out,
                     bool (*stop)(void), lf_err *err)
{
    struct block b = {.media = r->o.media};
    const lf_rm_norm *norm = lf_rm_norm_of(rm);
    const int64_t width = lf_rm_width(rm);
    lf_pictures from;
    lf_buf_init(&b.bytes);
    int rc = r->o.normalized && !norm->stored
                 ? lf_fail(err, LF_EINVAL,
                           "normalized = yes, but the model has no normalisation; lf-rm stores one "
                           "unless normalize = no")
                 : 0;
    for (size_t i = first; i < first + n && rc == 0; i++)
        rc = encode(r, &r->rows[i], &b, err);
    for (size_t t = 0, at = 0; t < b.n_texts && rc == 0; at += b.texts[t++].n) {
        b.texts[t].tokens = b.ids + at;
        b.texts[t].said = b.said + at;
    }
    if (rc == 0 && !(b.score = lf_calloc((b.n_texts + 1) * (size_t)width, sizeof *b.score, err)))
        rc = LF_ENOMEM;
    if (rc == 0 && b.n_pics) {
        from = pictures_of(&b);
        rc = lf_rm_see(rm, &from, err);
    }
    if (rc == 0)
        rc = lf_rm_score(rm, b.texts, b.n_texts, b.score, stop, err);
    if (b.n_pics) /* the block ends here */
        (void)lf_rm_see(rm, NULL, NULL);
    for (size_t i = first, t = 0; i < first + n && rc == 0; t += r->rows[i++].texts)
        add_line(r, &r->rows[i], rm, b.texts + t, b.score + t * (size_t)width, width, out);
    block_fini(&b);
    return rc != 0 ? rc : lf_buf_check(out, err);
}

int lf_rm_rows_check_line(const lf_rm_rows *r, size_t index, const char *line, size_t len,
                          lf_err *err)
{
    const char *id = NULL;
    if (index >= r->n)
        return lf_fail(err, LF_EFORMAT, "there are %zu rows only", r->n);
    json_t *o = lf_json_load_text(line, len, "line", err);
    int rc = o ? lf_json_get_str(&id, o, "id", true, "line", err) : LF_EFORMAT;
    if (rc == 0 && strcmp(id, r->rows[index].id) != 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "it is of row '%.80s', not of '%.80s': other rows were scored here", id,
                     r->rows[index].id);
    json_decref(o);
    return rc;
}
