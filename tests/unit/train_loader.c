/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader: exact order under any micro-batch, rank count and restart; every token of an epoch
 * once; targets inside their document; blend within one sample of its share; ramp, skip list,
 * validation, refusals.
 */
#include "engine/train/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/rng.h"
#include "engine/train/loader_priv.h"
#include "tests/tap/tap.h"

#define VOCAB 300
static char dir_a[4000], dir_b[4000];
static const lf_loader_ramp ramp4[] = {{0, 4}};

static lf_loader_config config(const lf_loader_source *s, size_t n, int32_t B)
{
    return (lf_loader_config){.mode = LF_LOADER_TRAIN,
                              .split = "train",
                              .sources = s,
                              .n_sources = n,
                              .T = 32,
                              .B = B,
                              .policy = LF_PACK_CONCAT,
                              .seed = 7,
                              .ramp = ramp4,
                              .n_ramp = 1};
}

static lf_loader *must_open(const lf_loader_config *c)
{
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    if (lf_loader_open(&l, c, &err) < 0)
        tap_bail("open: %s", err.text);
    return l;
}

/* One row against the documents themselves, found through lf_loader_describe. seen: [doc][token],
 * NULL: not wanted. */
static int64_t audit_row(const lf_loader *l, const lf_loader_batch *b, int row,
                         unsigned char (*seen)[64])
{
    json_t *o = lf_loader_describe(l, b->sample_ids[row], NULL),
           *segs = json_object_get(o, "segments"), *s;
    const char *file0 = NULL;
    size_t i;
    int64_t bad = 0;
    int32_t at = row * b->T;
    json_array_foreach(segs, i, s)
    {
        const char *file = json_string_value(json_object_get(s, "file"));
        uint64_t doc = (uint64_t)json_integer_value(json_object_get(s, "doc"));
        uint32_t first = (uint32_t)json_integer_value(json_object_get(s, "first"));
        uint32_t len = (uint32_t)json_integer_value(json_object_get(s, "len"));
        /* dir_a has two files: documents 0..99 and 100..199. */
        doc += strcmp(file, "train-00001.h5") == 0 ? 100 : 0;
        file0 = file;
        uint32_t total = lf_shard_synthetic_len(1, doc, 60);
        for (uint32_t k = 0; k < len; k++, at++) {
            uint32_t t = first + k;
            bad += b->tokens[at] != (int32_t)lf_shard_synthetic_token(1, doc, t, total, VOCAB);
            bad +=
                b->targets[at] !=
                (t + 1 == total ? -1
                                : (int32_t)lf_shard_synthetic_token(1, doc, t + 1, total, VOCAB));
            bad += b->positions[at] != (int32_t)k;
            if (seen)
                seen[doc][t]++;
        }
    }
    for (int32_t k = 0; at < (row + 1) * b->T; at++, k++)
        bad += b->tokens[at] != 0 || b->targets[at] != -1 || b->positions[at] != k;
    json_decref(o);
    return bad + (file0 == NULL);
}

/* cu_seqlens cover the batch, change where positions restart, and are padded. */
static int64_t audit_cu(const lf_loader_batch *b)
{
    int64_t bad = b->cu_seqlens[0] != 0 || b->cu_seqlens[b->n_segs] != b->B * b->T;
    int32_t longest = 0;
    for (int32_t i = 0; i < b->n_segs; i++) {
        int32_t len = b->cu_seqlens[i + 1] - b->cu_seqlens[i];
        bad += len <= 0;
        longest = len > longest ? len : longest;
        for (int32_t k = 0; k < len; k++)
            bad += b->positions[b->cu_seqlens[i] + k] != k;
    }
    bad += b->n_segs > b->B * b->max_segs;
    for (int32_t i = b->n_segs; i <= b->B * b->max_segs; i++)
        bad += b->cu_seqlens[i] != b->B * b->T;
    return bad + (longest != b->max_seglen);
}

static int64_t count_trained(const lf_loader_batch *b)
{
    int64_t n = 0;
    for (int32_t i = 0; i < b->B * b->T; i++)
        n += b->targets[i] >= 0;
    return n;
}

static void test_epoch(enum lf_pack_policy policy, int32_t max_segs)
{
    lf_loader_source s = {dir_a, 1};
    lf_loader_config c = config(&s, 1, 2);
    unsigned char(*seen)[64] = calloc(200, sizeof *seen);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    c.policy = policy;
    c.max_segs = max_segs;
    lf_loader *l = must_open(&c);
    uint64_t epoch = lf_loader_source_samples(l, 0);
    int64_t bad = 0, rows = 0;
    while (rows < (int64_t)epoch) {
        int64_t trained = 0;
        bad += lf_loader_begin_step(l, &st, &err) != 1;
        for (int m = 0; m < st.n_micro; m++) {
            bad += lf_loader_next(l, &b, &err) < 0 || b->micro != m || b->n_micro != 2;
            bad += b->trained != count_trained(b) || audit_cu(b);
            trained += b->trained;
            for (int r = 0; r < 2; r++, rows++)
                bad += b->sample_ids[r] != rows ||
                       audit_row(l, b, r, rows < (int64_t)epoch ? seen : NULL);
        }
        bad += trained != st.trained;
    }
    tap_i64(bad, 0, "rows are their documents, counts are right");
    for (uint64_t d = 0; d < 200; d++)
        for (uint32_t t = 0; t < 60; t++)
            bad += seen[d][t] != (t < lf_shard_synthetic_len(1, d, 60));
    tap_ok(bad == 0,
           "every token of every document once in an epoch (%llu sequences, policy %d, segs %d)",
           (unsigned long long)epoch, (int)policy, max_segs);
    free(seen);
    lf_loader_close(l);
}

/* Digest of everything in the steps [from, to) as one rank sees them, samples in order. */
static void digest(uint8_t out[LF_HASH_BYTES], const lf_loader_config *c, int64_t from,
                   int64_t steps)
{
    lf_loader *l = must_open(c);
    lf_hash *h = lf_hash_create(NULL);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    if (lf_loader_seek(l, from, &err) < 0)
        tap_bail("seek: %s", err.text);
    for (int64_t i = 0; i < steps; i++) {
        if (lf_loader_begin_step(l, &st, &err) != 1)
            tap_bail("step: %s", err.text);
        lf_hash_update(h, &st.number, sizeof st.number);
        lf_hash_update(h, &st.trained, sizeof st.trained);
        for (int m = 0; m < st.n_micro; m++) {
            if (lf_loader_next(l, &b, &err) < 0)
                tap_bail("next: %s", err.text);
            size_t n = (size_t)b->T * sizeof(int32_t);
            for (int r = 0; r < b->B; r++) {
                lf_hash_update(h, &b->sample_ids[r], sizeof(int64_t));
                lf_hash_update(h, b->tokens + r * b->T, n);
                lf_hash_update(h, b->targets + r * b->T, n);
                lf_hash_update(h, b->positions + r * b->T, n);
            }
        }
    }
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    lf_loader_close(l);
}

static void test_resume(void)
{
    lf_loader_source s[] = {{dir_a, 0.7}, {dir_b, 0.3}};
    lf_loader_config c = config(s, 2, 2);
    uint8_t a[LF_HASH_BYTES], b[LF_HASH_BYTES];
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *bt;
    lf_loader *l = must_open(&c);
    /* Use a few steps, stop in the middle of one, go back to a cursor: what follows equals a fresh
     * loader's. */
    for (int i = 0; i < 13; i++)
        for (int m = (lf_loader_begin_step(l, &st, &err), 0); m < 2; m++)
            lf_loader_next(l, &bt, &err);
    int64_t cursor = lf_loader_cursor(l);
    tap_i64(cursor, 52, "the cursor is the next sample");
    lf_loader_close(l);
    digest(a, &c, cursor, 90);
    l = must_open(&c);
    lf_hash *h = lf_hash_create(NULL);
    for (int i = 0; i < 103; i++) {
        lf_loader_begin_step(l, &st, &err);
        if (i >= 13) {
            lf_hash_update(h, &st.number, sizeof st.number);
            lf_hash_update(h, &st.trained, sizeof st.trained);
        }
        for (int m = 0; m < 2; m++) {
            lf_loader_next(l, &bt, &err);
            for (int r = 0; r < 2 && i >= 13; r++) {
                lf_hash_update(h, &bt->sample_ids[r], sizeof(int64_t));
                lf_hash_update(h, bt->tokens + r * 32, 128);
                lf_hash_update(h, bt->targets + r * 32, 128);
                lf_hash_update(h, bt->positions + r * 32, 128);
            }
        }
    }
    lf_hash_final(h, b);
    lf_hash_destroy(h);
    tap_mem(a, b, sizeof a, "resumed equals uninterrupted, over several epochs");
    lf_loader_close(l);
    c.B = 4;
    digest(b, &c, cursor, 90);
    tap_mem(a, b, sizeof a, "another micro-batch, the same samples");
    c.B = 1;
    digest(b, &c, cursor, 90);
    tap_mem(a, b, sizeof a, "micro-batch 1 as well");
    c.seed = 8;
    digest(b, &c, cursor, 90);
    tap_ok(memcmp(a, b, sizeof a) != 0, "another seed, another order");
}

static void test_seek_back(void)
{
    lf_loader_source s = {dir_a, 1};
    lf_loader_config c = config(&s, 1, 2);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    int32_t first[64];
    int64_t bad = 0;
    lf_loader *l = must_open(&c);
    lf_loader_begin_step(l, &st, &err);
    lf_loader_next(l, &b, &err);
    memcpy(first, b->tokens, sizeof first);
    for (int i = 0; i < 200; i++) {
        bad += lf_loader_seek(l, 4 * (i % 7), &err) < 0;
        bad += lf_loader_begin_step(l, &st, &err) != 1 || st.first_sample != 4 * (i % 7);
        bad += lf_loader_next(l, &b, &err) < 0 || b->sample_ids[0] != 4 * (i % 7);
        bad += i % 7 == 0 && memcmp(first, b->tokens, sizeof first) != 0;
    }
    tap_i64(bad, 0, "seeking to and fro");
    tap_rc(lf_loader_begin_step(l, &st, &err), LF_EINVAL, &err, "1 of its 2",
           "a step is used up before the next");
    tap_rc(lf_loader_seek(l, 3, &err), LF_EINVAL, &err, "sample 3", "only where a step begins");
    tap_rc(lf_loader_seek(l, -4, &err), LF_EINVAL, &err, "-4", "not before the beginning");
    lf_loader_close(l);
}

static void test_ranks(void)
{
    lf_loader_source s[] = {{dir_a, 2}, {dir_b, 1}};
    lf_loader_config c = config(s, 2, 2);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st, st0, st1;
    const lf_loader_batch *b, *b0, *b1;
    int64_t bad = 0;
    lf_loader *l = must_open(&c);
    c.B = 1;
    c.dp_size = 2;
    lf_loader *l0 = must_open(&c);
    c.dp_rank = 1;
    lf_loader *l1 = must_open(&c);
    for (int i = 0; i < 40; i++) {
        lf_loader_begin_step(l, &st, &err);
        lf_loader_begin_step(l0, &st0, &err);
        lf_loader_begin_step(l1, &st1, &err);
        bad += st.trained != st0.trained || st.trained != st1.trained ||
               st.next_sample != st1.next_sample;
        bad += st0.n_micro != 2 || st1.number != st.number;
        for (int m = 0; m < 2; m++) {
            lf_loader_next(l, &b, &err);
            lf_loader_next(l0, &b0, &err);
            lf_loader_next(l1, &b1, &err);
            bad += memcmp(b->tokens, b0->tokens, 128) != 0 ||
                   memcmp(b->tokens + 32, b1->tokens, 128) != 0;
        }
    }
    tap_i64(bad, 0, "two ranks see what one rank sees, and the same global counts");
    lf_loader_close(l);
    lf_loader_close(l0);
    lf_loader_close(l1);
}

/* Any number of ranks: together the micro-batches of one rank, each once, dealt in turn. */
static void test_deal(void)
{
    static const lf_loader_ramp ramp[] = {{0, 6}, {30, 14}, {128, 8}};
    lf_loader_source s[] = {{dir_a, 3}, {dir_b, 1}};
    lf_loader_config c = config(s, 2, 2);
    lf_err err = LF_ERR_INIT;
    c.ramp = ramp;
    c.n_ramp = 3;
    for (int ranks = 1; ranks <= 3; ranks++) {
        lf_loader *one, *l[3] = {NULL};
        int64_t bad = 0, micros = 0;
        c.dp_size = c.dp_rank = 0;
        one = must_open(&c);
        c.dp_size = ranks;
        for (c.dp_rank = 0; c.dp_rank < ranks; c.dp_rank++)
            l[c.dp_rank] = must_open(&c);
        for (int step = 0; step < 30; step++) {
            lf_loader_step a, b[3];
            lf_loader_begin_step(one, &a, &err);
            int64_t n = 0;
            for (int r = 0; r < ranks; r++) {
                lf_loader_begin_step(l[r], &b[r], &err);
                bad += a.trained != b[r].trained || a.next_sample != b[r].next_sample ||
                       a.number != b[r].number;
                n += b[r].n_micro;
            }
            bad += n != a.n_micro;
            for (int32_t m = 0; m < a.n_micro; m++, micros++) {
                const lf_loader_batch *x, *y;
                lf_loader_next(one, &x, &err);
                bad += lf_loader_next(l[m % ranks], &y, &err) != 0 || y->micro != m / ranks ||
                       x->trained != y->trained || memcmp(x->tokens, y->tokens, 2 * 32 * 4) != 0 ||
                       memcmp(x->sample_ids, y->sample_ids, 16) != 0;
            }
        }
        tap_ok(bad == 0 && micros > 100, "%lld micro-batches over %d ranks are those of one rank",
               (long long)micros, ranks);
        lf_loader_close(one);
        for (int r = 0; r < ranks; r++)
            lf_loader_close(l[r]);
    }
    tap_i64(lf_deal_count(14, 2, 0, 3), 3, "seven micro-batches: three for rank 0");
    tap_i64(lf_deal_count(14, 2, 1, 3), 2, "two for rank 1");
    tap_i64(lf_deal_count(13, 2, 2, 3), 2, "a part of one counts");
    tap_i64(lf_deal_count(2, 2, 2, 3), 0, "none");
    lf_loader *l = NULL;
    c.dp_rank = 0;
    c.dp_size = 4;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "has work for 3 ranks, there are 4",
           "more ranks than micro-batches");
}

/* A validation is the same set of sequences for any number of ranks, some of which have nothing in
 * the last step. */
static void test_valid_ranks(void)
{
    lf_loader_source s[] = {{dir_a, 1}, {dir_b, 1}};
    lf_loader_config c = config(s, 2, 1);
    lf_err err = LF_ERR_INIT;
    int64_t samples[5] = {0}, trained[5] = {0};
    c.mode = LF_LOADER_VALID;
    c.split = "valid";
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int r = 0; r < ranks; r++) {
            lf_loader_step st;
            const lf_loader_batch *b;
            c.dp_rank = r;
            c.dp_size = ranks;
            lf_loader *l = must_open(&c);
            for (int pass = 0; pass < 2; pass++) {
                lf_loader_seek(l, 0, &err);
                while (lf_loader_begin_step(l, &st, &err) == 1)
                    for (int32_t m = 0; m < st.n_micro; m++) {
                        if (lf_loader_next(l, &b, &err) < 0)
                            tap_bail("%s", err.text);
                        samples[ranks] += b->sample_ids[0] >= 0;
                        trained[ranks] += b->trained;
                    }
            }
            lf_loader_close(l);
        }
    tap_ok(samples[1] > 10 && samples[2] == samples[1] && samples[3] == samples[1] &&
               samples[4] == samples[1],
           "validation over 1 to 4 ranks: %lld sequences", (long long)samples[1] / 2);
    tap_ok(trained[2] == trained[1] && trained[3] == trained[1] && trained[4] == trained[1],
           "and the same targets");
}

static void test_blend(void)
{
    double worst = 0;
    int64_t bad = 0;
    for (uint64_t trial = 0; trial < 60; trial++) {
        size_t n = 1 + lf_rng_u32(5, 1, trial) % 12, src;
        double weight[16];
        uint32_t w[16], total;
        uint64_t count[16] = {0}, index;
        lf_err err = LF_ERR_INIT;
        for (size_t k = 0; k < n; k++)
            weight[k] = trial % 2 ? 1 + lf_rng_u32(6, 1, trial * 16 + k) % 50
                                  : exp(3 * lf_rng_f64(6, 1, trial * 16 + k));
        if (lf_blend_weights(w, &total, weight, n, &err) < 0)
            tap_bail("%s", err.text);
        for (uint64_t i = 0; i < 3000; i++) {
            size_t k = lf_blend_choose(w, n, total, i, count);
            if (i % 997 == 0) {
                lf_blend_at(w, n, total, i, &src, &index);
                bad += src != k || index != count[k];
            }
            count[k]++;
            for (size_t j = 0; j < n; j++)
                worst = tap_worse(worst, fabs((double)count[j] - (double)(i + 1) * w[j] / total));
        }
    }
    tap_ok(worst < 1, "no count is ever off by 1 (worst %.4f)", worst);
    tap_i64(bad, 0, "random access equals walking");
    uint32_t w[3], total;
    lf_err err = LF_ERR_INIT;
    lf_blend_weights(w, &total, (double[]){0.7, 0.2, 0.1}, 3, &err);
    tap_ok(w[0] == 7 && w[1] == 2 && w[2] == 1 && total == 10, "decimal weights are exact");
    lf_blend_weights(w, &total, (double[]){3, 3, 3}, 3, &err);
    tap_ok(w[0] == 1 && total == 3, "and reduced");
    tap_rc(lf_blend_weights(w, &total, (double[]){1, 0}, 2, &err), LF_EINVAL, &err, "positive",
           "no zero weight");
    tap_rc(lf_blend_weights(w, &total, (double[]){M_PI, 1e-9}, 2, &err), LF_EINVAL, &err, "10^6",
           "no share that vanishes");
    tap_rc(lf_blend_weights(w, &total, (double[]){1, (double)NAN}, 2, &err), LF_EINVAL, &err, "nan",
           "no NaN");
}

/* Documents of a sample, as the loader tells them; the caller owns it. */
static json_t *told(const lf_loader *l, int64_t sample)
{
    json_t *o = lf_loader_describe(l, sample, NULL);
    json_object_del(o, "sample");
    return o;
}

/* Each pair of samples k times, one behind the other, in two sources, any micro-batch and behind a
 * seek. */
static void test_repeats(int k)
{
    const lf_loader_ramp ramp = {0, 4 * k};
    lf_loader_source s[] = {{dir_a, 0.7}, {dir_b, 0.3}};
    lf_loader_config c = config(s, 2, 2);
    uint8_t a[LF_HASH_BYTES], b[LF_HASH_BYTES];
    char id[LF_HASH_HEX];
    lf_loader_step st;
    const lf_loader_batch *of, *as;
    lf_err err = LF_ERR_INIT;
    int64_t bad = 0;
    lf_loader *once = must_open(&c);
    snprintf(id, sizeof id, "%s", lf_loader_order_id(once));
    c.ramp = &ramp;
    c.repeats = k;
    lf_loader *l = must_open(&c);
    for (int64_t i = 0; i < 400 * k; i++) {
        json_t *x = told(l, i), *y = told(once, i / (2 * k) * 2 + i % 2);
        bad += !x || !json_equal(x, y);
        json_decref(x);
        json_decref(y);
    }
    tap_ok(bad == 0, "%d times each: pairs of the order (%lld wrong)", k, (long long)bad);
    lf_loader *sought = must_open(&c);
    bad = 0;
    for (int64_t i = 0; i < 100; i++) {
        bad += lf_loader_begin_step(l, &st, &err) != 1 || lf_loader_seek(sought, 4 * k * i, &err) ||
               lf_loader_begin_step(sought, &st, &err) != 1;
        for (int m = 0; m < st.n_micro; m++) {
            bad += lf_loader_next(l, &of, &err) < 0 || lf_loader_next(sought, &as, &err) < 0 ||
                   of->sample_ids[1] != 4 * k * i + 2 * m + 1 ||
                   memcmp(of->tokens, as->tokens, 64 * sizeof *of->tokens) != 0;
        }
    }
    lf_loader_close(sought);
    tap_i64(bad, 0, "batch after batch as behind a seek");
    tap_ok(strcmp(id, lf_loader_order_id(l)) != 0, "the order's id depends on it");
    lf_loader_close(l);
    lf_loader_close(once);
    digest(a, &c, 40 * k, 50);
    c.B = 4;
    digest(b, &c, 40 * k, 50);
    tap_mem(a, b, sizeof a, "another micro-batch, the same samples");
}

static void test_ramp_and_skip(void)
{
    static const lf_loader_ramp ramp[] = {{0, 2}, {5, 4}, {13, 8}};
    /* batches: 0:[0,2) 1:[2,4) 2:[4,6) 3:[6,10) 4:[10,14) 5:[14,22) 6:[22,30) 7:[30,38), with 2, 3
     * and 6 left out */
    static const int64_t skip[] = {6, 2, 3}, numbers[] = {0, 1, 4, 5, 7};
    static const int64_t starts[] = {0, 2, 10, 14, 30}, sizes[] = {2, 2, 4, 8, 8};
    lf_loader_source s = {dir_a, 1};
    lf_loader_config c = config(&s, 1, 2);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    c.ramp = ramp;
    c.n_ramp = 3;
    c.skip = skip;
    c.n_skip = 3;
    lf_loader *l = must_open(&c);
    int64_t bad = 0;
    for (int i = 0; i < 5; i++) {
        bad += lf_loader_begin_step(l, &st, &err) != 1 || st.number != numbers[i] ||
               st.first_sample != starts[i] || st.n_samples != sizes[i];
        for (int m = 0; m < st.n_micro; m++)
            bad += lf_loader_next(l, &b, &err) < 0 || b->sample_ids[0] != st.first_sample + 2 * m ||
                   audit_row(l, b, 1, NULL);
    }
    tap_i64(bad, 0, "batches grow at their samples and the skipped ones are left out");
    tap_rc(lf_loader_seek(l, 14, &err), 0, &err, NULL, "seek into the ramp");
    lf_loader_begin_step(l, &st, &err);
    tap_i64(st.number, 5, "knows its batch number");
    lf_loader_close(l);
}

static void test_valid(void)
{
    lf_loader_source s[] = {{dir_a, 1}, {dir_b, 5}};
    lf_loader_config c = config(s, 2, 3);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    int64_t trained = 0, rows = 0, pad_rows = 0, bad = 0, want = 0;
    c.mode = LF_LOADER_VALID;
    c.split = "valid";
    c.ramp = NULL;
    c.n_ramp = 0;
    lf_loader *l = must_open(&c);
    for (int pass = 0; pass < 2; pass++) {
        trained = rows = pad_rows = 0;
        while (lf_loader_begin_step(l, &st, &err) == 1) {
            bad += st.n_micro != 1 || lf_loader_next(l, &b, &err) < 0 || b->trained != st.trained ||
                   audit_cu(b);
            trained += b->trained;
            for (int r = 0; r < 3; r++) {
                rows += b->sample_ids[r] >= 0;
                pad_rows += b->sample_ids[r] < 0;
            }
        }
        bad += lf_loader_seek(l, 0, &err);
    }
    for (uint64_t d = 200; d < 220; d++)
        want += lf_shard_synthetic_len(1, d, 60) - 1;
    for (uint64_t d = 150; d < 157; d++)
        want += lf_shard_synthetic_len(2, d, 60) - 1;
    tap_i64(bad, 0, "validation batches are whole");
    tap_i64(trained, want, "every target of both validation sets once");
    tap_i64(rows, (int64_t)(lf_loader_source_samples(l, 0) + lf_loader_source_samples(l, 1)),
            "all sequences");
    tap_ok((rows + pad_rows) % 3 == 0, "the last batch is filled up with padding rows (%lld)",
           (long long)pad_rows);
    lf_loader_close(l);
    c.max_tokens = 70;
    l = must_open(&c);
    rows = 0;
    while (lf_loader_begin_step(l, &st, &err) == 1 && lf_loader_next(l, &b, &err) == 0)
        for (int r = 0; r < 3; r++)
            rows += b->sample_ids[r] >= 0;
    tap_i64(rows, 3, "70 tokens need three sequences of 32");
    lf_loader_close(l);
}

static void test_refused(void)
{
    lf_loader_source s[] = {{dir_a, 1}, {"/nonexistent-lf", 1}};
    static const lf_loader_ramp odd[] = {{0, 3}}, late[] = {{5, 4}};
    lf_loader_config c = config(s, 1, 2);
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    char id[LF_HASH_HEX], path[4096];
    l = must_open(&c);
    snprintf(id, sizeof id, "%s", lf_loader_order_id(l));
    lf_loader_close(l);
    c.T = 33;
    l = must_open(&c);
    tap_ok(strcmp(id, lf_loader_order_id(l)) != 0, "the order's id depends on T");
    lf_loader_close(l);
    c = config(s, 1, 2);
    c.ramp = odd;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "multiple",
           "a batch the micro-batch does not divide");
    c.ramp = late;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "sample 0",
           "a schedule that begins late");
    c = config(s, 1, 2);
    c.repeats = 3;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "not a multiple of 6",
           "a batch that pairs three times do not fill");
    c = config(s, 2, 2);
    tap_rc(lf_loader_open(&l, &c, &err), LF_ENOENT, &err, "nonexistent",
           "a dataset that is not there");
    c = config(s, 1, 2);
    c.vocab_size = 100;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "vocabulary of 300",
           "a model with a smaller vocabulary");
    c = config(s, 1, 2);
    c.split = "test";
    tap_rc(lf_loader_open(&l, &c, &err), LF_ENOENT, &err, "'test'", "a split that is not there");
    /* A shard cut after it was opened: the thread's failure comes out of next, naming sample and
     * file. */
    c = config((lf_loader_source[]){{dir_b, 1}}, 1, 2);
    l = must_open(&c);
    snprintf(path, sizeof path, "%s/train-00000.h5", dir_b);
    if (truncate(path, 3000) < 0)
        tap_bail("truncate");
    lf_loader_step st;
    const lf_loader_batch *b;
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++)
        for (int m = (lf_loader_begin_step(l, &st, &err), 0); m < 2 && rc == 0; m++)
            rc = lf_loader_next(l, &b, &err);
    tap_rc(rc, LF_EFORMAT, &err, "train-00000.h5", "a failure of the reading thread is delivered");
    lf_loader_close(l);
}

/* What a plan says before there is a loader is what the loader then holds: to the byte but for the
 * index, which follows from lengths that a plan does not know. */
static void check_bytes(const lf_loader_config *c)
{
    lf_loader *l = must_open(c);
    const lf_shard_info *info = lf_loader_info(l, 0);
    const lf_loader_batch *b = &l->slot[0];
    size_t most = lf_loader_index_bytes(c, info->n_docs, info->n_tokens);
    if (c->megatron)
        most = lf_loader_megatron_bytes(c->T, info->n_docs, info->n_tokens,
                                        (uint64_t)c->megatron->samples);
    tap_i64((int64_t)l->bytes, (int64_t)lf_loader_slot_bytes(c), "bytes held are bytes planned");
    tap_ok(l->index_bytes <= most && most < 2 * l->index_bytes, "index of %zu bytes, planned %zu",
           l->index_bytes, most);
    tap_i64(b->max_segs, lf_loader_segs(c), "segments of a row");
    lf_loader_close(l);
}

static void test_bytes(void)
{
    static const int32_t segs[] = {0, 1, 2, 5, 32};
    static const enum lf_pack_policy policies[] = {LF_PACK_CONCAT, LF_PACK_BFD};
    static const int64_t skip[] = {3, 9};
    const lf_loader_source s[] = {{dir_a, 1}};
    const lf_loader_megatron m = {.split = "1,0,0", .seed = 1, .samples = 8};
    for (size_t i = 0; i < 10; i++) {
        lf_loader_config c = config(s, 1, 2);
        c.policy = policies[i % 2];
        c.max_segs = segs[i / 2];
        c.skip = skip;
        c.n_skip = 2;
        check_bytes(&c);
        c.mode = LF_LOADER_VALID;
        check_bytes(&c);
    }
    lf_loader_config c = config(s, 1, 2);
    c.megatron = &m;
    check_bytes(&c);
}

/* A plan refuses what open refuses. */
static void test_check(void)
{
    static const struct {
        int32_t T, B, segs;
        enum lf_rows rows;
        const char *says;
    } bad[] = {
        {1, 2, 0, LF_ROWS_PLAIN, "2 sequences of 1 tokens"},
        {32, 0, 0, LF_ROWS_PLAIN, "0 sequences"},
        {1 << 24, 1 << 20, 0, LF_ROWS_PLAIN, "is not possible"},
        {32, 2, -1, LF_ROWS_PLAIN, "is not possible"},
        {32, 2, 33, LF_ROWS_PLAIN, "max_docs = 33: a sequence of 32 tokens can hold 1 to 32"},
        {32, 2, 65, LF_ROWS_PAIRS, "max_docs = 65: a sequence of 32 tokens can hold 1 to 64"}};
    const lf_loader_source s[] = {{dir_a, 1}};
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lf_loader_config c = config(s, 1, bad[i].B);
        c.T = bad[i].T;
        c.max_segs = bad[i].segs;
        c.rows = bad[i].rows;
        tap_rc(lf_loader_check(&c, &err), LF_EINVAL, &err, bad[i].says, "a plan");
        tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, bad[i].says, "open");
    }
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    snprintf(dir_a, sizeof dir_a, "%s/a", tap_tmpdir());
    snprintf(dir_b, sizeof dir_b, "%s/b", tap_tmpdir());
    if (lf_shard_write_synthetic(dir_a, &(struct lf_shard_synthetic){200, 20, 2, 60, VOCAB, 1},
                                 &err) < 0 ||
        lf_shard_write_synthetic(dir_b, &(struct lf_shard_synthetic){150, 7, 1, 60, VOCAB, 2},
                                 &err) < 0)
        tap_bail("%s", err.text);
    TAP(2, test_epoch(LF_PACK_CONCAT, 0));
    TAP(2, test_epoch(LF_PACK_CONCAT, 1));
    TAP(2, test_epoch(LF_PACK_CONCAT, 2));
    TAP(2, test_epoch(LF_PACK_BFD, 0));
    TAP(2, test_epoch(LF_PACK_BFD, 3));
    TAP(5, test_resume());
    TAP(4, test_seek_back());
    TAP(1, test_ranks());
    TAP(8, test_deal());
    TAP(2, test_valid_ranks());
    TAP(7, test_blend());
    TAP(4, test_repeats(2));
    TAP(4, test_repeats(3));
    TAP(3, test_ramp_and_skip());
    TAP(5, test_valid());
    TAP(8, test_refused());
    TAP(63, test_bytes());
    TAP(12, test_check());
    return tap_done();
}
