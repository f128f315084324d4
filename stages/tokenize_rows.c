/* SPDX-License-Identifier: Apache-2.0
 *
 * Records to documents in a batch, and what is done about records that are at fault.
 */
#include "config.h"

#include <string.h>

#include "engine/base/mem.h"
#include "stages/tokenize_priv.h"

#define TELL 20 /* rows left out that are named */

const char *lf_tokenize_count_name(int k)
{
    static const char *const more[] = {"truncated", "without_eos",   "double_bos",
                                       "seams",     "empty_answers", "different_prompts"};
    return k < LF_ROW_FATES ? lf_row_fate_name((enum lf_row_fate)k) : more[k - LF_ROW_FATES];
}

/* A record as a row; a row that cannot be read is its fault, unless memory failed. */
static int read_row(tok_rows *r, lf_row *row, tok_batch *b, size_t i, const char *where,
                    lf_err *err)
{
    const tok_record *rec = &b->recs[i];
    const tokenize *s = r->s;
    const lf_corpus_record from = {.raw = b->raw.data + rec->at,
                                   .len = rec->len,
                                   .form = rec->form,
                                   .passed = rec->passed,
                                   .folder = rec->folder};
    r->pics.n = 0;
    if (s->media.on && rec->form != LF_RECORD_TEXT && s->shape.shape != LF_SHAPE_TEXT)
        return lf_tokenize_pics_row(&r->pics, row, &s->shape, &from, where, &b->replaced, err);
    if (rec->form != LF_RECORD_TEXT && s->shape.shape != LF_SHAPE_TEXT)
        return lf_row_shape(row, &s->shape, &from, where, &b->replaced, err);
    int rc = lf_corpus_text(&s->corpus, &from, where, &r->text, &b->replaced, err);
    *row = (lf_row){.shape = LF_SHAPE_TEXT, .prompt = {.text = r->text.data, .len = r->text.len}};
    return rc;
}

static void tell(tokenize *s, const char *where, const char *why)
{
    unsigned n = __atomic_fetch_add(&s->told, 1, __ATOMIC_RELAXED);
    if (n < TELL)
        lf_log(1, "left out: %s%s%s%s", where ? where : "", where ? ": " : "", why,
               n + 1 == TELL ? " (no more of them are named)" : "");
}

/* What can be done about one row. Where the first row is wrong, all may be. */
static const char *way_out(const tok_record *rec, int rc)
{
    return rc == LF_EFORMAT && rec->form != LF_RECORD_TEXT && rec->line > 1
               ? "; bad_rows = skip leaves such rows out"
               : "";
}

/* Placeholders that are not those of the pictures are the row's fault. */
static void place_pictures(tok_rows *r)
{
    lf_rowdocs *d = &r->docs;
    lf_err_clear(&d->why);
    if (lf_tokenize_pics_place(&r->pics, d, &d->why) == 0)
        return;
    d->fate = LF_ROW_BROKEN;
    d->n_docs = d->ids.n = d->trained = 0;
}

int lf_tokenize_row(tok_rows *r, tok_batch *b, size_t i, const char *where, const lf_buf **text,
                    lf_err *err)
{
    tokenize *s = r->s;
    lf_rowdocs *d = &r->docs;
    lf_row row = {0};
    lf_err why = LF_ERR_INIT;
    int rc = read_row(r, &row, b, i, where, &why);
    if (rc < 0 && rc == LF_EFORMAT && s->skip_bad) {
        tell(s, NULL, why.text);
        d->fate = LF_ROW_BROKEN;
        d->n_docs = d->ids.n = 0;
        return 0;
    }
    if (rc < 0)
        return lf_fail(err, rc, "%s%s", why.text, way_out(&b->recs[i], rc));
    rc = lf_rowdocs_encode(d, &s->rows, r->state, &row, err);
    if (rc == 0 && s->media.on && d->fate == LF_ROW_KEPT)
        place_pictures(r);
    *text = row.shape == LF_SHAPE_TEXT && !row.root ? &r->text : &d->text;
    if (row.shape == LF_SHAPE_TEXT && row.root && rc == 0) {
        lf_buf_add(&d->text, row.prompt.text, row.prompt.len);
        rc = lf_buf_check(&d->text, err);
    }
    lf_row_fini(&row);
    if (rc < 0)
        return lf_err_prefix(err, "%s", where);
    bool refuse = (d->fate == LF_ROW_BROKEN && !s->skip_bad) ||
                  (d->fate == LF_ROW_NON_PREFIX && !s->drop_non_prefix);
    if (refuse)
        return lf_fail(err, LF_EFORMAT, "%s: %s%s", where, d->why.text,
                       d->fate == LF_ROW_BROKEN ? way_out(&b->recs[i], LF_EFORMAT) : "");
    if (d->fate != LF_ROW_KEPT && d->fate != LF_ROW_EMPTY)
        tell(s, where, d->why.text);
    return 0;
}

int lf_tokenize_row_put(const tok_rows *r, tok_batch *b, size_t i, const lf_buf *text, int split,
                        lf_err *err)
{
    const lf_rowdocs *d = &r->docs;
    tok_doc *to = &b->docs[i];
    *to = (tok_doc){.fate = (uint8_t)d->fate};
    if (d->fate != LF_ROW_KEPT)
        return 0;
    *to = (tok_doc){.n_ids = d->ids.n,
                    .n_first = d->len[0],
                    .text_bytes = text->len,
                    .trained = d->trained,
                    .rest_len = d->rest.len,
                    .margin = d->margin,
                    .kind = (uint8_t)d->kind,
                    .split = (uint8_t)split,
                    .masked = d->masked,
                    .has_margin = d->has_margin,
                    .label = d->label,
                    .truncated = d->truncated,
                    .no_eos = d->no_eos,
                    .double_bos = d->double_bos,
                    .seam = d->seam,
                    .empty_answer = d->empty_answer,
                    .other_prompt = d->other_prompt};
    to->n_pics = (uint32_t)r->pics.n;
    lf_buf_add(&b->pics, r->pics.v, lf_tokenize_uses(to) * sizeof(*r->pics.v));
    if (r->pics.n > 0)
        lf_buf_add(&b->pic_bytes, r->pics.bytes.data, r->pics.bytes.len);
    b->replaced += d->replaced;
    int rc = lf_ids_add_all(&b->ids, d->ids.v, d->ids.n, err);
    lf_buf_add(&b->mask, d->mask.data, d->mask.len);
    lf_buf_add(&b->rest, d->rest.data, d->rest.len);
    if (rc == 0)
        rc = lf_buf_check(&b->mask, err);
    if (rc == 0)
        rc = lf_buf_check(&b->pics, err);
    if (rc == 0)
        rc = lf_buf_check(&b->pic_bytes, err);
    return rc < 0 ? rc : lf_buf_check(&b->rest, err);
}
