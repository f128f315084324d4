/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling micro-batches in the order of order.c, ahead of their use.
 *
 * Two walkers go over the same order: the caller's (lf_loader_begin_step: counts, from the packing index alone) and the
 * filling thread's. Slots form a ring; `made` and `used` count micro-batches since the last seek.
 *   1. The thread writes slot made % SLOTS without the lock, only while made - used < SLOTS - 1: the slot handed out
 * last (used - 1) is never written to.
 *   2. A seek raises `gen`; the thread drops what it filled under an older one and takes its place from seek_to.
 *   3. A failure of the thread is kept and told by every lf_loader_next until the next seek.
 */
#include "engine/train/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/loader_priv.h"

#define SLOTS            3
#define DEFAULT_MAX_SEGS 256

struct source {
    lf_shardset *set;
    lf_pack *pack; /* NULL in Megatron's order */
    bool masked;
    char *dir;
    struct lf_units units;
};

struct lf_loader {
    struct lf_order order;
    struct source *src;
    struct lf_mega *mega; /* [n_sources] in Megatron's order, else NULL */
    lf_loader_ramp *ramp;
    int64_t *skip;
    int32_t T, B, max_segs, pad_token;
    int64_t dp_rank, dp_size;
    char order_id[LF_HASH_HEX];
    size_t bytes;

    /* the caller's side */
    struct lf_walker walk;
    struct lf_stepper step;
    lf_loader_step now;
    lf_pack_seg *count_segs;
    int32_t micro; /* of `now`, handed out so far */
    bool in_step;
    int64_t cursor;

    /* shared with the thread, under lock */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t gen, made, used;
    int64_t seek_to;
    bool quit, failed;
    lf_err failure;
    lf_loader_batch slot[SLOTS];

    /* the thread's own */
    struct lf_walker fill_walk;
    struct lf_stepper fill_step;
    int32_t fill_micro;
    lf_pack_seg *segs;
    int32_t *row; /* [T + 1], Megatron's order */
};

/* ---- filling ---- */

static int64_t micros_of(const lf_loader *l, int64_t n_samples)
{
    return lf_deal_count(n_samples, l->B, l->dp_rank, l->dp_size);
}

static void fill_positions(int32_t *positions, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        positions[i] = i;
}

/* Close the segment that ends at flattened position `end`. */
static void end_segment(lf_loader_batch *b, int32_t end)
{
    int32_t len = end - b->cu_seqlens[b->n_segs];
    b->max_seglen = len > b->max_seglen ? len : b->max_seglen;
    b->cu_seqlens[++b->n_segs] = end;
}

/* What segment `end` closes is. */
static void name_segment(lf_loader_batch *b, int64_t doc, size_t source, bool mismatched)
{
    b->seg_doc[b->n_segs] = doc;
    b->seg_source[b->n_segs] = (uint16_t)source;
    b->seg_mismatched[b->n_segs] = mismatched;
}

/* Targets of a segment: every token but its first, and the one behind it unless it ends its document. */
static uint32_t seg_trained(const struct source *src, const lf_pack_seg *s)
{
    uint32_t n = s->len - s->last;
    return src->masked ? (uint32_t)lf_shardset_count_trained(src->set, s->doc, s->first + 1, n) : n;
}

static int fill_segment(const struct source *src, const lf_pack_seg *s, int32_t *tokens, int32_t *targets, lf_err *err)
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

/* Row `row` of a micro-batch from one sequence; n_segs 0: all padding. */
static int fill_row(const lf_loader *l, lf_loader_batch *b, int32_t row, const struct source *src,
                    const lf_pack_seg *segs, uint32_t n_segs, lf_err *err)
{
    size_t base = (size_t)row * (size_t)l->T;
    int32_t at = 0;
    struct lf_unit_part part[LF_UNIT_PARTS];
    for (uint32_t k = 0; k < n_segs; k++) {
        int n = lf_units_parts(&src->units, &segs[k], part);
        for (int i = 0; i < n; i++) {
            int32_t *tokens = b->tokens + base + at, *targets = b->targets + base + at, len = (int32_t)part[i].seg.len;
            int rc = part[i].mismatched ? lf_units_fill_mismatched(&src->units, &part[i], tokens, targets, err)
                                        : fill_segment(src, &part[i].seg, tokens, targets, err);
            if (rc < 0)
                return rc;
            fill_positions(b->positions + base + at, len);
            at += len;
            b->trained += part[i].mismatched ? 0 : seg_trained(src, &part[i].seg);
            name_segment(b, (int64_t)part[i].seg.doc, (size_t)(src - l->src), part[i].mismatched);
            end_segment(b, (int32_t)base + at);
        }
    }
    if (at == l->T)
        return 0;
    name_segment(b, -1, 0, false);
    for (int32_t i = at; i < l->T; i++) {
        b->tokens[base + (size_t)i] = l->pad_token;
        b->targets[base + (size_t)i] = -1;
    }
    fill_positions(b->positions + base + at, l->T - at);
    end_segment(b, (int32_t)base + l->T);
    return 0;
}

/* The same from a sample of Megatron's: T tokens and the one after them. */
static int fill_row_mega(const lf_loader *l, lf_loader_batch *b, int32_t row, const struct lf_mega *m, uint64_t sample,
                         lf_err *err)
{
    size_t base = (size_t)row * (size_t)l->T, T = (size_t)l->T;
    int rc = lf_mega_read(m, sample, l->row, err);
    if (rc < 0)
        return rc;
    memcpy(b->tokens + base, l->row, T * sizeof *l->row);
    memcpy(b->targets + base, l->row + 1, T * sizeof *l->row);
    fill_positions(b->positions + base, l->T);
    b->trained += l->T;
    name_segment(b, -1, 0, false);
    end_segment(b, (int32_t)(base + T));
    return 0;
}

/* The next micro-batch of this rank: of every dp_size * B samples, the dp_rank-th B. */
static int fill_batch(lf_loader *l, lf_loader_batch *b, lf_err *err)
{
    int64_t unit = (int64_t)l->B * l->dp_size, lo = l->dp_rank * l->B, hi = lo + l->B;
    int64_t first = l->fill_step.first + l->fill_micro * unit;
    b->n_segs = b->max_seglen = 0;
    b->trained = 0;
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
        int rc = there && l->mega ? fill_row_mega(l, b, (int32_t)(i - lo), &l->mega[k], seq, err)
                                  : fill_row(l, b, (int32_t)(i - lo), &l->src[k], l->segs, n, err);
        if (rc < 0)
            return lf_err_prefix(err, "sample %lld of the data order (%s)", (long long)(first + i), l->src[k].dir);
    }
    for (int32_t i = b->n_segs + 1; i <= l->B * l->max_segs; i++)
        b->cu_seqlens[i] = l->B * l->T;
    return 0;
}

/* Take up a new place after a seek; false when the order ends there. Also moves to the next step when one is full. */
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
        return false; /* no micro-batch for this rank: in the last step of a validation only, see lf_order_check */
    /* Others had micro-batches in the last round and this rank had none: a short way, where a seek may be a long one.
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

static void *fill_thread(void *arg)
{
    lf_loader *l = arg;
    uint64_t gen = 0;
    bool more = false;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        bool reseek = gen != l->gen;
        int64_t to = l->seek_to;
        if (!reseek && (!more || l->failed || l->made - l->used >= SLOTS - 1)) {
            pthread_cond_wait(&l->wake, &l->lock);
            continue;
        }
        gen = l->gen;
        lf_loader_batch *b = &l->slot[l->made % SLOTS];
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

/* Adds what a sequence trains to a step. */
static void count_sequence(const lf_loader *l, size_t k, uint64_t seq, lf_loader_step *step)
{
    const struct source *s = &l->src[k];
    struct lf_unit_part part[LF_UNIT_PARTS];
    uint32_t trained = 0;
    if (l->mega) {
        step->trained += l->T;
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
        count_sequence(l, k, seq, &s);
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
        return lf_fail(err, LF_EINVAL, "no micro-batch left in the optimizer step; begin the next one");
    int rc = 0;
    const lf_loader_batch *b = NULL;
    pthread_mutex_lock(&l->lock);
    while (l->made == l->used && !l->failed)
        pthread_cond_wait(&l->wake, &l->lock);
    if (l->made == l->used) {
        rc = lf_fail(err, l->failure.rc, "%s", l->failure.text);
    } else {
        b = &l->slot[l->used++ % SLOTS];
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
size_t lf_loader_host_bytes(const lf_loader *l)
{
    return l->bytes;
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

/* ---- opening ---- */

static int check_config(const lf_loader_config *c, lf_err *err)
{
    if (c->n_sources < 1 || c->n_sources > LF_LOADER_MAX_SOURCES)
        return lf_fail(err, LF_EINVAL, "%zu datasets; 1 to %d are possible", c->n_sources, LF_LOADER_MAX_SOURCES);
    if (c->T < 2 || c->B < 1 || c->max_segs < 0 || (int64_t)c->B * c->T > INT32_MAX / 4)
        return lf_fail(err, LF_EINVAL, "a micro-batch of %d sequences of %d tokens is not possible", c->B, c->T);
    if (c->dp_size < 0 || c->dp_rank < 0 || c->dp_rank >= (c->dp_size ? c->dp_size : 1))
        return lf_fail(err, LF_EINVAL, "data-parallel rank %d of %d", c->dp_rank, c->dp_size);
    return 0;
}

static int32_t segs_of(int32_t T, int32_t max_segs)
{
    return max_segs ? max_segs : T < DEFAULT_MAX_SEGS ? T : DEFAULT_MAX_SEGS;
}

size_t lf_loader_slot_bytes(int32_t B, int32_t T, int32_t max_segs)
{
    size_t n = (size_t)B * (size_t)T, cu = (size_t)B * (size_t)segs_of(T, max_segs) + 1;
    const size_t seg = sizeof(int64_t) + sizeof(uint16_t) + sizeof(bool);
    return sizeof(lf_loader) + SLOTS * ((3 * n + cu) * sizeof(int32_t) + cu * seg + (size_t)B * sizeof(int64_t));
}

size_t lf_loader_index_bytes(enum lf_pack_policy policy, int32_t T, int32_t max_segs, uint64_t docs, uint64_t tokens)
{
    return lf_pack_bytes_most(policy, (uint32_t)T, (uint32_t)segs_of(T, max_segs), docs, tokens) +
           (size_t)(docs + 1) * sizeof(uint64_t);
}

/* Is there a token that is somebody's target? Almost always the first document has one. */
static bool any_target(const lf_shardset *set)
{
    uint64_t n = lf_shardset_get_info(set)->n_docs;
    for (uint64_t d = 0; d < n; d++) {
        uint64_t len = lf_shardset_doc_len(set, d);
        if (len > 1 && lf_shardset_count_trained(set, d, 1, len - 1) > 0)
            return true;
    }
    return false;
}

static int open_source(lf_loader *l, const lf_loader_config *c, size_t k, lf_err *err)
{
    struct source *s = &l->src[k];
    int rc;
    if (!(s->dir = lf_strdup(c->sources[k].dir, err)))
        return LF_ENOMEM;
    if ((rc = lf_shardset_open(&s->set, s->dir, c->split, err)) < 0)
        return rc;
    const lf_shard_info *info = lf_shardset_get_info(s->set), *first = lf_shardset_get_info(l->src[0].set);
    if (strcmp(info->tokenizer_sha256, first->tokenizer_sha256) != 0)
        return lf_fail(err, LF_EINVAL, "%s and %s were made with different tokenizers", l->src[0].dir, s->dir);
    if (c->vocab_size > 0 && info->vocab_size > c->vocab_size)
        return lf_fail(err, LF_EINVAL, "%s has a vocabulary of %lld, the model has %lld", s->dir,
                       (long long)info->vocab_size, (long long)c->vocab_size);
    s->masked = lf_shardset_has_mask(s->set);
    if (s->masked && c->mode == LF_LOADER_TRAIN && !any_target(s->set))
        return lf_fail(err, LF_EINVAL, "%s: not one token of its %s split is trained (its loss mask leaves all out)", s->dir,
                       c->split);
    if (c->megatron)
        return s->masked ? lf_fail(err, LF_EINVAL, "%s has a loss mask, which Megatron's order does not know", s->dir)
                         : 0;
    if ((rc = lf_units_open(&s->units, s->set, c->rows, c->mismatched, (uint32_t)c->T, s->dir, err)) < 0)
        return rc;
    rc = lf_pack_build(&s->pack, c->rows == LF_ROWS_PLAIN ? c->policy : LF_PACK_BFD, (uint32_t)c->T,
                       lf_units_bound(&s->units, (uint32_t)l->max_segs), s->units.n, lf_units_len, &s->units, err);
    if (rc < 0)
        return rc;
    l->order.n[k] = lf_pack_count(s->pack);
    l->bytes += lf_pack_bytes(s->pack) + (size_t)(info->n_docs + 1) * sizeof(uint64_t);
    if (l->order.n[k] == 0)
        return lf_fail(err, LF_EINVAL, "%s: its %s split holds no tokens%s", s->dir, c->split,
                       s->units.dropped ? " in units of at most seq_length" : "");
    return 0;
}

/* How many sequences of the validation order hold max_tokens. */
static int64_t valid_samples(const lf_loader *l, int64_t max_tokens)
{
    int64_t n = 0, tokens = 0;
    for (size_t k = 0; k < l->order.n_sources; k++)
        for (uint64_t i = 0; i < l->order.n[k]; i++, n++) {
            if (max_tokens > 0 && tokens >= max_tokens)
                return n;
            tokens += lf_pack_tokens(l->src[k].pack, i, NULL);
        }
    return n;
}

static int cmp_i64(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static int open_mega(lf_loader *l, const lf_loader_config *c, lf_err *err)
{
    const lf_shardset *sets[LF_LOADER_MAX_SOURCES];
    if (c->mode != LF_LOADER_TRAIN)
        return lf_fail(err, LF_EINVAL, "validation is not in Megatron's order");
    if (!(l->mega = lf_calloc(c->n_sources, sizeof *l->mega, err)) ||
        !(l->row = lf_calloc((size_t)l->T + 1, sizeof *l->row, err)))
        return LF_ENOMEM;
    for (size_t k = 0; k < c->n_sources; k++)
        sets[k] = l->src[k].set;
    int rc = lf_mega_open_all(l->mega, &l->order, sets, c, err);
    for (size_t k = 0; k < c->n_sources; k++)
        l->bytes += lf_mega_bytes(&l->mega[k]);
    return rc;
}

static int open_order(lf_loader *l, const lf_loader_config *c, lf_err *err)
{
    struct lf_order *o = &l->order;
    double weight[LF_LOADER_MAX_SOURCES] = {0};
    bool valid = c->mode == LF_LOADER_VALID;
    int rc;
    o->mode = c->mode;
    o->seed = c->seed;
    o->n_samples = valid ? valid_samples(l, c->max_tokens) : (int64_t)1 << 62;
    for (size_t k = 0; k < c->n_sources; k++)
        weight[k] = valid ? 1 : c->sources[k].weight;
    if ((rc = c->megatron ? open_mega(l, c, err) : lf_blend_weights(o->w, &o->total, weight, c->n_sources, err)) < 0)
        return rc;
    o->n_ramp = valid ? 1 : c->n_ramp;
    o->n_skip = valid ? 0 : c->n_skip;
    if (!(l->ramp = lf_calloc(o->n_ramp, sizeof *l->ramp, err)) ||
        !(l->skip = lf_calloc(o->n_skip, sizeof *l->skip, err)))
        return LF_ENOMEM;
    if (valid)
        l->ramp[0] = (lf_loader_ramp){0, (int64_t)l->B * l->dp_size};
    else if (o->n_ramp)
        memcpy(l->ramp, c->ramp, o->n_ramp * sizeof *l->ramp);
    if (o->n_skip)
        memcpy(l->skip, c->skip, o->n_skip * sizeof *l->skip);
    qsort(l->skip, o->n_skip, sizeof *l->skip, cmp_i64);
    o->ramp = l->ramp;
    o->skip = l->skip;
    return lf_order_check(o, l->B, l->dp_size, err);
}

static int make_order_id(lf_loader *l, const lf_loader_config *c, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char text[256];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    snprintf(text, sizeof text, "lf-order-1 mode %d T %d policy %d segs %d seed %llu total %u", (int)c->mode, c->T,
             (int)c->policy, l->max_segs, (unsigned long long)c->seed, l->order.total);
    lf_hash_update(h, text, strlen(text) + 1);
    if (c->policy == LF_PACK_BFD) /* the second way of breaking ties: its sequences are not those of the first */
        lf_hash_update(h, "ties 2", sizeof "ties 2");
    if (c->rows != LF_ROWS_PLAIN) {
        snprintf(text, sizeof text, "rows %s mismatched %d", lf_rows_name(c->rows), c->mismatched);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    if (c->megatron) {
        const lf_loader_megatron *m = c->megatron;
        snprintf(text, sizeof text, "megatron seed %u samples %lld surplus %a weighted %d split %.100s", m->seed,
                 (long long)m->samples, m->surplus, m->weighted, m->split);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    for (size_t k = 0; k < c->n_sources; k++) {
        lf_hash_update(h, lf_shardset_id(l->src[k].set), LF_HASH_BYTES);
        if (c->megatron)
            snprintf(text, sizeof text, "%a", l->order.mw[k]);
        else
            snprintf(text, sizeof text, "%u", l->order.w[k]);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    lf_hash_final(h, digest);
    lf_hash_destroy(h);
    lf_hash_hex(l->order_id, digest);
    return 0;
}

static int alloc_slots(lf_loader *l, lf_err *err)
{
    size_t n = (size_t)l->B * (size_t)l->T, cu = (size_t)l->B * (size_t)l->max_segs + 1;
    for (int i = 0; i < SLOTS; i++) {
        lf_loader_batch *b = &l->slot[i];
        *b = (lf_loader_batch){.B = l->B, .T = l->T, .max_segs = l->max_segs};
        if (!(b->tokens = lf_calloc(n, sizeof *b->tokens, err)) ||
            !(b->targets = lf_calloc(n, sizeof *b->targets, err)) ||
            !(b->positions = lf_calloc(n, sizeof *b->positions, err)) ||
            !(b->cu_seqlens = lf_calloc(cu, sizeof *b->cu_seqlens, err)) ||
            !(b->seg_doc = lf_calloc(cu, sizeof *b->seg_doc, err)) ||
            !(b->seg_source = lf_calloc(cu, sizeof *b->seg_source, err)) ||
            !(b->seg_mismatched = lf_calloc(cu, sizeof *b->seg_mismatched, err)) ||
            !(b->sample_ids = lf_calloc((size_t)l->B, sizeof *b->sample_ids, err)))
            return LF_ENOMEM;
    }
    l->segs = lf_calloc((size_t)l->max_segs, sizeof *l->segs, err);
    l->count_segs = lf_calloc((size_t)l->max_segs, sizeof *l->segs, err);
    return l->segs && l->count_segs ? 0 : LF_ENOMEM;
}

/* Signals are for the main thread. */
static int start_thread(lf_loader *l, lf_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&l->thread, NULL, fill_thread, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e)
        return lf_fail(err, LF_ENOMEM, "cannot start the loader's thread: %s", strerror(e));
    l->started = true;
    return 0;
}

int lf_loader_open(lf_loader **out, const lf_loader_config *c, lf_err *err)
{
    int rc = check_config(c, err);
    if (rc < 0)
        return rc;
    lf_loader *l = lf_calloc(1, sizeof *l, err);
    if (!l)
        return LF_ENOMEM;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    l->T = c->T;
    l->B = c->B;
    l->max_segs = segs_of(c->T, c->max_segs);
    l->dp_rank = c->dp_rank;
    l->dp_size = c->dp_size ? c->dp_size : 1;
    l->bytes = lf_loader_slot_bytes(l->B, l->T, l->max_segs);
    rc = LF_ENOMEM;
    if (!(l->src = lf_calloc(c->n_sources, sizeof *l->src, err)))
        goto out;
    for (size_t k = 0; k < c->n_sources; k++) {
        l->order.n_sources = k + 1;
        if ((rc = open_source(l, c, k, err)) < 0)
            goto out;
    }
    int64_t eos = lf_shardset_get_info(l->src[0].set)->eos_id;
    l->pad_token = eos < 0 ? 0 : (int32_t)eos;
    if ((rc = open_order(l, c, err)) < 0 || (rc = make_order_id(l, c, err)) < 0 || (rc = alloc_slots(l, err)) < 0 ||
        (rc = lf_loader_seek(l, 0, err)) < 0 || (rc = start_thread(l, err)) < 0)
        goto out;
    *out = l;
    l = NULL;
out:
    lf_loader_close(l);
    return rc;
}

void lf_loader_close(lf_loader *l)
{
    if (!l)
        return;
    if (l->started) {
        pthread_mutex_lock(&l->lock);
        l->quit = true;
        pthread_cond_broadcast(&l->wake);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    for (int i = 0; i < SLOTS; i++) {
        free(l->slot[i].tokens);
        free(l->slot[i].targets);
        free(l->slot[i].positions);
        free(l->slot[i].cu_seqlens);
        free(l->slot[i].seg_doc);
        free(l->slot[i].seg_source);
        free(l->slot[i].seg_mismatched);
        free(l->slot[i].sample_ids);
    }
    for (size_t k = 0; l->src && k < l->order.n_sources; k++) {
        lf_pack_destroy(l->src[k].pack);
        lf_units_fini(&l->src[k].units);
        lf_shardset_close(l->src[k].set);
        free(l->src[k].dir);
    }
    for (size_t k = 0; l->mega && k < l->order.n_sources; k++)
        lf_mega_fini(&l->mega[k]);
    free(l->mega);
    free(l->row);
    free(l->count_segs);
    free(l->src);
    free(l->ramp);
    free(l->skip);
    free(l->segs);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
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
            json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "file", file, "doc", (json_int_t)doc, "first",
                                                  (json_int_t)s->first, "len", (json_int_t)s->len));
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
    lf_pack_seg *segs = lf_calloc((size_t)l->max_segs, sizeof *segs, err);
    if (!segs)
        return NULL;
    lf_walker_seek(&w, &l->order, sample);
    lf_walker_next(&w, &l->order, &k, &seq, &epoch);
    json_t *list = l->mega ? lf_mega_describe(&l->mega[k], seq) : describe_segs(l, k, seq, segs);
    json_t *o = list ? json_pack("{s:I, s:s, s:I, s:I, s:o}", "sample", (json_int_t)sample, "source", l->src[k].dir,
                                 "epoch", (json_int_t)epoch, "sequence", (json_int_t)seq, "segments", list)
                     : NULL;
    free(segs);
    if (!o)
        lf_fail(err, LF_ENOMEM, "no memory to describe a sample");
    return o;
}
