/* SPDX-License-Identifier: Apache-2.0
 *
 * What lf-tokenize --doctor tells of pictures.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/html.h"
#include "engine/base/mem.h"
#include "stages/tokenize_media.h"

enum {
    SIDES = 17, /* longer sides from 2^k on */
    SHOWN = 8   /* pictures of a sample */
};

struct range {
    int64_t min, max, sum;
};

struct tok_pics_doctor {
    tok_pics pics;
    const lf_shape_opts *shape;
    int64_t rows, n, repeated, bytes, broken, mismatched, sides[SIDES];
    struct range width, height, placeholders;
    uint64_t *seen; /* [n_seen], a power of 2: hash table of the beginnings of hashes; 0: empty */
    size_t n_seen, distinct;
};

tok_pics_doctor *lf_tokenize_pics_doctor(const tok_media *m, const lf_shape_opts *o, lf_err *err)
{
    tok_pics_doctor *d = lf_calloc(1, sizeof(*d), err);
    if (!d)
        return NULL;
    lf_tokenize_pics_init(&d->pics, m);
    d->shape = o;
    return d;
}

void lf_tokenize_pics_doctor_free(tok_pics_doctor *d)
{
    if (!d)
        return;
    lf_tokenize_pics_fini(&d->pics);
    free(d->seen);
    free(d);
}

/* ---- counting ---- */

static void add_range(struct range *r, int64_t v, bool first)
{
    r->min = first || v < r->min ? v : r->min;
    r->max = first || v > r->max ? v : r->max;
    r->sum += v;
}

static bool put_seen(uint64_t *seen, size_t n, uint64_t h)
{
    size_t i = (size_t)h & (n - 1);
    while (seen[i] && seen[i] != h)
        i = (i + 1) & (n - 1);
    const bool there = seen[i] == h;
    seen[i] = h;
    return there;
}

/* *there: did this picture come before? The table is at most half full. */
static int see(tok_pics_doctor *d, const uint8_t sha[LF_HASH_BYTES], bool *there, lf_err *err)
{
    uint64_t h;
    memcpy(&h, sha, sizeof(h));
    h = h ? h : 1;
    if (2 * (d->distinct + 1) > d->n_seen) {
        size_t n = d->n_seen ? 2 * d->n_seen : 1024;
        uint64_t *more = lf_calloc(n, sizeof(*more), err);
        if (!more)
            return LF_ENOMEM;
        for (size_t i = 0; i < d->n_seen; i++)
            if (d->seen[i])
                put_seen(more, n, d->seen[i]);
        free(d->seen);
        d->seen = more;
        d->n_seen = n;
    }
    *there = put_seen(d->seen, d->n_seen, h);
    d->distinct += !*there;
    return 0;
}

static int count(tok_pics_doctor *d, const lf_shard_picture *p, lf_err *err)
{
    uint32_t longer = p->w > p->h ? p->w : p->h;
    bool there = false;
    int k = 31 - __builtin_clz(longer), rc = see(d, p->sha256, &there, err);
    add_range(&d->width, p->w, d->n == 0);
    add_range(&d->height, p->h, d->n == 0);
    add_range(&d->placeholders, p->count, d->n == 0);
    d->sides[k < SIDES ? k : SIDES - 1]++;
    d->bytes += (int64_t)p->n;
    d->repeated += there;
    d->n++;
    return rc;
}

/* ---- what the doctor calls ---- */

static int read_row(void *arg, lf_row *out, const lf_corpus_record *r, uint64_t *replaced,
                    lf_err *err)
{
    tok_pics_doctor *d = arg;
    int rc = lf_tokenize_pics_row(&d->pics, out, d->shape, r, "", replaced, err);
    d->broken += d->pics.fault == PICS_BROKEN;
    d->mismatched += d->pics.fault == PICS_MISMATCH;
    if (rc < 0)
        return rc;
    d->rows += d->pics.n > 0;
    for (size_t i = 0; i < d->pics.n && rc == 0; i++)
        rc = count(d, &d->pics.v[i], err);
    if (rc < 0)
        lf_row_fini(out);
    return rc;
}

static void add_hashes(void *arg, lf_buf *out)
{
    const tok_pics_doctor *d = arg;
    for (size_t i = 0; i < d->pics.n; i++) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, d->pics.v[i].sha256);
        lf_buf_addf(out, "[picture %.16s]", hex);
    }
}

static json_t *range_json(const struct range *r)
{
    return json_pack("{s:I,s:I}", "min", (json_int_t)r->min, "max", (json_int_t)r->max);
}

static json_t *sides_json(const tok_pics_doctor *d)
{
    json_t *list = json_array();
    for (int k = 0; k < SIDES; k++)
        if (d->sides[k])
            json_array_append_new(list, json_pack("{s:I,s:I,s:I}", "from", (json_int_t)1 << k, "to",
                                                  ((json_int_t)2 << k) - 1, "pictures",
                                                  (json_int_t)d->sides[k]));
    return list;
}

static json_t *report(void *arg, bool *any)
{
    const tok_pics_doctor *d = arg;
    json_t *placeholders = range_json(&d->placeholders);
    if (d->n > 0)
        json_object_set_new(placeholders, "mean",
                            json_real((double)d->placeholders.sum / (double)d->n));
    *any = *any || d->broken || d->mismatched;
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "rows", (json_int_t)d->rows,
                     "pictures", (json_int_t)d->n, "repeated", (json_int_t)d->repeated, "bytes",
                     (json_int_t)d->bytes, "broken", (json_int_t)d->broken, "mismatched",
                     (json_int_t)d->mismatched, "width", range_json(&d->width), "height",
                     range_json(&d->height), "placeholders", placeholders, "sides", sides_json(d));
}

/* The pictures of a sample; "html" is for the page alone (tokenize_doctor_page.c). */
static json_t *sample(void *arg)
{
    const tok_pics_doctor *d = arg;
    json_t *list = d->pics.n > 0 ? json_array() : NULL;
    const char *bytes = d->pics.bytes.data;
    for (size_t i = 0; list && i < d->pics.n && i < SHOWN; bytes += d->pics.v[i++].n) {
        const lf_shard_picture *p = &d->pics.v[i];
        char hex[LF_HASH_HEX];
        lf_buf html;
        lf_buf_init(&html);
        lf_hash_hex(hex, p->sha256);
        const bool fits = lf_html_picture(&html, bytes, p->n, hex) && !html.failed;
        json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I,s:o*}", "sha256", hex, "width",
                                              (json_int_t)p->w, "height", (json_int_t)p->h,
                                              "placeholders", (json_int_t)p->count, "html",
                                              fits ? json_string(html.data) : NULL));
        lf_buf_fini(&html);
    }
    return list;
}

lf_datadoc_reader lf_tokenize_pics_reader(tok_pics_doctor *d)
{
    return (lf_datadoc_reader){
        .row = read_row, .text = add_hashes, .report = report, .sample = sample, .arg = d};
}
