/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling micro-batches in the order of order.c, ahead of their use.
 *
 * Two walkers go over the same order: the caller's (lf_loader_begin_step: counts, from the packing
 * index alone) and the filling thread's. Slots form a ring; `made` and `used` count micro-batches
 * since the last seek.
 *   1. The thread writes slot made % LF_LOADER_SLOTS without the lock, only while made - used <
 * LF_LOADER_SLOTS - 1: the slot handed out last (used - 1) is never written to.
 *   2. A seek raises `gen`; the thread drops what it filled under an older one and takes its place
 *      from seek_to.
 *   3. A failure of the thread is kept and told by every lf_loader_next until the next seek.
 */
#include "engine/train/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/loader_priv.h"

/* ---- filling ---- */

static int64_t micros_of(const lf_loader *l, int64_t n_samples)
{
    return lf_deal_count(n_samples, l->B, l->dp_rank, l->dp_size);
}

void lf_loader_positions(int32_t *positions, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        positions[i] = i;
}

/* Close the segment that ends at flattened position `end`. */
void lf_loader_end_segment(lf_loader_batch *b, int32_t end)
{
    int32_t len = end - b->cu_seqlens[b->n_segs];
    b->max_seglen = len > b->max_seglen ? len : b->max_seglen;
    b->cu_seqlens[++b->n_segs] = end;
}

/* What segment `end` closes is. */
void lf_loader_name_segment(lf_loader_batch *b, int64_t doc, size_t source, bool mismatched)
{
    b->seg_doc[b->n_segs] = doc;
    b->seg_source[b->n_segs] = (uint16_t)source;
    b->seg_mismatched[b->n_segs] = mismatched;
    if (b->seg_nsp)
        b->seg_nsp[b->n_segs] = LF_NSP_NONE;
}

/* Targets of a segment: every token but its first, and the one behind it unless it ends its
 * document. Of a prompt, which is read as a whole, all tokens count. */
static uint32_t seg_trained(const struct lf_loader_src *src, const lf_pack_seg *s)
{
    if (src->units.rows == LF_ROWS_PROMPTS)
        return s->len;
    uint32_t n = s->len - s->last;
    return src->masked ? (uint32_t)lf_shardset_count_trained(src->set, s->doc, s->first + 1, n) : n;
}

static int fill_segment(const struct lf_loader_src *src, const lf_pack_seg *s, int32_t *tokens,
                        int32_t *targets, lf_err *err)
{
    const lf_shardset *set = src->set;
    int32_t after = -1;
    int rc = lf_shardset_read(set, s->doc, s->first, s->len, tokens, err);
    if (rc == 0 && !s->last)
        rc = lf_shardset_read(set, s->doc, s->first + s->len, 1, &after, err);
    memcpy(targets, tokens + 1, (s->len - 1) * sizeof *targets);
    targets[s->len - 1] = after;
    for (uint32_t i = 0; src->masked && i < s->len - s->last; i++)
        if (!lf_shardset_trained(set, s->doc, s->first + i + 1))
            targets[i] = -1;
    return rc;
}

/* The tokens of a part. Where pictures alone are read they are padding. */
static int fill_part(const lf_loader *l, const struct lf_loader_src *src,
                     const struct lf_unit_part *p, int32_t *tokens, int32_t *targets, lf_err *err)
{
    for (uint32_t i = 0; src->units.alone && i < p->seg.len; i++) {
        tokens[i] = l->pad_token;
        targets[i] = -1;
    }
    return src->units.alone ? 0
           : p->mismatched  ? lf_units_fill_mismatched(&src->units, p, tokens, targets, err)
                            : fill_segment(src, &p->seg, tokens, targets, err);
}

/* The same where tokens are hidden: targets are the tokens that may be; begins: see mlm.h, or
 * NULL. */
static int fill_hideable(const lf_loader *l, const struct lf_loader_src *src, const lf_pack_seg *s,
                         int32_t *tokens, int32_t *targets, uint8_t *begins, lf_err *err)
{
    const int rc = lf_shardset_read(src->set, s->doc, s->first, s->len, tokens, err);
    if (begins && rc == 0)
        lf_mlm_words(l->mlm, tokens, s->len, begins);
    for (uint32_t i = 0; i < s->len && rc == 0; i++) {
        const bool trained = !src->masked || lf_shardset_trained(src->set, s->doc, s->first + i);
        targets[i] = trained && !lf_mlm_spares(l->mlm, tokens[i]) ? tokens[i] : -1;
    }
    return rc;
}

/* Hides tokens of a row; returns how many. Where texts are paired no word that stands for a hidden
 * one is the separator, by which the second text is found. */
static int64_t hide(const lf_loader *l, int64_t sample, int32_t *tokens, int32_t *targets,
                    const uint8_t *begins)
{
    const struct lf_mlm_row row = {.seed = l->order.seed,
                                   .valid = l->order.mode == LF_LOADER_VALID,
                                   .sample = sample,
                                   .vocab = l->mlm_vocab,
                                   .n = l->T,
                                   .tokens = tokens,
                                   .targets = targets,
                                   .begins = begins};
    const int64_t hidden = lf_mlm_hide(l->mlm, &row);
    for (int32_t i = 0; l->nsp && i < l->T; i++)
        if (targets[i] >= 0 && tokens[i] == l->nsp->separator)
            tokens[i] = l->mlm->mask_token;
    return hidden;
}

static bool counts(const struct lf_loader_src *src, const struct lf_unit_part *p)
{
    return !p->mismatched && !src->units.alone;
}

/* Row `row` of a micro-batch from one sequence; n_segs 0: all padding. */
static int fill_row(const lf_loader *l, lf_loader_batch *b, int32_t row,
                    const struct lf_loader_src *src, const lf_pack_seg *segs, uint32_t n_segs,
                    lf_err *err)
{
    size_t base = (size_t)row * (size_t)l->T;
    int32_t at = 0;
    struct lf_unit_part part[LF_UNIT_PARTS];
    int paired = l->nsp ? lf_loader_pairs_fill(l, b, row, src, n_segs, &at, err) : 0;
    if (paired < 0)
        return paired;
    for (uint32_t k = 0; k < n_segs && !l->nsp; k++) {
        int n = lf_units_parts(&src->units, &segs[k], part);
        for (int i = 0; i < n; i++) {
            int32_t *tokens = b->tokens + base + at, *targets = b->targets + base + at,
                    len = (int32_t)part[i].seg.len;
            uint8_t *begins = l->begins ? l->begins + at : NULL;
            int rc = l->mlm ? fill_hideable(l, src, &part[i].seg, tokens, targets, begins, err)
                            : fill_part(l, src, &part[i], tokens, targets, err);
            if (rc < 0)
                return rc;
            lf_loader_positions(b->positions + base + at, len);
            if (src->units.media)
                rc = lf_loader_media_fill(&l->media, b, &src->units, &part[i], (int64_t)base + at,
                                          err);
            if (rc < 0)
                return rc;
            at += len;
            b->trained += counts(src, &part[i]) && !l->mlm ? seg_trained(src, &part[i].seg) : 0;
            lf_loader_name_segment(b, (int64_t)part[i].seg.doc, (size_t)(src - l->src),
                                   part[i].mismatched);
            lf_loader_end_segment(b, (int32_t)base + at);
        }
    }
    if (at == l->T)
        return 0;
    lf_loader_name_segment(b, -1, 0, false);
    for (int32_t i = at; i < l->T; i++) {
        b->tokens[base + (size_t)i] = l->pad_token;
        b->targets[base + (size_t)i] = -1;
    }
    lf_loader_positions(b->positions + base + at, l->T - at);
    lf_loader_end_segment(b, (int32_t)base + l->T);
    return 0;
}

/* The same from a sample of Megatron's: T tokens and the one after them. */
static int fill_row_mega(const lf_loader *l, lf_loader_batch *b, int32_t row,
                         const struct lf_mega *m, uint64_t sample, lf_err *err)
{
    size_t base = (size_t)row * (size_t)l->T, T = (size_t)l->T;
    int rc = lf_mega_read(m, sample, l->row, err);
    if (rc < 0)
        return rc;
    memcpy(b->tokens + base, l->row, T * sizeof *l->row);
    memcpy(b->targets + base, l->row + 1, T * sizeof *l->row);
    lf_loader_positions(b->positions + base, l->T);
    b->trained += l->T;
    lf_loader_name_segment(b, -1, 0, false);
    lf_loader_end_segment(b, (int32_t)(base + T));
    return 0;
}

/* The next micro-batch of this rank: of every dp_size * B samples, the dp_rank-th B. */
static int fill_batch(lf_loader *l, lf_loader_batch *b, lf_err *err)
{
    int64_t unit = (int64_t)l->B * l->dp_size, lo = l->dp_rank * l->B, hi = lo + l->B;
    int64_t first = l->fill_step.first + l->fill_micro * unit;
    b->n_segs = b->max_seglen = 0;
    b->trained = 0;
    b->media.n_tiles = b->media.n_pictures = 0;
    b->media.n_patches = b->media.n_encoded = 0;
    b->cu_seqlens[0] = 0;
    b->step = l->fill_step.number;
    b->micro = l->fill_micro;
    b->n_micro = (int32_t)micros_of(l, l->fill_step.n);
    for (int64_t i = 0; i < unit; i++) {
        size_t k = 0;
        uint64_t seq = 0;
        bool there = first + i < l->fill_step.first + l->fill_step.n;
        if (there)
            lf_walker_next(&l->fill_walk, &l->order, &k, &seq, NULL);
        if (i < lo || i >= hi)
            continue;
        b->sample_ids[i - lo] = there ? first + i : -1;
        uint32_t n = there && !l->mega ? lf_pack_get(l->src[k].pack, seq, l->segs) : 0;
        const int32_t row = (int32_t)(i - lo);
        int rc = there && l->mega ? fill_row_mega(l, b, row, &l->mega[k], seq, err)
                 : l->seq2seq     ? lf_loader_seq2seq_fill(l, b, row, &l->src[k], l->segs, n, err)
                                  : fill_row(l, b, row, &l->src[k], l->segs, n, err);
        if (rc < 0)
            return lf_err_prefix(err, "sample %lld of the data order (%s)", (long long)(first + i),
                                 l->src[k].dir);
        const size_t base = (size_t)(i - lo) * (size_t)l->T;
        b->trained +=
            l->mlm ? hide(l, first + i, b->tokens + base, b->targets + base, l->begins) : 0;
    }
    for (int32_t i = b->n_segs + 1; i <= l->B * l->max_segs; i++) {
        b->cu_seqlens[i] = l->B * l->T;
        if (l->seq2seq)
            b->source_cu_seqlens[i] = l->B * b->S;
    }
    return 0;
}

/* Take up a new place after a seek; false when the order ends there. Also moves to the next step
 * when one is full. */
static bool fill_place(lf_loader *l, bool reseek, int64_t seek_to)
{
    if (reseek) {
        if (lf_stepper_seek(&l->fill_step, &l->order, seek_to, NULL) < 0)
            LF_BUG("seek to %lld was checked", (long long)seek_to);
        l->fill_micro = 0;
        lf_walker_seek(&l->fill_walk, &l->order, seek_to);
    } else if (++l->fill_micro == micros_of(l, l->fill_step.n)) {
        lf_stepper_next(&l->fill_step, &l->order);
        l->fill_micro = 0;
    } else {
        return true;
    }
    if (!lf_stepper_settle(&l->fill_step, &l->order) || micros_of(l, l->fill_step.n) == 0)
        /* no micro-batch for this rank: in the last step of a validation only, see
         * lf_order_check */
        return false;
    /* Others had micro-batches in the last round and this rank had none: a short way, where a seek
     * may be a long one.
     */
    for (int64_t unit = (int64_t)l->B * l->dp_size, end = l->fill_step.first;
         l->fill_walk.sample < end && end - l->fill_walk.sample < unit;) {
        size_t k;
        uint64_t seq;
        lf_walker_next(&l->fill_walk, &l->order, &k, &seq, NULL);
    }
    if (l->fill_walk.sample != l->fill_step.first)
        lf_walker_seek(&l->fill_walk, &l->order, l->fill_step.first);
    return true;
}

void *lf_loader_fill(void *arg)
{
    lf_loader *l = arg;
    uint64_t gen = 0;
    bool more = false;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        bool reseek = gen != l->gen;
        int64_t to = l->seek_to;
        if (!reseek && (!more || l->failed || l->made - l->used >= LF_LOADER_SLOTS - 1)) {
            pthread_cond_wait(&l->wake, &l->lock);
            continue;
        }
        gen = l->gen;
        lf_loader_batch *b = &l->slot[l->made % LF_LOADER_SLOTS];
        pthread_mutex_unlock(&l->lock);
        lf_err err = LF_ERR_INIT;
        int rc = 0;
        if (reseek)
            more = fill_place(l, true, to);
        if (more && (rc = fill_batch(l, b, &err)) == 0)
            rc = 1;
        pthread_mutex_lock(&l->lock);
        if (gen != l->gen || rc == 0)
            continue;
        if (rc < 0) {
            l->failed = true;
            l->failure = err;
        } else {
            l->made++;
            more = fill_place(l, false, 0);
        }
        pthread_cond_broadcast(&l->wake);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the caller's side ---- */

int lf_loader_seek(lf_loader *l, int64_t sample, lf_err *err)
{
    struct lf_stepper s;
    int rc = lf_stepper_seek(&s, &l->order, sample, err);
    if (rc < 0)
        return rc;
    l->step = s;
    l->cursor = sample;
    l->in_step = false;
    lf_walker_seek(&l->walk, &l->order, sample);
    pthread_mutex_lock(&l->lock);
    l->gen++;
    l->seek_to = sample;
    l->failed = false;
    l->used = l->made;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
    return 0;
}

static void count_tiles(const lf_loader *l, const struct lf_loader_src *s, uint64_t seq,
                        lf_loader_step *step)
{
    const uint32_t n = lf_pack_get(s->pack, seq, l->count_segs);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t tiles = 0;
        lf_shardset_patches(s->set, l->count_segs[i].doc, &tiles);
        step->units += (int64_t)tiles;
        step->trained += (int64_t)tiles;
    }
}

/* What is hidden of a sample: its row is made here, too. */
static int count_hidden(const lf_loader *l, size_t k, uint64_t seq, int64_t sample,
                        lf_loader_step *step, lf_err *err)
{
    const struct lf_loader_src *s = &l->src[k];
    const uint32_t n = lf_pack_get(s->pack, seq, l->count_segs);
    int32_t *tokens = l->count_row, *targets = tokens + l->T;
    struct lf_unit_part part[LF_UNIT_PARTS];
    int32_t at = 0;
    int paired = l->nsp ? lf_loader_pairs_count(l, s, n, sample, &at, &step->units, err) : 0;
    if (paired < 0)
        return lf_err_prefix(err, "sample %lld of the data order (%s)", (long long)sample, s->dir);
    for (uint32_t i = 0; i < n && !l->nsp; i++)
        for (int j = 0, parts = lf_units_parts(&s->units, &l->count_segs[i], part); j < parts;
             j++) {
            uint8_t *begins = l->count_begins ? l->count_begins + at : NULL;
            int rc = fill_hideable(l, s, &part[j].seg, tokens + at, targets + at, begins, err);
            if (rc < 0)
                return lf_err_prefix(err, "sample %lld of the data order (%s)", (long long)sample,
                                     s->dir);
            at += (int32_t)part[j].seg.len;
        }
    step->units += l->nsp ? 0 : at;
    for (; at < l->T; at++)
        targets[at] = -1;
    step->trained += hide(l, sample, tokens, targets, l->count_begins);
    return 0;
}

/* Adds what a sequence trains to a step. */
static int count_sequence(const lf_loader *l, size_t k, uint64_t seq, int64_t sample,
                          lf_loader_step *step, lf_err *err)
{
    const struct lf_loader_src *s = &l->src[k];
    struct lf_unit_part part[LF_UNIT_PARTS];
    uint32_t trained = 0;
    if (l->mlm)
        return count_hidden(l, k, seq, sample, step, err);
    if (l->seq2seq) {
        step->trained += lf_loader_seq2seq_trained(l, s, seq);
    } else if (l->mega) {
        step->trained += l->T;
    } else if (s->units.alone) {
        count_tiles(l, s, seq, step);
    } else if (!s->masked && s->units.rows == LF_ROWS_PLAIN) {
        lf_pack_tokens(s->pack, seq, &trained);
        step->trained += trained;
    } else {
        uint32_t n = lf_pack_get(s->pack, seq, l->count_segs);
        for (uint32_t i = 0; i < n; i++)
            for (int j = lf_units_parts(&s->units, &l->count_segs[i], part); j-- > 0;)
                step->trained += part[j].mismatched ? 0 : seg_trained(s, &part[j].seg);
        step->units += s->units.rows == LF_ROWS_PLAIN ? 0 : n;
    }
    return 0;
}

int lf_loader_begin_step(lf_loader *l, lf_loader_step *out, lf_err *err)
{
    if (l->in_step && l->micro < l->now.n_micro)
        return lf_fail(err, LF_EINVAL, "optimizer step %lld has used %d of its %d micro-batches",
                       (long long)l->now.number, l->micro, l->now.n_micro);
    if (!lf_stepper_settle(&l->step, &l->order))
        return 0;
    if (l->walk.sample != l->step.first)
        lf_walker_seek(&l->walk, &l->order, l->step.first);
    lf_loader_step s = {.number = l->step.number,
                        .first_sample = l->step.first,
                        .n_samples = l->step.n,
                        .n_micro = (int32_t)micros_of(l, l->step.n),
                        .next_sample = l->step.first + l->step.n};
    for (int64_t i = 0; i < s.n_samples; i++) {
        size_t k;
        uint64_t seq;
        lf_walker_next(&l->walk, &l->order, &k, &seq, NULL);
        int rc = count_sequence(l, k, seq, s.first_sample + i, &s, err);
        if (rc < 0)
            return rc;
    }
    lf_stepper_next(&l->step, &l->order);
    l->now = s;
    l->micro = 0;
    l->in_step = true;
    l->cursor = s.next_sample;
    *out = s;
    return 1;
}

int lf_loader_next(lf_loader *l, const lf_loader_batch **out, lf_err *err)
{
    if (!l->in_step || l->micro >= l->now.n_micro)
        return lf_fail(err, LF_EINVAL,
                       "no micro-batch left in the optimizer step; begin the next one");
    int rc = 0;
    const lf_loader_batch *b = NULL;
    pthread_mutex_lock(&l->lock);
    while (l->made == l->used && !l->failed)
        pthread_cond_wait(&l->wake, &l->lock);
    if (l->made == l->used) {
        rc = lf_fail(err, l->failure.rc, "%s", l->failure.text);
    } else {
        b = &l->slot[l->used++ % LF_LOADER_SLOTS];
        pthread_cond_broadcast(&l->wake);
    }
    pthread_mutex_unlock(&l->lock);
    if (rc < 0)
        return rc;
    if (b->step != l->now.number || b->micro != l->micro)
        LF_BUG("loader: micro-batch %lld.%d where %lld.%d was due", (long long)b->step, b->micro,
               (long long)l->now.number, l->micro);
    l->micro++;
    *out = b;
    return 0;
}

int64_t lf_loader_samples(const lf_loader *l)
{
    return l->order.n_samples;
}
int64_t lf_loader_cursor(const lf_loader *l)
{
    return l->cursor;
}
const char *lf_loader_order_id(const lf_loader *l)
{
    return l->order_id;
}
uint64_t lf_loader_source_samples(const lf_loader *l, size_t k)
{
    return l->order.n[k];
}
uint64_t lf_loader_units(const lf_loader *l, size_t k, uint64_t *dropped)
{
    *dropped = l->src[k].units.dropped;
    return l->src[k].units.n;
}
uint64_t lf_loader_left_out(const lf_loader *l, size_t k)
{
    return l->src[k].units.left_out;
}
void lf_loader_needs(const lf_loader *l, size_t k, uint64_t needs[LF_PACK_AXES])
{
    for (int i = 0; i < LF_PACK_AXES; i++)
        needs[i] = l->src[k].units.needs[i] * (uint64_t)l->B;
}
uint64_t lf_loader_cut(const lf_loader *l, size_t k)
{
    return l->src[k].units.cut;
}
const lf_shardset *lf_loader_set(const lf_loader *l, size_t k)
{
    return l->src[k].set;
}
const lf_shard_info *lf_loader_info(const lf_loader *l, size_t k)
{
    return lf_shardset_get_info(l->src[k].set);
}

/* ---- reports ---- */

static json_t *describe_segs(const lf_loader *l, size_t k, uint64_t seq, lf_pack_seg *segs)
{
    json_t *list = json_array();
    uint32_t n = lf_pack_get(l->src[k].pack, seq, segs);
    for (uint32_t i = 0; list && i < n; i++) {
        struct lf_unit_part part[LF_UNIT_PARTS];
        int parts = lf_units_parts(&l->src[k].units, &segs[i], part);
        for (int j = 0; j < parts; j++) {
            const lf_pack_seg *s = &part[j].seg;
            const char *file;
            uint64_t doc;
            lf_shardset_locate(l->src[k].set, s->doc, &file, &doc);
            json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "file", file, "doc",
                                                  (json_int_t)doc, "first", (json_int_t)s->first,
                                                  "len", (json_int_t)s->len));
        }
    }
    return list;
}

json_t *lf_loader_describe(const lf_loader *l, int64_t sample, lf_err *err)
{
    struct lf_walker w;
    size_t k;
    uint64_t seq, epoch;
    if (sample < 0 || sample >= l->order.n_samples) {
        lf_fail(err, LF_EINVAL, "there is no sample %lld in the data order", (long long)sample);
        return NULL;
    }
    lf_walker_seek(&w, &l->order, sample);
    lf_walker_next(&w, &l->order, &k, &seq, &epoch);
    const size_t most = l->mega ? 1 : lf_pack_max_segs(l->src[k].pack);
    lf_pack_seg *segs = lf_calloc(most, sizeof *segs, err);
    if (!segs)
        return NULL;
    json_t *list = l->mega ? lf_mega_describe(&l->mega[k], seq) : describe_segs(l, k, seq, segs);
    json_t *o = list ? json_pack("{s:I, s:s, s:I, s:I, s:o}", "sample", (json_int_t)sample,
                                 "source", l->src[k].dir, "epoch", (json_int_t)epoch, "sequence",
                                 (json_int_t)seq, "segments", list)
                     : NULL;
    free(segs);
    if (!o)
        lf_fail(err, LF_ENOMEM, "no memory to describe a sample");
    return o;
}

const lf_processor *lf_loader_processor(const lf_loader *l)
{
    return l->media.on ? &l->media.processor : NULL;
}
