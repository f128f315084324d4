/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader in Megatron's order (rows are the order's samples; exact under micro-batch, ranks and
 * restart; blends; refusals), and with a loss mask.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/train/loader_priv.h"
#include "tests/tap/tap.h"

#define VOCAB 500
#define LEN   24
static char dir_a[4000], dir_b[4000], dir_m[4000];
static const lf_loader_ramp ramp4[] = {{0, 4}};

static lf_loader_megatron mega = {.split = "9,1", .seed = 1234, .samples = 120, .surplus = 0.005};

static lf_loader_config config(const lf_loader_source *s, size_t n, int32_t B)
{
    return (lf_loader_config){.mode = LF_LOADER_TRAIN,
                              .split = "train",
                              .sources = s,
                              .n_sources = n,
                              .T = LEN,
                              .B = B,
                              .seed = 7,
                              .ramp = ramp4,
                              .n_ramp = 1,
                              .megatron = &mega};
}

static lf_loader *must_open(const lf_loader_config *c)
{
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    if (lf_loader_open(&l, c, &err) < 0)
        tap_bail("open: %s", err.text);
    return l;
}

/* The tokens of sample i as order and documents say, without the loader. */
struct expect {
    lf_shardset *set;
    lf_megatron_order *order;
    int32_t row[LEN + 1];
    uint32_t n;
};
static int expect_piece(void *user, uint64_t seq, uint64_t first, uint32_t n, lf_err *err)
{
    struct expect *e = user; /* here a document is a sequence */
    int rc = lf_shardset_read(e->set, seq, first, n, e->row + e->n, err);
    e->n += n;
    return rc;
}

static void open_expect(struct expect *e, const char *dir, uint64_t samples)
{
    lf_err err = LF_ERR_INIT;
    uint32_t len[400];
    *e = (struct expect){0};
    if (lf_shardset_open(&e->set, dir, "train", &err) < 0 ||
        lf_shardset_seq_lengths(e->set, len, &err) < 0)
        tap_bail("%s", err.text);
    uint64_t n = lf_shardset_n_seqs(e->set);
    lf_megatron_order_args a = {
        .lengths = len, .n_seqs = n, .end = n * 9 / 10, .T = LEN, .samples = samples, .seed = 1234};
    if (lf_megatron_order_build(&e->order, &a, &err) < 0)
        tap_bail("%s", err.text);
}

static void close_expect(struct expect *e)
{
    lf_megatron_order_destroy(e->order);
    lf_shardset_close(e->set);
}

static void test_rows(void)
{
    lf_loader_source s = {dir_a, 1};
    lf_loader_config c = config(&s, 1, 2);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    struct expect e;
    int64_t bad = 0, rows = 0;
    lf_loader *l = must_open(&c);
    open_expect(&e, dir_a, 120);
    tap_ok(lf_megatron_order_epochs(e.order) > 1, "more than one epoch (%llu)",
           (unsigned long long)lf_megatron_order_epochs(e.order));
    tap_i64(lf_loader_samples(l), (int64_t)lf_megatron_order_count(e.order), "samples there are");
    while (rows < 120) {
        bad += lf_loader_begin_step(l, &st, &err) != 1 || st.trained != 4 * LEN;
        for (int m = 0; m < 2; m++) {
            bad += lf_loader_next(l, &b, &err) < 0 || b->n_segs != 2 || b->max_seglen != LEN ||
                   b->trained != 2 * LEN;
            for (int r = 0; r < 2; r++, rows++) {
                e.n = 0;
                bad +=
                    lf_megatron_order_pieces(e.order, (uint64_t)rows, expect_piece, &e, &err) < 0 ||
                    e.n != LEN + 1;
                bad += memcmp(b->tokens + r * LEN, e.row, LEN * 4) != 0 ||
                       memcmp(b->targets + r * LEN, e.row + 1, LEN * 4) != 0;
                for (int t = 0; t < LEN; t++)
                    bad += b->positions[r * LEN + t] != t;
                bad += b->cu_seqlens[r + 1] != (r + 1) * LEN;
            }
        }
    }
    tap_i64(bad, 0, "every row is the sample that the order says");
    json_t *d = lf_loader_describe(l, 17, &err);
    int64_t sum = 0;
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(d, "segments"), i, p) sum +=
        json_integer_value(json_object_get(p, "len"));
    tap_i64(sum, LEN + 1, "a sample is described");
    json_decref(d);
    lf_loader_close(l);
    close_expect(&e);
}

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
        lf_hash_update(h, &st.trained, sizeof st.trained);
        for (int m = 0; m < st.n_micro; m++) {
            if (lf_loader_next(l, &b, &err) < 0)
                tap_bail("next: %s", err.text);
            lf_hash_update(h, b->tokens, (size_t)b->B * LEN * 4);
            lf_hash_update(h, b->targets, (size_t)b->B * LEN * 4);
        }
    }
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    lf_loader_close(l);
}

/* The blend, counted by hand. */
static void test_blend(bool weighted)
{
    lf_loader_source s[] = {{dir_a, 0.3}, {dir_b, 0.7}};
    lf_loader_config c = config(s, 2, 4);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    struct expect e[2];
    double w[2] = {0.3, 0.7};
    uint64_t taken[2] = {0};
    int64_t bad = 0;
    uint8_t x[LF_HASH_BYTES], y[LF_HASH_BYTES];
    mega.weighted = weighted;
    mega.samples = weighted ? 120 : 60;
    for (int k = 0; k < 2; k++) {
        open_expect(&e[k], k ? dir_b : dir_a,
                    weighted ? lf_megatron_source_samples(120, w[k], 0.005) : 0);
        if (!weighted)
            w[k] = (double)lf_megatron_order_count(e[k].order);
    }
    lf_megatron_normalize(w, 2);
    lf_loader *l = must_open(&c);
    for (uint64_t i = 0; i < (uint64_t)mega.samples;) {
        bad += lf_loader_begin_step(l, &st, &err) != 1 || lf_loader_next(l, &b, &err) < 0;
        for (int r = 0; r < 4; r++, i++) {
            size_t k = lf_megatron_blend_choose(w, 2, i, taken);
            e[k].n = 0;
            bad += lf_megatron_order_pieces(e[k].order, taken[k]++, expect_piece, &e[k], &err) < 0;
            bad += memcmp(b->tokens + r * LEN, e[k].row, LEN * 4) != 0;
        }
    }
    tap_ok(bad == 0 && taken[0] > 10 && taken[1] > 10, "a blend of two, weights %s",
           weighted ? "given" : "by samples");
    lf_loader_close(l);
    close_expect(&e[0]);
    close_expect(&e[1]);
    digest(x, &c, 24, 9);
    c.B = 4;
    l = must_open(&c);
    for (int i = 0; i < 6; i++) {
        lf_loader_begin_step(l, &st, &err);
        lf_loader_next(l, &b, &err);
    }
    int64_t cursor = lf_loader_cursor(l);
    lf_loader_close(l);
    digest(y, &c, cursor, 9);
    tap_mem(x, y, sizeof x, "resumed at its cursor: the same samples");
    mega.weighted = false;
    mega.samples = 120;
}

static void test_ranks(void)
{
    lf_loader_source s[] = {{dir_a, 2}, {dir_b, 1}};
    lf_loader_config c = config(s, 2, 2);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *x, *y;
    int64_t bad = 0;
    mega.weighted = true;
    lf_loader *one = must_open(&c), *l[2];
    c.dp_size = 2;
    for (c.dp_rank = 0; c.dp_rank < 2; c.dp_rank++)
        l[c.dp_rank] = must_open(&c);
    for (int i = 0; i < 20; i++) {
        lf_loader_begin_step(one, &st, &err);
        for (int r = 0; r < 2; r++) {
            lf_loader_begin_step(l[r], &st, &err);
            bad += lf_loader_next(one, &x, &err) < 0 || lf_loader_next(l[r], &y, &err) < 0 ||
                   memcmp(x->tokens, y->tokens, 2 * LEN * 4) != 0;
        }
    }
    tap_i64(bad, 0, "two ranks see what one rank sees");
    lf_loader_close(one);
    lf_loader_close(l[0]);
    lf_loader_close(l[1]);
    mega.weighted = false;
}

static void test_order_id(void)
{
    lf_loader_source s = {dir_a, 1};
    lf_loader_config c = config(&s, 1, 2);
    char ids[6][LF_HASH_HEX];
    for (int i = 0; i < 6; i++) {
        lf_loader_megatron m = mega;
        m.seed += i == 1;
        m.samples += i == 2;
        m.split = i == 3 ? "8,1" : m.split;
        m.weighted = i == 4;
        c.megatron = i == 5 ? NULL : &m;
        lf_loader *l = must_open(&c);
        snprintf(ids[i], sizeof ids[i], "%s", lf_loader_order_id(l));
        lf_loader_close(l);
    }
    int same = 0;
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < i; k++)
            same += strcmp(ids[i], ids[k]) == 0;
    tap_i64(same, 0, "seed, samples, split and weighting are part of the order's identity");
}

static void test_refusals(void)
{
    lf_loader_source s = {dir_a, 1}, m = {dir_m, 1};
    lf_loader_config c = config(&s, 1, 2);
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    mega.split = "0,1";
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "do not fill one sample",
           "a part without sequences");
    mega.split = "1,x";
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "split \"1,x\"", "a split that is none");
    mega.split = "1,2,3,4";
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "split", "four shares");
    mega.split = "9,1";
    mega.samples = 0;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "not known", "no length");
    mega.samples = 120;
    c.sources = &m;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "loss mask",
           "no loss mask in Megatron's order");
    c.sources = &s;
    c.mode = LF_LOADER_VALID;
    c.split = "valid";
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "validation", "no validation");
}

/* ---- the loss mask in our own order ---- */

static bool masked(uint64_t doc, uint32_t k)
{
    return doc % 3 != 2 && (doc * 7 + k) % 5 < 2;
}

/* Documents of the synthetic data with a mask; every third has none. */
static void write_masked(const char *dir)
{
    lf_shard_info info = {.vocab_size = VOCAB, .eos_id = 0, .source = "masked"};
    lf_shard_writer *w = NULL;
    lf_shard_stat st;
    lf_artifact a = {0};
    lf_err err = LF_ERR_INIT;
    char path[4100];
    uint32_t tok[64];
    uint8_t mask[64];
    memset(info.tokenizer_sha256, '0', LF_HASH_HEX - 1);
    snprintf(path, sizeof path, "%s/train-00000.h5", dir);
    if (lf_io_mkdirs(dir, 0750, &err) < 0 || lf_shard_create(&w, path, &info, 0, &err) < 0)
        tap_bail("%s", err.text);
    for (uint64_t d = 0; d < 300; d++) {
        uint32_t n = lf_shard_synthetic_len(5, d, 60);
        for (uint32_t k = 0; k < n; k++) {
            tok[k] = lf_shard_synthetic_token(5, d, k, n, VOCAB);
            mask[k] = !masked(d, k);
        }
        lf_shard_doc doc = {.tokens = tok, .n = n, .mask = d % 3 == 2 ? NULL : mask};
        if (lf_shard_append_doc(w, &doc, &err) < 0)
            tap_bail("%s", err.text);
    }
    if (lf_shard_finish(w, &st, &err) < 0 || lf_artifact_init(&a, "shards", &err) < 0 ||
        lf_artifact_add(&a, "train-00000.h5", st.bytes, st.sha256, &err) < 0 ||
        lf_artifact_publish(&a, dir, &err) < 0)
        tap_bail("%s", err.text);
    lf_artifact_fini(&a);
}

static void test_mask(enum lf_pack_policy policy)
{
    lf_loader_source s = {dir_m, 1};
    lf_loader_config c = config(&s, 1, 4);
    lf_err err = LF_ERR_INIT;
    lf_loader_step st;
    const lf_loader_batch *b;
    int64_t bad = 0, off = 0;
    c.megatron = NULL;
    c.policy = policy;
    lf_loader *l = must_open(&c);
    for (int i = 0; i < 60; i++) {
        bad += lf_loader_begin_step(l, &st, &err) != 1 || lf_loader_next(l, &b, &err) < 0;
        int64_t trained = 0;
        for (int r = 0; r < 4; r++) {
            json_t *d = lf_loader_describe(l, b->sample_ids[r], &err), *g;
            size_t k;
            int32_t at = r * LEN;
            json_array_foreach(json_object_get(d, "segments"), k, g)
            {
                uint64_t doc = (uint64_t)json_integer_value(json_object_get(g, "doc"));
                uint32_t first = (uint32_t)json_integer_value(json_object_get(g, "first"));
                uint32_t n = (uint32_t)json_integer_value(json_object_get(g, "len"));
                uint32_t len = lf_shard_synthetic_len(5, doc, 60);
                for (uint32_t t = first; t < first + n; t++, at++) {
                    bool target = t + 1 < len && !masked(doc, t + 1);
                    int32_t want =
                        target ? (int32_t)lf_shard_synthetic_token(5, doc, t + 1, len, VOCAB) : -1;
                    bad += b->targets[at] != want;
                    trained += target;
                    off += t + 1 < len && !target;
                }
            }
            json_decref(d);
        }
        bad += trained != st.trained || trained != b->trained;
    }
    tap_ok(bad == 0 && off > 200,
           "masked tokens are no targets and not counted (%lld of them, policy %d)", (long long)off,
           (int)policy);
    lf_loader_close(l);
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    snprintf(dir_a, sizeof dir_a, "%s/a", tap_tmpdir());
    snprintf(dir_b, sizeof dir_b, "%s/b", tap_tmpdir());
    snprintf(dir_m, sizeof dir_m, "%s/m", tap_tmpdir());
    if (lf_shard_write_synthetic(dir_a, &(struct lf_shard_synthetic){40, 5, 3, 60, VOCAB, 1},
                                 &err) < 0 ||
        lf_shard_write_synthetic(dir_b, &(struct lf_shard_synthetic){70, 5, 1, 50, VOCAB, 2},
                                 &err) < 0)
        tap_bail("%s", err.text);
    write_masked(dir_m);
    TAP(4, test_rows());
    TAP(2, test_blend(true));
    TAP(2, test_blend(false));
    TAP(1, test_ranks());
    TAP(1, test_order_id());
    TAP(6, test_refusals());
    TAP(1, test_mask(LF_PACK_CONCAT));
    TAP(1, test_mask(LF_PACK_BFD));
    return tap_done();
}
