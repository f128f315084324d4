/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents packed by the loader, through real graphs: the loss and the gradients of a packed
 * micro-batch are the sums of those of its documents alone, because attention stays in a document,
 * positions begin anew in each, and the first token of each is nobody's target. Each of the three
 * left out is noticed. And: data without a token to train on is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/train/loader.h"
#include "tests/unit/graph_util.h"

enum { DOCS = 12, ROWS = 48 };
static const uint32_t lens[DOCS] = {5, 13, 7, 12, 8, 21, 4, 16, 30, 9, 3, 11};

static uint32_t token_of(uint32_t d, uint32_t k)
{
    return 1 + (d * 37 + k * k * 5 + k * 11) % 59;
}
static bool trained_of(uint32_t d, uint32_t k)
{
    return k > 0 && k >= lens[d] / 3 && (d + k) % 7 != 3;
}

/* none: nothing is trained but first tokens. */
static const char *make(const char *name, bool none)
{
    static char at[4100];
    char path[4200];
    lf_shard_info info = {.vocab_size = 61, .eos_id = 0, .source = "packed"};
    lf_err err = LF_ERR_INIT;
    lf_shard_writer *w = NULL;
    lf_artifact a = {0};
    memset(info.tokenizer_sha256, 'c', LF_HASH_HEX - 1);
    snprintf(at, sizeof at, "%s/%s", tap_tmpdir(), name);
    snprintf(path, sizeof path, "%s/train-00000.h5", at);
    int rc = lf_io_mkdirs(at, 0777, &err);
    rc = rc ? rc : lf_shard_create(&w, path, &info, 0, &err);
    for (uint32_t d = 0; d < DOCS && !rc; d++) {
        uint32_t tok[64];
        uint8_t mask[64];
        for (uint32_t k = 0; k < lens[d]; k++) {
            tok[k] = token_of(d, k);
            mask[k] = none ? k == 0 : trained_of(d, k);
        }
        rc = lf_shard_append_doc(w, &(lf_shard_doc){.tokens = tok, .n = lens[d], .mask = mask},
                                 &err);
    }
    rc = rc ? rc : lf_shard_finish(w, NULL, &err);
    rc = rc ? rc : lf_artifact_init(&a, "shards", &err);
    rc = rc ? rc : lf_artifact_add_hashed(&a, at, "train-00000.h5", &err);
    rc = rc ? rc : lf_artifact_publish(&a, at, &err);
    lf_artifact_fini(&a);
    if (rc)
        tap_bail("%s", err.text);
    return at;
}

static int open_loader(lf_loader **l, const char *dir, enum lf_loader_mode mode, lf_err *err)
{
    static const lf_loader_ramp ramp[] = {{0, 1}};
    const lf_loader_source src = {dir, 1};
    const lf_loader_config c = {.mode = mode,
                                .split = "train",
                                .sources = &src,
                                .n_sources = 1,
                                .T = ROWS,
                                .B = 1,
                                .policy = LF_PACK_BFD,
                                .max_segs = GU_DOCS,
                                .seed = 3,
                                .ramp = ramp,
                                .n_ramp = 1};
    return lf_loader_open(l, &c, err);
}

enum fault { NONE, ATTENTION, POSITIONS, FIRST_TOKENS };

/* What a loader without one of the three rules would have made. */
static void spoil(struct gu_batch *b, int n_segs, enum fault f)
{
    for (int s = 0; s + 1 < n_segs && f == FIRST_TOKENS; s++)
        if (b->cu[s + 1] < ROWS)
            b->target[b->cu[s + 1] - 1] = b->token[b->cu[s + 1]];
    for (int i = 0; i < ROWS && f == POSITIONS; i++)
        b->position[i] = i;
    for (int s = 1; s <= GU_DOCS && f == ATTENTION; s++)
        b->cu[s] = ROWS;
}

struct sums {
    double loss;
    int64_t trained;
    float *grad;
    size_t n;
};

static struct sums finish(struct gu *u, int64_t trained)
{
    struct sums s = {.loss = gu_result(u).loss_sum, .trained = trained};
    s.grad = gu_grads(u, &s.n);
    gu_close(u);
    return s;
}

static struct sums packed(const struct gu_model *m, const char *dir, enum fault f)
{
    struct gu u;
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    lf_loader_step step;
    int64_t trained = 0, n = 0;
    struct gu_opts o = gu_f32;
    gu_open(&u, m, &o);
    gu_record(&u, 1, 0);
    if (open_loader(&l, dir, LF_LOADER_VALID, &err) != 0)
        tap_bail("%s", err.text);
    for (; lf_loader_begin_step(l, &step, &err) == 1; n++) {
        const lf_loader_batch *b = NULL;
        struct gu_batch g = {.trained = 0};
        if (lf_loader_next(l, &b, &err) != 0)
            tap_bail("%s", err.text);
        memcpy(g.token, b->tokens, ROWS * 4);
        memcpy(g.target, b->targets, ROWS * 4);
        memcpy(g.position, b->positions, ROWS * 4);
        memcpy(g.cu, b->cu_seqlens, sizeof g.cu);
        spoil(&g, b->n_segs, f);
        gu_feed(&u, u.train, 0, &g);
        gu_fwd_bwd(&u, 0, n == 0 ? LF_FIRST : LF_ACCUM);
        trained += b->trained;
    }
    lf_loader_close(l);
    return finish(&u, trained);
}

static struct sums apart(const struct gu_model *m)
{
    struct gu u;
    int64_t trained = 0;
    struct gu_opts o = gu_f32;
    gu_open(&u, m, &o);
    gu_record(&u, 1, 0);
    for (uint32_t d = 0; d < DOCS; d++) {
        struct gu_batch g = {.trained = 0};
        for (uint32_t k = 0; k < ROWS; k++) {
            g.token[k] = k < lens[d] ? (int32_t)token_of(d, k) : 0;
            g.target[k] =
                k + 1 < lens[d] && trained_of(d, k + 1) ? (int32_t)token_of(d, k + 1) : -1;
            g.position[k] = (int32_t)(k < lens[d] ? k : k - lens[d]);
            trained += g.target[k] >= 0;
        }
        g.cu[1] = (int32_t)lens[d];
        for (int s = 2; s <= GU_DOCS; s++)
            g.cu[s] = ROWS;
        gu_feed(&u, u.train, 0, &g);
        gu_fwd_bwd(&u, 0, d == 0 ? LF_FIRST : LF_ACCUM);
    }
    return finish(&u, trained);
}

static void test_model(struct gu_model m, const char *name)
{
    const char *dir = make(name, false);
    m.dropout = 0;
    m.rows = ROWS;
    struct sums one = apart(&m), all = packed(&m, dir, NONE);
    double off = fabs(all.loss - one.loss) / one.loss;
    tap_i64(all.trained, one.trained, "as many targets");
    tap_ok(off < 1e-6, "%s: packed loss %.9f, of documents alone %.9f: relative difference %.1e",
           name, all.loss, one.loss, off);
    double grad = gu_rel_diff(all.grad, one.grad, one.n);
    tap_ok(all.n == one.n && grad < 1e-5, "gradients of %zu elements, relative difference %.1e",
           one.n, grad);
    for (int f = ATTENTION; f <= FIRST_TOKENS; f++) {
        static const char *const what[] = {"", "attention over documents", "positions that run on",
                                           "first tokens as targets"};
        if (f == POSITIONS && m.rope)
            continue; /* rotations are relative: within a document nothing changes */
        struct sums bad = packed(&m, dir, (enum fault)f);
        double by = fabs(bad.loss - one.loss) / one.loss;
        tap_ok(by > 1e-4, "%s are noticed: %.1e", what[f], by);
        free(bad.grad);
    }
    free(one.grad);
    free(all.grad);
}

/* A document longer than a sequence is not lost: its pieces are, together, all of it; and it is
 * counted. */
static void test_long(void)
{
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    const lf_loader_source src = {make("long", false), 1};
    const lf_loader_config c = {.mode = LF_LOADER_VALID,
                                .split = "train",
                                .sources = &src,
                                .n_sources = 1,
                                .T = 12,
                                .B = 1,
                                .policy = LF_PACK_BFD,
                                .max_segs = GU_DOCS};
    lf_loader_step step;
    int64_t trained = 0, want = 0;
    tap_rc(lf_loader_open(&l, &c, &err), 0, &err, NULL, "sequences of 12");
    for (const lf_loader_batch *b;
         lf_loader_begin_step(l, &step, &err) == 1 && lf_loader_next(l, &b, &err) == 0;)
        trained += b->trained;
    for (uint32_t d = 0; d < DOCS; d++)
        for (uint32_t k = 0; k < lens[d]; k++)
            want += trained_of(d, k);
    tap_i64(trained, want, "every target is there");
    tap_i64((int64_t)lf_loader_cut(l, 0), 4, "four documents are counted as cut");
    lf_loader_close(l);
}

static void test_refused(void)
{
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    const char *dir = make("none", true);
    tap_rc(open_loader(&l, dir, LF_LOADER_TRAIN, &err), LF_EINVAL, &err,
           "not one token of its train split is trained", "data without a token to train on");
    lf_loader_close(l);
}

int main(void)
{
    TAP(5, test_model(gu_llama, "llama"));
    TAP(6, test_model(gu_gpt2, "gpt2"));
    TAP(3, test_long());
    TAP(1, test_refused());
    return tap_done();
}
