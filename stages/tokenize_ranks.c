/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizing on several ranks. Every rank reads the whole input and so cuts it into the same
 * batches; batch k is worked on by rank k mod P alone. Rank 0 is the only one that writes: its sink
 * takes batches in order, those of others by message, so the shards are those of one rank, bit for
 * bit, and everything about restarts is rank 0's and needs nothing here.
 *
 * What rank r > 0 and rank 0 say to each other, for each batch of r in order and once at the end:
 *
 *     r: head (which batch, how much)     0: GO or STOP     r, after GO: documents, ids
 *     r: head END, with its failure if it had one
 *
 * Rank 0 answers every head, so nobody waits for ever: when it has failed or was stopped it answers
 * STOP from then on (lf_tokenize_ranks_end), after which r sends nothing more.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "stages/tokenize_priv.h"

enum { TAG_HEAD = 1, TAG_REPLY, TAG_DOCS, TAG_IDS, TAG_MASK, TAG_REST, TAG_PICS, TAG_PIC_BYTES };
enum { HEAD_BATCH = 1, HEAD_END };
enum { REPLY_GO = 1, REPLY_STOP };

typedef struct head {
    int64_t kind, rc;
    uint64_t index, first, n, n_ids, n_mask, n_rest, n_pics, n_pic_bytes,
        replaced;                           /* of the batch */
    char text[sizeof(((lf_err *)0)->text)]; /* of the failure */
} head;

int lf_tokenize_ranks_open(tok_ranks *k, lf_comm *comm, lf_err *err)
{
    *k = (tok_ranks){.comm = comm, .rank = comm ? comm->rank : 0, .size = comm ? comm->size : 1};
    k->over = lf_calloc((size_t)k->size, sizeof(*k->over), err);
    return k->over ? 0 : LF_ENOMEM;
}

void lf_tokenize_ranks_close(tok_ranks *k)
{
    free(k->over);
}

/* ---- rank r > 0 ---- */

/* The pipeline's sink. */
int lf_tokenize_ranks_give(void *ctx, tok_batch *b, lf_err *err)
{
    tok_ranks *k = ctx;
    int64_t reply = 0;
    if (b->index % (uint64_t)k->size != (uint64_t)k->rank)
        return 0;
    head h = {.kind = HEAD_BATCH,
              .index = b->index,
              .first = b->first,
              .n = b->n,
              .n_ids = b->ids.n,
              .n_mask = b->mask.len,
              .n_rest = b->rest.len,
              .n_pics = b->pics.len,
              .n_pic_bytes = b->pic_bytes.len,
              .replaced = b->replaced};
    int rc = lf_comm_send(k->comm, &h, sizeof(h), 0, TAG_HEAD, err);
    if (rc == 0)
        rc = lf_comm_recv(k->comm, &reply, sizeof(reply), 0, TAG_REPLY, err);
    if (rc == 0 && reply != REPLY_GO) {
        k->over[k->rank] = true;
        return lf_fail(err, LF_ECOMM, "rank 0 wants no more");
    }
    if (rc == 0)
        rc = lf_comm_send(k->comm, b->docs, b->n * sizeof(*b->docs), 0, TAG_DOCS, err);
    if (rc == 0)
        rc = lf_comm_send(k->comm, b->ids.v, b->ids.n * sizeof(*b->ids.v), 0, TAG_IDS, err);
    if (rc == 0 && b->mask.len)
        rc = lf_comm_send(k->comm, b->mask.data, b->mask.len, 0, TAG_MASK, err);
    if (rc == 0 && b->rest.len)
        rc = lf_comm_send(k->comm, b->rest.data, b->rest.len, 0, TAG_REST, err);
    if (rc == 0 && b->pics.len)
        rc = lf_comm_send(k->comm, b->pics.data, b->pics.len, 0, TAG_PICS, err);
    if (rc == 0 && b->pic_bytes.len)
        rc = lf_comm_send(k->comm, b->pic_bytes.data, b->pic_bytes.len, 0, TAG_PIC_BYTES, err);
    return rc;
}

/* After the pipeline: tell rank 0 how it went, unless it has said that it does not want to know. */
static int say_end(tok_ranks *k, int rc, lf_err *err)
{
    head h = {.kind = HEAD_END, .rc = rc};
    if (k->over[k->rank])
        return rc;
    if (rc != 0 && err)
        snprintf(h.text, sizeof(h.text), "%s", err->text);
    int sent = lf_comm_send(k->comm, &h, sizeof(h), 0, TAG_HEAD, rc != 0 ? NULL : err);
    return rc != 0 ? rc : sent;
}

/* ---- rank 0 ---- */

/* What rank r failed with, as rank 0's own failure: the first in the order of the input is the one
 * that is told. */
static int their_failure(const head *h, int r, lf_err *err)
{
    if (h->rc == 0)
        return lf_fail(
            err, LF_ECOMM,
            "rank %d has come to the end of the input before rank 0; does it see the same files?",
            r);
    return lf_fail(err, h->rc < 0 && h->rc >= LF_ENUMERIC ? (int)h->rc : LF_ECOMM, "%.*s",
                   (int)sizeof(h->text) - 1, h->text);
}

static int make_room(void *p_ptr, size_t *cap, size_t n, size_t size, lf_err *err)
{
    int rc = n > *cap ? lf_realloc(p_ptr, n, size, err) : 0;
    if (rc == 0 && n > *cap)
        *cap = n;
    return rc;
}

static int take_bytes(tok_ranks *k, lf_buf *b, uint64_t n, int r, int tag, lf_err *err)
{
    static const char zeros[4096];
    lf_buf_clear(b);
    while (b->len < n && !b->failed)
        lf_buf_add(b, zeros, n - b->len < sizeof(zeros) ? (size_t)(n - b->len) : sizeof(zeros));
    int rc = lf_buf_check(b, err);
    return rc || n == 0 ? rc : lf_comm_recv(k->comm, b->data, n, r, tag, err);
}

/* Is what rank r announces about the batch that rank 0 has read, and are its lengths possible? */
static int check_head(const head *h, const tok_batch *b, int r, lf_err *err)
{
    if (h->index != b->index || h->first != b->first || h->n != b->n)
        return lf_fail(err, LF_ECOMM,
                       "rank %d reads another text than rank 0; does it see the same files?", r);
    if (h->n_mask != 0 && h->n_mask != h->n_ids)
        return lf_fail(err, LF_EFORMAT, "rank %d announces %llu tokens and a loss mask of %llu", r,
                       (unsigned long long)h->n_ids, (unsigned long long)h->n_mask);
    return 0;
}

/* The bytes of a record's pictures, which begin at `bytes`. false: there are not as many, or the
 * documents of a pair have other pictures. */
static bool fit_pictures(const tok_batch *b, const tok_doc *d, const lf_shard_picture *pic,
                         size_t *bytes)
{
    bool fit = true;
    for (size_t i = 0; i < d->n_pics && fit; i++) {
        fit = pic[i].n <= b->pic_bytes.len - *bytes;
        *bytes += fit ? pic[i].n : 0;
    }
    for (size_t i = d->n_pics; i < lf_tokenize_uses(d) && fit; i++)
        fit = pic[i].n == pic[i - d->n_pics].n;
    return fit;
}

/* Documents that do not fill what came with them would be written from behind it. */
static int check_docs(const tok_batch *b, int r, lf_err *err)
{
    size_t ids = 0, rest = 0, pics = 0, bytes = 0;
    const size_t n_pics = b->pics.len / sizeof(lf_shard_picture);
    const lf_shard_picture *pic = (const lf_shard_picture *)(const void *)b->pics.data;
    bool fit = true;
    for (size_t i = 0; i < b->n; i++) {
        const tok_doc *d = &b->docs[i];
        if (d->n_ids > b->ids.n - ids || d->n_first > d->n_ids ||
            d->rest_len > b->rest.len - rest || d->fate >= LF_ROW_FATES ||
            d->kind > LF_ROW_PROMPT || lf_tokenize_uses(d) > n_pics - pics ||
            d->split >= N_SPLITS || (d->masked && d->n_ids > 0 && b->mask.len == 0))
            return lf_fail(err, LF_EFORMAT,
                           "rank %d sent document %zu of a batch with lengths that cannot be", r,
                           i);
        ids += d->n_ids;
        rest += d->rest_len;
        fit = fit && fit_pictures(b, d, pic + pics, &bytes);
        pics += lf_tokenize_uses(d);
    }
    if (!fit || pics * sizeof(*pic) != b->pics.len || bytes != b->pic_bytes.len)
        return lf_fail(err, LF_EFORMAT, "rank %d sent pictures that are not its documents'", r);
    if (ids != b->ids.n || rest != b->rest.len)
        return lf_fail(err, LF_EFORMAT, "rank %d sent %zu tokens, its documents have %zu", r,
                       b->ids.n, ids);
    return 0;
}

/* What follows a head that was answered with GO. */
static int take_rest(tok_ranks *k, tok_batch *b, const head *h, int r, lf_err *err)
{
    int rc = lf_comm_recv(k->comm, b->docs, b->n * sizeof(*b->docs), r, TAG_DOCS, err);
    if (rc == 0)
        rc = lf_comm_recv(k->comm, b->ids.v, h->n_ids * sizeof(*b->ids.v), r, TAG_IDS, err);
    if (rc == 0)
        rc = take_bytes(k, &b->mask, h->n_mask, r, TAG_MASK, err);
    if (rc == 0)
        rc = take_bytes(k, &b->rest, h->n_rest, r, TAG_REST, err);
    if (rc == 0)
        rc = take_bytes(k, &b->pics, h->n_pics, r, TAG_PICS, err);
    if (rc == 0)
        rc = take_bytes(k, &b->pic_bytes, h->n_pic_bytes, r, TAG_PIC_BYTES, err);
    b->ids.n = h->n_ids;
    b->replaced = h->replaced;
    return rc != 0 ? rc : check_docs(b, r, err);
}

/* Fill batch b, which this rank has read and rank r has worked on. */
static int take(tok_ranks *k, tok_batch *b, int r, lf_err *err)
{
    head h;
    int rc = lf_comm_recv(k->comm, &h, sizeof(h), r, TAG_HEAD, err);
    if (rc != 0)
        return rc;
    if (h.kind == HEAD_END) {
        k->over[r] = true;
        return their_failure(&h, r, err);
    }
    b->ids.n = 0;
    rc = check_head(&h, b, r, err);
    if (rc == 0)
        rc = make_room(&b->docs, &b->cap_docs, b->n, sizeof(*b->docs), err);
    if (rc == 0)
        rc = make_room(&b->ids.v, &b->ids.cap, h.n_ids, sizeof(*b->ids.v), err);
    int64_t reply = rc == 0 ? REPLY_GO : REPLY_STOP;
    k->over[r] = rc != 0;
    int sent = lf_comm_send(k->comm, &reply, sizeof(reply), r, TAG_REPLY, rc != 0 ? NULL : err);
    if (rc != 0 || sent)
        return rc != 0 ? rc : sent;
    return take_rest(k, b, &h, r, err);
}

int lf_tokenize_ranks_take(void *ctx, tok_batch *b, lf_err *err)
{
    tok_ranks *k = ctx;
    int r = (int)(b->index % (uint64_t)k->size);
    int rc = r == 0 ? 0 : take(k, b, r, err);
    return rc != 0 ? rc : k->sink(k->sink_ctx, b, err);
}

/* Hear rank r out; a failure that rank 0 does not know yet becomes its own. */
static int hear_out(tok_ranks *k, int r, int rc, lf_err *err)
{
    int64_t reply = REPLY_STOP;
    head h;
    if (k->over[r])
        return rc;
    int got = lf_comm_recv(k->comm, &h, sizeof(h), r, TAG_HEAD, rc != 0 ? NULL : err);
    if (got != 0)
        return rc != 0 ? rc : got;
    k->over[r] = true;
    if (h.kind == HEAD_END)
        return rc == 0 && h.rc != 0 ? their_failure(&h, r, err) : rc;
    got = lf_comm_send(k->comm, &reply, sizeof(reply), r, TAG_REPLY, rc != 0 ? NULL : err);
    if (rc != 0 || got)
        return rc != 0 ? rc : got;
    return lf_fail(err, LF_ECOMM,
                   "rank %d reads more text than rank 0; does it see the same files?", r);
}

int lf_tokenize_ranks_end(tok_ranks *k, int rc, lf_err *err)
{
    if (k->size == 1)
        return rc;
    if (k->rank > 0)
        return say_end(k, rc, err);
    for (int r = 1; r < k->size; r++)
        rc = hear_out(k, r, rc, err);
    return rc;
}

/* ---- word counts ---- */

int lf_tokenize_ranks_words(const tok_ranks *k, lf_word_counts *words, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    lf_buf mine;
    if (k->size == 1)
        return 0;
    lf_buf_init(&mine);
    int rc = k->rank > 0 ? lf_word_counts_pack(words, &mine, err) : 0;
    rc = lf_comm_agree_ok(k->comm, rc, err);
    if (rc == 0)
        rc = lf_comm_gather_blobs(k->comm, mine.data, mine.len, &all, err);
    for (int r = 1; r < k->size && rc == 0 && k->rank == 0; r++)
        rc = lf_word_counts_unpack(words, all.data + all.offset[r],
                                   all.offset[r + 1] - all.offset[r], err);
    lf_comm_blobs_fini(&all);
    lf_buf_fini(&mine);
    return rc;
}

/* ---- small things that rank 0 knows ---- */

int lf_tokenize_ranks_u64(const tok_ranks *k, uint64_t *v, size_t n, lf_err *err)
{
    return k->size == 1 ? 0 : lf_comm_broadcast(k->comm, v, n * sizeof(*v), 0, err);
}

int lf_tokenize_ranks_text(const tok_ranks *k, lf_buf *text, lf_err *err)
{
    uint64_t n = text->len;
    if (k->size == 1)
        return 0;
    int rc = lf_tokenize_ranks_u64(k, &n, 1, err);
    if (rc != 0)
        return rc;
    size_t room;
    if (!lf_size_add(&room, (size_t)n, 1)) /* the same on all ranks */
        return lf_fail(err, LF_ECOMM, "rank 0 announces a text of %llu bytes",
                       (unsigned long long)n);
    char *p = lf_malloc(room, 1, err);
    if (p && k->rank == 0)
        memcpy(p, text->data, (size_t)n);
    rc = lf_comm_agree_ok(k->comm, p ? 0 : LF_ENOMEM, err);
    if (rc == 0)
        rc = lf_comm_broadcast(k->comm, p, (size_t)n, 0, err);
    if (rc == 0 && k->rank > 0)
        lf_buf_add(text, p, (size_t)n);
    free(p);
    return rc != 0 ? rc : lf_buf_check(text, err);
}
