/* SPDX-License-Identifier: Apache-2.0
 *
 * The doctor's round: every row is read once, in order, by one thread.
 */
#include "engine/text/corpus/datadoc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/base/utf8.h"
#include "engine/text/corpus/datadoc_priv.h"
#include "engine/text/corpus/datadoc_turns.h"
#include "engine/text/corpus/rowjson.h"

#define KEEP        5 /* places told of each finding */
#define LONGEST     10
#define RANDOM      3
#define FIRST       3
#define SAMPLE      400 /* bytes of a sample's text */
#define MAX_PLACES  ((size_t)1 << 22)
#define SITE_SAMPLE 0xd0c70001

/* Rows from `row` on are of this file and member. */
struct segment {
    uint64_t row;
    size_t source;
    char *member; /* owned; NULL */
};

struct sample {
    uint64_t row, length;
    lf_buf text;
    json_t *more;    /* of the reader; NULL */
    json_t *trained; /* of lf_docenc_show; NULL: nothing is known of the text */
    bool there;
};

struct doctor {
    const lf_datadoc_opts *o;
    const lf_corpus *corpus;
    lf_tok_state *tok;
    lf_ids ids;
    lf_buf text, scratch, shown;
    json_t *trained;       /* of shown */
    struct lf_docenc *enc; /* NULL: not asked for */
    struct lf_docturns *turns;
    uint64_t n_cut, behind, tokens; /* rows longer than seq_length, their tokens behind it, all */
    struct lf_dups *dups;
    struct lf_near *near;
    struct lf_hist hist;
    uint64_t replaced; /* U+FFFD put into the row */
    uint64_t rows, bytes, shapes[LF_SHAPES], n_broken, n_dup, n_near, odd[N_ODD];
    json_t *broken, *unreadable, *dup, *nears, *odd_first[N_ODD];
    struct sample longest[LONGEST], random[RANDOM], first[FIRST];
    /* where rows are: a line number each, until MAX_PLACES */
    struct segment *seg;
    size_t n_seg, cap_seg, cap_line;
    uint64_t *line;
    bool lf, crlf, ends_told; /* of the file being read */
    uint64_t passed_of;       /* sources up to here: their columns that are not read were told */
};

/* ---- places ---- */

static int note_place(struct doctor *d, const lf_corpus_record *r, lf_err *err)
{
    const struct segment *last = d->n_seg ? &d->seg[d->n_seg - 1] : NULL;
    if (d->rows >= MAX_PLACES)
        return 0;
    bool same = last && last->source == r->source &&
                (last->member != NULL) == (r->member != NULL) &&
                (!r->member || strcmp(last->member, r->member) == 0);
    int rc = lf_grow(&d->line, &d->cap_line, (size_t)d->rows, sizeof *d->line, err);
    if (rc == 0 && !same)
        rc = lf_grow(&d->seg, &d->cap_seg, d->n_seg, sizeof *d->seg, err);
    if (rc < 0)
        return rc;
    d->line[d->rows] = r->line;
    if (same)
        return 0;
    d->seg[d->n_seg] = (struct segment){.row = d->rows, .source = r->source};
    if (r->member && !(d->seg[d->n_seg].member = lf_strdup(r->member, err)))
        return LF_ENOMEM;
    d->n_seg++;
    if (!last || last->source != r->source)
        d->lf = d->crlf = d->ends_told = false;
    return 0;
}

/* "file.jsonl:12", or "row 5000001". */
static void place_of(const struct doctor *d, uint64_t row, char *buf, size_t cap)
{
    size_t lo = 0, hi = d->n_seg, n;
    if (row >= MAX_PLACES) {
        snprintf(buf, cap, "row %llu", (unsigned long long)row + 1);
        return;
    }
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->seg[mid].row <= row)
            lo = mid;
        else
            hi = mid;
    }
    const struct segment *s = &d->seg[lo];
    snprintf(buf, cap, "%s%s%s:%llu", lf_corpus_sources(d->corpus, &n)[s->source].path,
             s->member ? ": " : "", s->member ? s->member : "", (unsigned long long)d->line[row]);
}

/* Paths and messages may hold what JSON cannot: everything goes through the visible form. */
static json_t *text_json(const char *s, size_t n)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_add_visible(&b, s, n);
    json_t *j = json_stringn(b.data, b.len);
    lf_buf_fini(&b);
    return j;
}

static json_t *place_json(const struct doctor *d, uint64_t row)
{
    char at[1024];
    place_of(d, row, at, sizeof at);
    return text_json(at, strlen(at));
}

static json_t *place_for_turns(const void *arg, uint64_t row)
{
    return place_json(arg, row);
}

/* ---- one row ---- */

static void add_piece(lf_buf *b, const lf_piece *p)
{
    if (p->text) {
        lf_buf_add(b, p->text, p->len);
        lf_buf_addc(b, '\n');
    }
    for (size_t i = 0; i < p->n_turns; i++) {
        lf_docturns_say(b, &p->turns[i]);
        if (p->turns[i].text)
            lf_buf_addc(b, '\n');
    }
}

static int show_row(struct doctor *d, lf_err *err)
{
    json_decref(d->trained);
    d->trained = json_array();
    return d->trained ? lf_docenc_show(d->enc, d->o->tokenizer, &d->shown, d->trained, err)
                      : lf_fail(err, LF_ENOMEM, "out of memory");
}

/* What tokenizing makes of the row; *failed: rc is no finding. */
static int encode_row(struct doctor *d, const lf_row *row, bool *failed, lf_err *err)
{
    lf_buf_clear(&d->shown);
    if (!d->enc)
        return 0;
    *failed = true;
    int rc = lf_docenc_row(d->enc, d->o->rows, d->tok, row, err);
    if (rc == 0 && lf_docenc_notable(d->enc))
        lf_docenc_tell(d->enc, place_json(d, d->rows));
    if (rc == 0 && lf_docenc_length(d->enc))
        rc = show_row(d, err);
    *failed = rc < 0;
    return rc;
}

/* The row's texts, and its token ids where it has them. */
/* Columns of a parquet file that mean nothing are not read, so they are told of the file, once.
 * Rows of prompts keep the others for their reward. */
static void tell_passed(struct doctor *d, const lf_corpus_record *r, const lf_row *row)
{
    size_t n;
    int64_t rows;
    if (r->form != LF_RECORD_PACKED || r->source < d->passed_of)
        return;
    d->passed_of = r->source + 1;
    const char *const *names = lf_corpus_passed(d->corpus, &n, &rows);
    for (size_t i = 0; i < n && row->shape != LF_SHAPE_PROMPT; i++)
        lf_docturns_passed(d->turns, names[i], rows);
}

static int row_text(struct doctor *d, const lf_corpus_record *r, enum lf_shape *shape, bool *failed,
                    lf_err *err)
{
    lf_row row = {0};
    d->replaced = 0;
    *shape = LF_SHAPE_TEXT;
    d->ids.n = 0;
    lf_buf_clear(&d->text);
    if (r->form == LF_RECORD_TEXT || d->o->shape->shape == LF_SHAPE_TEXT) {
        int plain = lf_corpus_text(d->o->corpus, r, "", &d->text, &d->replaced, err);
        row =
            (lf_row){.shape = LF_SHAPE_TEXT, .prompt = {.text = d->text.data, .len = d->text.len}};
        return plain < 0 ? plain : encode_row(d, &row, failed, err);
    }
    const lf_datadoc_reader *own = d->o->reader;
    int rc = own ? own->row(own->arg, &row, r, &d->replaced, err)
                 : lf_row_shape(&row, d->o->shape, r, "", &d->replaced, err);
    if (rc < 0)
        return rc;
    *shape = row.shape;
    add_piece(&d->text, &row.prompt);
    add_piece(&d->text, &row.completion);
    add_piece(&d->text, &row.rejected);
    if (own)
        own->text(own->arg, &d->text);
    if (d->text.len) /* the newline after the last piece */
        d->text.data[--d->text.len] = 0;
    for (size_t i = 0; i < row.n_ids && rc == 0; i++)
        rc = lf_ids_add(&d->ids, row.ids[i], err);
    if (rc == 0)
        tell_passed(d, r, &row);
    if (rc == 0 && (rc = lf_docturns_row(d->turns, &row, d->rows, err)) < 0)
        *failed = true;
    if (rc == 0)
        rc = encode_row(d, &row, failed, err);
    lf_row_fini(&row);
    return rc < 0 ? rc : lf_buf_check(&d->text, err);
}

static int row_length(struct doctor *d, enum lf_shape shape, uint64_t *length, lf_err *err)
{
    uint64_t replaced = 0;
    if (d->enc && lf_docenc_length(d->enc)) {
        *length = lf_docenc_length(d->enc);
        return 0;
    }
    if (shape == LF_SHAPE_TOKENS) {
        *length = d->ids.n;
        return 0;
    }
    *length = lf_datadoc_chars(d->text.data, d->text.len);
    if (!d->tok)
        return 0;
    d->ids.n = 0;
    int rc = lf_tokenizer_encode(d->tok, d->text.data, d->text.len,
                                 d->o->flags & ~(unsigned)LF_TOK_STRICT, &d->ids, &replaced, err);
    *length = d->ids.n;
    return rc;
}

static void tell_odd(struct doctor *d, unsigned odd)
{
    for (int k = 0; k < N_ODD; k++)
        if (odd >> k & 1 && d->odd[k]++ < KEEP)
            json_array_append_new(d->odd_first[k], place_json(d, d->rows));
}

static void tell_broken(struct doctor *d, const lf_corpus_record *r, const lf_err *why)
{
    const char *text = lf_str_has_prefix(why->text, ": ") ? why->text + 2 : why->text;
    if (d->n_broken++ < d->o->max_broken)
        json_array_append_new(d->broken, json_pack("{s:o,s:o}", "at", place_json(d, d->rows), "why",
                                                   text_json(text, strlen(text))));
    if (r->form != LF_RECORD_PACKED)
        tell_odd(d, lf_datadoc_odd(r->raw, r->len, r->raw, r->len, &d->scratch) &
                        (1u << ODD_UTF8 | 1u << ODD_BOM));
}

static int tell_duplicates(struct doctor *d, enum lf_shape shape, lf_err *err)
{
    uint64_t first = 0;
    double similarity = 0;
    bool tokens = shape == LF_SHAPE_TOKENS;
    uint64_t h = tokens ? lf_datadoc_hash(d->ids.v, d->ids.n * sizeof *d->ids.v, 2)
                        : lf_datadoc_hash(d->text.data, d->text.len, 0);
    int rc = lf_dups_add(d->dups, h, d->rows, &first, err);
    if (rc == 1) {
        d->n_dup += 1ull << lf_dups_sampled(
                        d->dups); /* each stands for so many that are not in the sample */
        if (json_array_size(d->dup) < KEEP)
            json_array_append_new(d->dup, json_pack("{s:o,s:o}", "at", place_json(d, d->rows),
                                                    "same_as", place_json(d, first)));
        return 0;
    }
    if (rc == 0 && !tokens)
        rc = lf_near_add(d->near, d->text.data, d->text.len, d->rows, &first, &similarity, err);
    if (rc == 1 && d->n_near++ < KEEP)
        json_array_append_new(d->nears,
                              json_pack("{s:o,s:o,s:f}", "at", place_json(d, d->rows), "like",
                                        place_json(d, first), "similarity", similarity));
    return rc < 0 ? rc : 0;
}

/* ---- samples ---- */

static void take_sample(struct doctor *d, struct sample *s, uint64_t length)
{
    size_t n = d->text.len < SAMPLE ? d->text.len : SAMPLE;
    while (n > 0 && n < d->text.len && ((unsigned char)d->text.data[n] & 0xC0) == 0x80)
        n--;
    s->row = d->rows;
    s->length = length;
    s->there = true;
    json_decref(s->more);
    s->more = d->o->reader && d->o->reader->sample ? d->o->reader->sample(d->o->reader->arg) : NULL;
    lf_buf_clear(&s->text);
    json_decref(s->trained);
    s->trained = d->shown.len ? json_incref(d->trained) : NULL;
    if (d->shown.len) {
        lf_buf_add(&s->text, d->shown.data, d->shown.len);
        return;
    }
    lf_buf_add(&s->text, d->text.data, n);
    if (n < d->text.len)
        lf_buf_adds(&s->text, " ...");
}

/* Pre-tokenized rows are shown as text where a tokenizer can say it. */
static int show_tokens(struct doctor *d, enum lf_shape shape, lf_err *err)
{
    if (shape != LF_SHAPE_TOKENS || !d->o->tokenizer || d->shown.len)
        return 0;
    size_t n = d->ids.n < SAMPLE ? d->ids.n : SAMPLE;
    for (size_t i = 0; i < n; i++)
        if (d->ids.v[i] >= lf_tokenizer_vocab_size(d->o->tokenizer))
            return 0;
    return lf_tokenizer_decode(d->o->tokenizer, d->ids.v, n, false, &d->text, err);
}

static void take_samples(struct doctor *d, uint64_t length)
{
    if (d->rows < FIRST)
        take_sample(d, &d->first[d->rows], length);
    uint64_t slot =
        d->rows < RANDOM ? d->rows : lf_rng_u32(d->o->seed, SITE_SAMPLE, d->rows) % (d->rows + 1);
    if (slot < RANDOM)
        take_sample(d, &d->random[slot], length);
    struct sample *last = &d->longest[LONGEST - 1];
    if (last->there && last->length >= length)
        return;
    take_sample(d, last, length);
    for (int k = LONGEST - 1;
         k > 0 && (!d->longest[k - 1].there || d->longest[k - 1].length < length); k--) {
        struct sample t = d->longest[k];
        d->longest[k] = d->longest[k - 1];
        d->longest[k - 1] = t;
    }
}

/* CR LF after some rows of a file and LF after others. */
static unsigned file_oddities(struct doctor *d, const lf_corpus_record *r)
{
    d->crlf = d->crlf || r->end == LF_CORPUS_CRLF;
    d->lf = d->lf || r->end == LF_CORPUS_LF;
    bool told = d->ends_told;
    d->ends_told = d->crlf && d->lf;
    return (d->ends_told && !told ? 1u << ODD_LINE_ENDS : 0) | (r->bom ? 1u << ODD_BOM : 0);
}

/* Of the row's text, and of its bytes where those are text, too. */
static unsigned row_oddities(struct doctor *d, const lf_corpus_record *r)
{
    bool packed = r->form == LF_RECORD_PACKED;
    const char *raw = packed ? d->text.data : r->raw;
    return lf_datadoc_odd(d->text.data, d->text.len, raw, packed ? d->text.len : r->len,
                          &d->scratch) |
           (packed && d->replaced ? 1u << ODD_UTF8 : 0);
}

/* A pair is two documents, each with the room of a sequence. */
static void count_cut(struct doctor *d, uint64_t length)
{
    const uint64_t room = d->o->seq_length;
    if (!room)
        return;
    uint64_t behind = d->enc && lf_docenc_length(d->enc) ? lf_docenc_behind(d->enc, room)
                      : length > room                    ? length - room
                                                         : 0;
    d->n_cut += behind > 0;
    d->behind += behind;
    d->tokens += length;
}

static int see_row(struct doctor *d, const lf_corpus_record *r, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    enum lf_shape shape;
    uint64_t length = 0;
    int rc = note_place(d, r, err);
    if (rc < 0)
        return rc;
    unsigned ends = file_oddities(d, r);
    d->bytes += r->len;
    bool failed = false;
    lf_buf_clear(&d->shown);
    rc = row_text(d, r, &shape, &failed, &why);
    if (rc < 0) {
        if (rc == LF_ENOMEM || failed)
            return lf_fail(err, rc, "%s", why.text);
        tell_odd(d, ends);
        tell_broken(d, r, &why);
        d->rows++;
        return 0;
    }
    d->shapes[shape]++;
    rc = row_length(d, shape, &length, err);
    if (rc < 0)
        return rc;
    if (shape != LF_SHAPE_TOKENS)
        tell_odd(d, ends | row_oddities(d, r));
    else
        tell_odd(d, ends | (d->ids.n == 0 ? 1u << ODD_EMPTY : 0));
    lf_hist_add(&d->hist, length);
    count_cut(d, length);
    rc = tell_duplicates(d, shape, err);
    if (rc == 0)
        rc = show_tokens(d, shape, err);
    if (rc == 0)
        take_samples(d, length);
    d->rows++;
    return rc;
}

/* ---- the round ---- */

static int read_all(struct doctor *d, lf_corpus *c, lf_err *err)
{
    size_t n;
    lf_corpus_sources(c, &n);
    for (;;) {
        lf_corpus_record r;
        lf_err why = LF_ERR_INIT;
        int rc = lf_corpus_next(c, &r, &why);
        if (rc == 0)
            return 0;
        if (rc == LF_ENOMEM)
            return lf_fail(err, rc, "%s", why.text);
        if (rc < 0) { /* the rest of this file is lost, the next one need not be */
            size_t at = lf_corpus_at(c);
            json_array_append_new(d->unreadable,
                                  json_pack("{s:o,s:o}", "at",
                                            text_json(lf_corpus_sources(c, &n)[at].path,
                                                      strlen(lf_corpus_sources(c, &n)[at].path)),
                                            "why", text_json(why.text, strlen(why.text))));
            if ((rc = lf_corpus_seek(c, at + 1, err)) < 0)
                return rc;
            continue;
        }
        if (d->rows % 1024 == 0 && d->o->stop && d->o->stop())
            return lf_fail(err, LF_EINTR, "stopped on request");
        if ((rc = see_row(d, &r, err)) < 0)
            return rc;
    }
}

/* ---- the report ---- */

static json_t *sample_json(const struct doctor *d, const struct sample *s, const char *kind)
{
    json_t *text = text_json(s->text.data, s->text.len);
    /* bytes that are no UTF-8 became others, and places in the text moved */
    json_t *trained = json_string_length(text) == s->text.len ? s->trained : NULL;
    return json_pack("{s:s,s:o,s:I,s:o,s:O*,s:O*}", "kind", kind, "at", place_json(d, s->row),
                     "length", (json_int_t)s->length, "text", text, "trained", trained, "pictures",
                     s->more);
}

static json_t *samples_json(const struct doctor *d)
{
    json_t *list = json_array();
    for (int k = 0; k < FIRST; k++)
        if (d->first[k].there)
            json_array_append_new(list, sample_json(d, &d->first[k], "first"));
    for (int k = 0; k < RANDOM; k++)
        if (d->random[k].there)
            json_array_append_new(list, sample_json(d, &d->random[k], "random"));
    if (d->longest[0].there)
        json_array_append_new(list, sample_json(d, &d->longest[0], "longest"));
    return list;
}

static json_t *odd_json(const struct doctor *d, bool *any)
{
    json_t *o = json_object();
    for (int k = 0; k < N_ODD; k++) {
        *any = *any || d->odd[k];
        if (d->odd[k])
            json_object_set_new(
                o, lf_datadoc_odd_names[k],
                json_pack("{s:I,s:O}", "rows", (json_int_t)d->odd[k], "first", d->odd_first[k]));
    }
    return o;
}

static json_t *cut_json(const struct doctor *d)
{
    return json_pack("{s:I,s:I,s:f,s:I,s:f}", "seq_length", (json_int_t)d->o->seq_length, "rows",
                     (json_int_t)d->n_cut, "rows_share",
                     d->hist.n ? (double)d->n_cut / (double)d->hist.n : 0.0, "tokens",
                     (json_int_t)d->behind, "tokens_share",
                     d->tokens ? (double)d->behind / (double)d->tokens : 0.0);
}

static json_t *make_report(const struct doctor *d, lf_err *err)
{
    bool any =
        d->n_broken || d->n_dup || d->n_near || json_array_size(d->unreadable) || d->rows == 0;
    int sampled = lf_dups_sampled(d->dups);
    json_t *r = json_object(), *shapes = json_object(), *longest = json_array();
    for (int k = 0; k < LF_SHAPES; k++)
        if (d->shapes[k])
            json_object_set_new(shapes, lf_shape_name((enum lf_shape)k),
                                json_integer((json_int_t)d->shapes[k]));
    for (int k = 0; k < LONGEST; k++)
        if (d->longest[k].there)
            json_array_append_new(longest,
                                  json_pack("{s:o,s:I}", "at", place_json(d, d->longest[k].row),
                                            "length", (json_int_t)d->longest[k].length));
    json_object_set_new(r, "rows", json_integer((json_int_t)d->rows));
    json_object_set_new(r, "bytes", json_integer((json_int_t)d->bytes));
    json_object_set_new(r, "shapes", shapes);
    json_object_set_new(r, "lengths", lf_hist_json(&d->hist, d->tok ? "tokens" : "characters"));
    json_object_set_new(
        r, "broken", json_pack("{s:I,s:O}", "rows", (json_int_t)d->n_broken, "first", d->broken));
    json_object_set(r, "unreadable", d->unreadable);
    json_object_set_new(r, "longest", longest);
    json_object_set_new(r, "duplicates",
                        json_pack("{s:I,s:b,s:O}", "rows", (json_int_t)d->n_dup, "estimated",
                                  sampled > 0, "first", d->dup));
    json_object_set_new(r, "near_duplicates",
                        json_pack("{s:I,s:I,s:O}", "rows", (json_int_t)d->n_near, "among",
                                  (json_int_t)lf_near_rows(d->near), "first", d->nears));
    json_object_set_new(r, "oddities", odd_json(d, &any));
    json_object_set_new(r, "samples", samples_json(d));
    if (d->enc)
        json_object_set_new(r, "encoded", lf_docenc_json(d->enc, &any));
    if (d->o->seq_length)
        json_object_set_new(r, "cut", cut_json(d));
    const lf_datadoc_reader *own = d->o->reader;
    if (own && json_object_set_new(r, "pictures", own->report(own->arg, &any)) != 0) {
        json_decref(r);
        lf_fail(err, LF_ENOMEM, "no memory for the report");
        return NULL;
    }
    if (lf_docturns_report(d->turns, r, &any, err) < 0) {
        json_decref(r);
        return NULL;
    }
    if (json_object_set_new(r, "clean", json_boolean(!any)) != 0 ||
        !json_object_get(r, "samples")) {
        json_decref(r);
        lf_fail(err, LF_ENOMEM, "no memory for the report");
        return NULL;
    }
    return r;
}

static int init(struct doctor *d, lf_err *err)
{
    lf_buf_init(&d->text);
    lf_buf_init(&d->scratch);
    lf_buf_init(&d->shown);
    for (int k = 0; k < LONGEST; k++)
        lf_buf_init(&d->longest[k].text);
    for (int k = 0; k < RANDOM; k++)
        lf_buf_init(&d->random[k].text);
    for (int k = 0; k < FIRST; k++)
        lf_buf_init(&d->first[k].text);
    for (int k = 0; k < N_ODD; k++)
        d->odd_first[k] = json_array();
    d->broken = json_array();
    d->unreadable = json_array();
    d->dup = json_array();
    d->nears = json_array();
    d->dups = lf_dups_create(d->o->max_bytes / 4, err);
    d->near = d->dups ? lf_near_create(d->o->max_bytes / 2, err) : NULL;
    if (d->near && d->o->tokenizer && !(d->tok = lf_tok_state_create(d->o->tokenizer, err)))
        return LF_ENOMEM;
    const lf_docturns_opts t = {.shape = d->o->shape,
                                .tok = d->tok,
                                .flags = d->o->flags,
                                .max_bytes = d->o->max_bytes / 4,
                                .place = place_for_turns,
                                .arg = d,
                                .reader = d->o->reader};
    if (d->near && !(d->turns = lf_docturns_create(&t, err)))
        return LF_ENOMEM;
    if (d->tok && d->o->rows && !(d->enc = lf_docenc_create(err)))
        return LF_ENOMEM;
    return d->near ? 0 : LF_ENOMEM;
}

static void drop_samples(struct sample *s, int n)
{
    for (int k = 0; k < n; k++) {
        lf_buf_fini(&s[k].text);
        json_decref(s[k].more);
        json_decref(s[k].trained);
    }
}

static void fini(struct doctor *d)
{
    drop_samples(d->longest, LONGEST);
    drop_samples(d->random, RANDOM);
    drop_samples(d->first, FIRST);
    for (int k = 0; k < N_ODD; k++)
        json_decref(d->odd_first[k]);
    for (size_t k = 0; k < d->n_seg; k++)
        free(d->seg[k].member);
    json_decref(d->trained);
    json_decref(d->broken);
    json_decref(d->unreadable);
    json_decref(d->dup);
    json_decref(d->nears);
    lf_dups_destroy(d->dups);
    lf_near_destroy(d->near);
    lf_tok_state_destroy(d->tok);
    lf_ids_fini(&d->ids);
    lf_buf_fini(&d->text);
    lf_buf_fini(&d->scratch);
    lf_buf_fini(&d->shown);
    lf_docenc_destroy(d->enc);
    lf_docturns_destroy(d->turns);
    free(d->seg);
    free(d->line);
}

int lf_datadoc_run(json_t **report, lf_corpus *c, const lf_datadoc_opts *o, lf_err *err)
{
    struct doctor *d = lf_calloc(1, sizeof *d, err);
    if (!d)
        return LF_ENOMEM;
    d->o = o;
    d->corpus = c;
    int rc = init(d, err);
    if (rc == 0)
        rc = read_all(d, c, err);
    json_t *r = rc == 0 ? make_report(d, err) : NULL;
    if (rc == 0 && !r)
        rc = LF_ENOMEM;
    fini(d);
    free(d);
    if (rc == 0)
        *report = r;
    return rc;
}
