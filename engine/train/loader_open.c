/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the loader: its sources, the order of samples and that order's name, slots, the thread;
 * and closing it. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/loader_priv.h"

/* As it was asked for; the order's name has it. */
static int32_t asked_segs(const lf_loader_config *c)
{
    return c->max_segs ? c->max_segs : c->T < LF_LOADER_SEGS ? c->T : LF_LOADER_SEGS;
}

int32_t lf_loader_segs(const lf_loader_config *c)
{
    if (lf_loader_corrupts(c)) /* a text and padding */
        return 2;
    if (lf_loader_splits(c)) /* padding besides, on whichever axis */
        return asked_segs(c) + 1;
    int32_t least = lf_units_most_parts(c->rows, c->mismatched) + 1, asked = asked_segs(c);
    least = least < c->T ? least : c->T; /* a segment has a token */
    return asked < least ? least : asked;
}

int lf_loader_check(const lf_loader_config *c, lf_err *err)
{
    if (c->n_sources < 1 || c->n_sources > LF_LOADER_MAX_SOURCES)
        return lf_fail(err, LF_EINVAL, "%zu datasets; 1 to %d are possible", c->n_sources,
                       LF_LOADER_MAX_SOURCES);
    if (c->T < 2 || c->B < 1 || c->max_segs < 0 || (int64_t)c->B * c->T > INT32_MAX / 4)
        return lf_fail(err, LF_EINVAL, "a micro-batch of %d sequences of %d tokens is not possible",
                       c->B, c->T);
    int rc = lf_loader_seq2seq_check(c, err);
    if (rc != 0)
        return rc;
    const lf_loader_config index = lf_loader_index_config(c);
    if (!c->megatron && lf_units_bound(&index) > (uint32_t)index.T)
        return lf_fail(err, LF_EINVAL, "max_docs = %d: a sequence of %d tokens can hold 1 to %lld",
                       c->max_segs, index.T,
                       (long long)index.T * lf_units_most_parts(c->rows, c->mismatched));
    if (c->mlm && (c->megatron || c->max_patches || c->rows != LF_ROWS_PLAIN))
        return lf_fail(err, LF_EINVAL, "tokens are hidden in plain documents, without %s",
                       c->megatron ? "sample_order = megatron" : "pictures");
    rc = c->mlm ? lf_mlm_check(c->mlm, c->vocab_size, err) : 0;
    if (rc == 0)
        rc = lf_loader_pairs_check(c, err);
    if (rc != 0)
        return rc;
    if (c->max_patches && c->megatron)
        return lf_fail(err, LF_EINVAL, "Megatron's order knows no pictures");
    if (c->max_patches && c->patch_bytes < 3)
        return lf_fail(err, LF_EINVAL,
                       "max_patches = %d, but the model sees no pictures ([model] has no "
                       "vision.family)",
                       c->max_patches);
    if (c->max_patches && (c->max_patches < c->B || c->max_tiles < c->B))
        return lf_fail(err, LF_EINVAL,
                       "a micro-batch of %d sequences with at most %d patches and %d tiles of "
                       "pictures; each has room for at least one",
                       c->B, c->max_patches, c->max_tiles);
    if (c->dp_size < 0 || c->dp_rank < 0 || c->dp_rank >= (c->dp_size ? c->dp_size : 1))
        return lf_fail(err, LF_EINVAL, "data-parallel rank %d of %d", c->dp_rank, c->dp_size);
    return 0;
}

static size_t n_ramp(const lf_loader_config *c)
{
    return c->mode == LF_LOADER_VALID ? 1 : c->n_ramp;
}

static size_t n_skip(const lf_loader_config *c)
{
    return c->mode == LF_LOADER_VALID ? 0 : c->n_skip;
}

static bool whole_words(const lf_loader_config *c)
{
    return c->mlm && c->mlm->whole_words;
}

/* Everything below that lf_loader_open takes with take(). */
size_t lf_loader_slot_bytes(const lf_loader_config *c)
{
    const size_t B = (size_t)c->B, T = (size_t)c->T, segs = (size_t)lf_loader_segs(c);
    const size_t seg = sizeof(int32_t) + sizeof(int64_t) + sizeof(uint16_t) + sizeof(bool) +
                       (c->nsp ? sizeof(int8_t) : 0);
    const size_t media = lf_loader_media_bytes(c);
    const lf_loader_config index = lf_loader_index_config(c);
    const size_t source =
        c->seq2seq ? 2 * B * (size_t)c->seq2seq->source_length + (B * segs + 1) : 0;
    const size_t slot =
        media + (3 * B * T + source) * sizeof(int32_t) + (B * segs + 1) * seg + B * sizeof(int64_t);
    const size_t text = lf_loader_corrupts(c) ? 4 * (size_t)index.T + 2 : 0;
    const size_t row =
        ((c->megatron ? T + 1 : 0) + (c->mlm ? 2 * T : 0) + (c->nsp ? 2 * T : 0) + text) *
            sizeof(int32_t) +
        (whole_words(c) ? 2 * T : 0);
    const size_t one = sizeof(struct lf_loader_src) + (c->megatron ? sizeof(struct lf_mega) : 0);
    const size_t order = n_ramp(c) * sizeof(lf_loader_ramp) + n_skip(c) * sizeof(int64_t);
    return sizeof(lf_loader) + c->n_sources * one + row + order + LF_LOADER_SLOTS * slot +
           2 * (size_t)lf_loader_segs(&index) * sizeof(lf_pack_seg);
}

/* axes: units weigh something on others besides tokens. */
static enum lf_pack_policy policy_of(const lf_loader_config *c, bool axes)
{
    return axes ? LF_PACK_FFD : c->rows == LF_ROWS_PLAIN ? c->policy : LF_PACK_BFD;
}

size_t lf_loader_index_bytes(const lf_loader_config *all, uint64_t docs, uint64_t tokens)
{
    const lf_loader_config index = lf_loader_index_config(all), *c = &index;
    if (c->pictures)
        tokens = docs * (uint64_t)c->T;
    uint64_t units = c->rows == LF_ROWS_PAIRS ? docs / 2 : docs;
    if (c->rows == LF_ROWS_UNPAIRED && c->mismatched)
        tokens *= 2; /* each prompt and each answer is in two segments */
    const uint32_t T = (uint32_t)c->T, bound = lf_units_bound(c);
    size_t most = lf_pack_bytes_most(policy_of(c, lf_loader_splits(c)), T, bound, units, tokens);
    if (c->max_patches) { /* not every source need have pictures */
        size_t n = lf_pack_bytes_most(LF_PACK_FFD, T, bound, units, tokens);
        most = n > most ? n : most;
    }
    return most + lf_units_bytes(c, docs);
}

/* A zeroed block of the loader's own, counted. */
static void *take(lf_loader *l, size_t n, size_t size, lf_err *err)
{
    void *p = lf_calloc(n, size, err);
    l->bytes += p ? n * size : 0;
    return p;
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

/* Is a set packed as one with pictures? Those that were prepared for them are: whether there are
 * any does not change the order. */
static bool packs_pictures(const lf_loader_config *c, const lf_shardset *set)
{
    return c->max_patches && lf_shardset_get_info(set)->processor;
}

static int open_pack(struct lf_loader_src *s, const lf_loader_config *all, lf_err *err)
{
    const lf_loader_config index = lf_loader_index_config(all), *c = &index;
    /* pictures alone are as good of prompts, whose text is not read either */
    const bool prompts = lf_shardset_get_info(s->set)->rows == LF_ROWS_PROMPTS;
    const enum lf_rows rows =
        c->pictures && c->rows == LF_ROWS_PLAIN && prompts ? LF_ROWS_PROMPTS : c->rows;
    int rc = lf_units_open(&s->units, s->set, rows, c->mismatched, (uint32_t)c->T, s->dir, err);
    if (rc < 0)
        return rc;
    const bool pictures = packs_pictures(c, s->set);
    struct lf_pack_docs docs = {.n = s->units.n, .len = lf_units_len, .user = &s->units};
    if (lf_loader_splits(c) && (rc = lf_units_split(&s->units, c, err)) < 0)
        return rc;
    if (pictures)
        lf_units_media(&s->units, c);
    const bool axes = pictures || lf_loader_splits(c);
    if (axes) {
        docs.weigh = lf_units_weigh;
        memcpy(docs.most, s->units.most, sizeof docs.most);
    }
    return lf_pack_build(&s->pack, policy_of(c, axes), (uint32_t)c->T, lf_units_bound(c), &docs,
                         err);
}

static int open_media(lf_loader *l, const lf_loader_config *c, const struct lf_loader_src *s,
                      lf_err *err)
{
    int rc = lf_loader_media_source(&l->media, &l->media.on, s->set, s->dir, err);
    if (rc == 0 && lf_shardset_sees(s->set))
        rc = lf_loader_media_check(&l->media, c, s->dir, err);
    if (rc == 0 && lf_shardset_sees(s->set) && c->features)
        rc = lf_loader_media_featured(&l->media, s->set, s->dir, err);
    size_t most = lf_shardset_picture_most(s->set);
    l->media.file_bytes = most > l->media.file_bytes ? most : l->media.file_bytes;
    return rc;
}

static int open_source(lf_loader *l, const lf_loader_config *c, size_t k, lf_err *err)
{
    struct lf_loader_src *s = &l->src[k];
    int rc;
    if (!(s->dir = lf_strdup(c->sources[k].dir, err)))
        return LF_ENOMEM;
    if ((rc = lf_shardset_open(&s->set, s->dir, c->split, err)) < 0)
        return rc;
    const lf_shard_info *info = lf_shardset_get_info(s->set),
                        *first = lf_shardset_get_info(l->src[0].set);
    if (!c->pictures && strcmp(info->tokenizer_sha256, first->tokenizer_sha256) != 0)
        return lf_fail(err, LF_EINVAL, "%s and %s were made with different tokenizers",
                       l->src[0].dir, s->dir);
    if (c->vocab_size > 0 && info->vocab_size > c->vocab_size)
        return lf_fail(err, LF_EINVAL, "%s has a vocabulary of %lld, the model has %lld", s->dir,
                       (long long)info->vocab_size, (long long)c->vocab_size);
    s->masked = lf_shardset_has_mask(s->set);
    if (c->pictures && !lf_shardset_sees(s->set))
        return lf_fail(err, LF_EINVAL,
                       "%s has no pictures, which are what is trained on here: make it with a "
                       "processor",
                       s->dir);
    if (s->masked && !c->pictures && c->rows != LF_ROWS_PROMPTS && c->mode == LF_LOADER_TRAIN &&
        !any_target(s->set))
        return lf_fail(
            err, LF_EINVAL,
            "%s: not one token of its %s split is trained (its loss mask leaves all out)", s->dir,
            c->split);
    if ((rc = open_media(l, c, s, err)) < 0 || (rc = lf_loader_seq2seq_source(l, s, err)) < 0 ||
        (rc = lf_loader_pairs_source(c, s, err)) < 0)
        return rc;
    if (c->megatron)
        return s->masked
                   ? lf_fail(err, LF_EINVAL,
                             "%s has a loss mask, which Megatron's order does not know", s->dir)
                   : 0;
    if ((rc = open_pack(s, c, err)) < 0)
        return rc;
    l->order.n[k] = lf_pack_count(s->pack);
    l->index_bytes += lf_pack_bytes(s->pack) + lf_units_bytes(c, info->n_docs);
    if (l->order.n[k] == 0)
        return lf_fail(err, LF_EINVAL, "%s: its %s split holds no %s%s", s->dir, c->split,
                       c->pictures ? "pictures" : "tokens",
                       s->units.dropped    ? " in units of at most seq_length"
                       : s->units.split    ? " in documents that have a source of at most "
                                             "source_length tokens and a target of at most "
                                             "seq_length"
                       : c->pictures       ? " in documents with as many patches as a row may have"
                       : s->units.left_out ? " in documents that a sequence holds, of at most "
                                             "seq_length tokens and with as many patches as it may"
                                           : "");
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
    if (!(l->mega = take(l, c->n_sources, sizeof *l->mega, err)) ||
        !(l->row = take(l, (size_t)l->T + 1, sizeof *l->row, err)))
        return LF_ENOMEM;
    for (size_t k = 0; k < c->n_sources; k++)
        sets[k] = l->src[k].set;
    int rc = lf_mega_open_all(l->mega, &l->order, sets, c, err);
    for (size_t k = 0; k < c->n_sources; k++)
        l->index_bytes += lf_mega_bytes(&l->mega[k]);
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
    o->repeats = !valid && c->repeats > 1 ? (uint32_t)c->repeats : 1;
    o->n_samples = valid ? valid_samples(l, c->max_tokens) : (int64_t)1 << 62;
    for (size_t k = 0; k < c->n_sources; k++)
        weight[k] = valid ? 1 : c->sources[k].weight;
    if ((rc = c->megatron ? open_mega(l, c, err)
                          : lf_blend_weights(o->w, &o->total, weight, c->n_sources, err)) < 0)
        return rc;
    o->n_ramp = n_ramp(c);
    o->n_skip = n_skip(c);
    if (!(l->ramp = take(l, o->n_ramp, sizeof *l->ramp, err)) ||
        !(l->skip = take(l, o->n_skip, sizeof *l->skip, err)))
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

static bool any_packs_pictures(const lf_loader *l, const lf_loader_config *c)
{
    bool any = false;
    for (size_t k = 0; k < c->n_sources && !any; k++)
        any = packs_pictures(c, l->src[k].set);
    return any;
}

static void hash_seq2seq(lf_hash *h, const lf_loader_config *c)
{
    const lf_seq2seq *s = c->seq2seq;
    char text[256];
    snprintf(text, sizeof text,
             "seq2seq %d source %d start %d share %a mean %a sentinels %d from %d mask %d begin %d",
             (int)s->kind, s->source_length, c->decoder_start, s->share, s->mean, s->n_sentinels,
             s->sentinel, s->mask_token, s->begin);
    lf_hash_update(h, text, strlen(text) + 1);
    if (s->random > 0) {
        snprintf(text, sizeof text, "random %a", s->random);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    if (s->words) {
        lf_hash_update(h, "whole words", sizeof "whole words");
        lf_hash_update(h, s->words->marks, s->words->n_marks);
    }
    for (size_t i = 0; i < s->n_ends; i++) {
        snprintf(text, sizeof text, "ends %d", s->ends[i]);
        lf_hash_update(h, text, strlen(text) + 1);
    }
}

static void hash_nsp(lf_hash *h, const lf_nsp *p)
{
    char text[64];
    snprintf(text, sizeof text, "nsp begin %d separator %d", p->begin, p->separator);
    lf_hash_update(h, text, strlen(text) + 1);
    for (size_t i = 0; i < p->n_ends; i++) {
        snprintf(text, sizeof text, "ends %d", p->ends[i]);
        lf_hash_update(h, text, strlen(text) + 1);
    }
}

static int make_order_id(lf_loader *l, const lf_loader_config *c, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char text[256];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    snprintf(text, sizeof text, "lf-order-1 mode %d T %d policy %d segs %d seed %llu total %u",
             (int)c->mode, c->T, (int)c->policy, asked_segs(c), (unsigned long long)c->seed,
             l->order.total);
    lf_hash_update(h, text, strlen(text) + 1);
    if (c->policy ==
        LF_PACK_BFD) /* the second way of breaking ties: its sequences are not those of the first */
        lf_hash_update(h, "ties 2", sizeof "ties 2");
    if (c->rows != LF_ROWS_PLAIN) {
        snprintf(text, sizeof text, "rows %s mismatched %d", lf_rows_name(c->rows), c->mismatched);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    if (c->megatron) {
        const lf_loader_megatron *m = c->megatron;
        snprintf(text, sizeof text,
                 "megatron seed %u samples %lld surplus %a weighted %d split %.100s", m->seed,
                 (long long)m->samples, m->surplus, m->weighted, m->split);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    if (any_packs_pictures(l, c)) {
        uint32_t most[LF_PACK_AXES];
        lf_units_most(c, most);
        snprintf(text, sizeof text, "pictures%s patches %u tiles %u", c->pictures ? " alone" : "",
                 most[0], most[1]);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    if (c->mlm) {
        snprintf(text, sizeof text, "mlm share %a random %a kept %a token %d of %lld",
                 c->mlm->share, c->mlm->random, c->mlm->kept, c->mlm->mask_token,
                 (long long)l->mlm_vocab);
        lf_hash_update(h, text, strlen(text) + 1);
        for (size_t i = 0; i < c->mlm->n_spared; i++) {
            snprintf(text, sizeof text, "spared %d", c->mlm->spared[i]);
            lf_hash_update(h, text, strlen(text) + 1);
        }
        if (c->mlm->whole_words) {
            lf_hash_update(h, "whole words", sizeof "whole words");
            lf_hash_update(h, c->mlm->marks, c->mlm->n_marks);
        }
    }
    if (c->nsp)
        hash_nsp(h, c->nsp);
    if (c->seq2seq)
        hash_seq2seq(h, c);
    if (l->order.repeats > 1) {
        snprintf(text, sizeof text, "repeats %u", l->order.repeats);
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

/* What lf_loader_media_bytes counts. */
static int alloc_media(lf_loader *l, const lf_loader_config *c, lf_media_batch *m, lf_err *err)
{
    const int32_t side = l->media.processor.patches.side;
    const size_t tiles = (size_t)c->max_tiles;
    m->row_bytes = 3 * side * side;
    m->tile = take(l, tiles, sizeof *m->tile, err);
    m->picture = take(l, tiles, sizeof *m->picture, err);
    if (c->encoded_bytes)
        m->encoded = take(l, (size_t)c->max_encoded, (size_t)c->encoded_bytes, err);
    else
        m->patches = take(l, (size_t)c->max_patches, (size_t)c->patch_bytes, err);
    m->encoded_bytes = c->encoded_bytes;
    return m->tile && m->picture && (m->patches || m->encoded) ? 0 : LF_ENOMEM;
}

static int alloc_source(lf_loader *l, lf_loader_batch *b, size_t cu, lf_err *err)
{
    if (!l->seq2seq)
        return 0;
    b->S = l->seq2seq->source_length;
    const size_t n = (size_t)l->B * (size_t)b->S;
    b->source_tokens = take(l, n, sizeof *b->source_tokens, err);
    b->source_positions = take(l, n, sizeof *b->source_positions, err);
    b->source_cu_seqlens = take(l, cu, sizeof *b->source_cu_seqlens, err);
    return b->source_tokens && b->source_positions && b->source_cu_seqlens ? 0 : LF_ENOMEM;
}

/* The scratch of corrupted texts. */
static int alloc_text(lf_loader *l, lf_err *err)
{
    if (!l->text)
        return 0;
    l->row = take(l, (size_t)l->text, sizeof *l->row, err);
    l->work = take(l, 3 * (size_t)l->text + 2, sizeof *l->work, err);
    return l->row && l->work ? 0 : LF_ENOMEM;
}

static int alloc_slots(lf_loader *l, const lf_loader_config *c, lf_err *err)
{
    size_t n = (size_t)l->B * (size_t)l->T, cu = (size_t)l->B * (size_t)l->max_segs + 1;
    for (int i = 0; i < LF_LOADER_SLOTS; i++) {
        lf_loader_batch *b = &l->slot[i];
        *b = (lf_loader_batch){.B = l->B, .T = l->T, .max_segs = l->max_segs};
        if (!(b->tokens = take(l, n, sizeof *b->tokens, err)) ||
            !(b->targets = take(l, n, sizeof *b->targets, err)) ||
            !(b->positions = take(l, n, sizeof *b->positions, err)) ||
            !(b->cu_seqlens = take(l, cu, sizeof *b->cu_seqlens, err)) ||
            !(b->seg_doc = take(l, cu, sizeof *b->seg_doc, err)) ||
            !(b->seg_source = take(l, cu, sizeof *b->seg_source, err)) ||
            !(b->seg_mismatched = take(l, cu, sizeof *b->seg_mismatched, err)) ||
            (l->nsp && !(b->seg_nsp = take(l, cu, sizeof *b->seg_nsp, err))) ||
            !(b->sample_ids = take(l, (size_t)l->B, sizeof *b->sample_ids, err)) ||
            alloc_media(l, c, &b->media, err) < 0 || alloc_source(l, b, cu, err) < 0)
            return LF_ENOMEM;
    }
    /* not planned: its length is the data's, and small beside a slot */
    if (l->media.on && !(l->media.file = lf_malloc(l->media.file_bytes + 1, 1, err)))
        return LF_ENOMEM;
    const lf_loader_config index = lf_loader_index_config(c);
    const size_t segs = (size_t)lf_loader_segs(&index);
    l->segs = take(l, segs, sizeof *l->segs, err);
    l->count_segs = take(l, segs, sizeof *l->segs, err);
    l->count_row = take(l,
                        (size_t)(c->nsp   ? 3
                                 : c->mlm ? 2
                                          : 0) *
                            (size_t)l->T,
                        sizeof *l->count_row, err);
    if (l->nsp && !(l->row = take(l, (size_t)l->T, sizeof *l->row, err)))
        return LF_ENOMEM;
    if (whole_words(c) && (!(l->begins = take(l, (size_t)l->T, sizeof *l->begins, err)) ||
                           !(l->count_begins = take(l, (size_t)l->T, sizeof *l->begins, err))))
        return LF_ENOMEM;
    return l->segs && l->count_segs && l->count_row ? alloc_text(l, err) : LF_ENOMEM;
}

/* Signals are for the main thread. */
static int start_thread(lf_loader *l, lf_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&l->thread, NULL, lf_loader_fill, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e)
        return lf_fail(err, LF_ENOMEM, "cannot start the loader's thread: %s", strerror(e));
    l->started = true;
    return 0;
}

int lf_loader_open(lf_loader **out, const lf_loader_config *c, lf_err *err)
{
    int rc = lf_loader_check(c, err);
    if (rc < 0)
        return rc;
    if (c->encoded_bytes && !c->features)
        LF_BUG("a loader of features without any, of %s", c->sources[0].dir);
    lf_loader *l = lf_calloc(1, sizeof *l, err);
    if (!l)
        return LF_ENOMEM;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    l->T = c->T;
    l->B = c->B;
    l->max_segs = lf_loader_segs(c);
    l->dp_rank = c->dp_rank;
    l->dp_size = c->dp_size ? c->dp_size : 1;
    l->bytes = sizeof *l;
    l->media.max_patches = c->max_patches;
    l->media.max_tiles = c->max_tiles;
    l->media.alone = c->pictures;
    l->media.augment = c->mode == LF_LOADER_TRAIN ? c->augment : NULL;
    l->media.features = c->features;
    l->media.max_encoded = c->max_encoded;
    l->mlm = c->mlm;
    l->nsp = c->nsp;
    l->seq2seq = c->seq2seq;
    l->decoder_start = c->decoder_start;
    l->text = lf_loader_corrupts(c) ? lf_seq2seq_text(c->seq2seq, c->T) : 0;
    rc = LF_ENOMEM;
    if (!(l->src = take(l, c->n_sources, sizeof *l->src, err)))
        goto out;
    for (size_t k = 0; k < c->n_sources; k++) {
        l->order.n_sources = k + 1;
        if ((rc = open_source(l, c, k, err)) < 0)
            goto out;
    }
    int64_t eos = lf_shardset_get_info(l->src[0].set)->eos_id;
    l->pad_token = eos < 0 ? 0 : (int32_t)eos;
    l->mlm_vocab = lf_shardset_get_info(l->src[0].set)->vocab_size;
    if (l->mlm && !c->vocab_size && (rc = lf_mlm_check(l->mlm, l->mlm_vocab, err)) < 0)
        goto out; /* the token that stands for hidden ones may be one of the model alone */
    if (l->nsp && !c->vocab_size && (rc = lf_nsp_check(l->nsp, l->mlm_vocab, err)) < 0)
        goto out;
    if ((rc = open_order(l, c, err)) < 0 || (rc = make_order_id(l, c, err)) < 0 ||
        (rc = alloc_slots(l, c, err)) < 0 || (rc = lf_loader_seek(l, 0, err)) < 0 ||
        (rc = start_thread(l, err)) < 0)
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
    for (int i = 0; i < LF_LOADER_SLOTS; i++) {
        free(l->slot[i].tokens);
        free(l->slot[i].targets);
        free(l->slot[i].positions);
        free(l->slot[i].cu_seqlens);
        free(l->slot[i].seg_doc);
        free(l->slot[i].seg_source);
        free(l->slot[i].seg_mismatched);
        free(l->slot[i].seg_nsp);
        free(l->slot[i].sample_ids);
        free(l->slot[i].source_tokens);
        free(l->slot[i].source_positions);
        free(l->slot[i].source_cu_seqlens);
        free(l->slot[i].media.tile);
        free(l->slot[i].media.picture);
        free(l->slot[i].media.patches);
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
    free(l->media.file);
    free(l->row);
    free(l->work);
    free(l->count_segs);
    free(l->count_row);
    free(l->begins);
    free(l->count_begins);
    free(l->src);
    free(l->ramp);
    free(l->skip);
    free(l->segs);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
