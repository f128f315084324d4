/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints from layout to layout: 1, 2, 3, 4 and 8 ranks with zero 0 to 3 each save the same
 * weights and moments, and every one of these checkpoints is loaded by every layout. All ranks of a
 * layout are stores of this process. Identities are equal, and what a rank keeps after loading has
 * the bytes of what was saved.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/rng.h"
#include "engine/model/weights.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;

/* A matrix of several blocks of the norm, where ranges may be cut, tensors that are one range, and
 * odd sizes. */
static const struct gu_model model = {.layers = 2,
                                      .c = 104,
                                      .heads = 2,
                                      .groups = 1,
                                      .d = 24,
                                      .ffn = 200,
                                      .vocab = 997,
                                      .max_pos = 64,
                                      .glu = true,
                                      .bias = true,
                                      .layer_norm = true,
                                      .rows = 16};

static const int counts[] = {1, 2, 3, 4, 8};
enum { COUNTS = 5, STAGES = 4, LAYOUTS = COUNTS * STAGES, MOST = 8 };

struct layout {
    int ranks, zero;
    struct gu rank[MOST];
    uint8_t identity[LF_HASH_BYTES];
};
static struct layout layout[LAYOUTS];
static const enum lf_pkind kinds[] = {LF_P_MASTER, LF_P_COPY, LF_P_M, LF_P_V};
enum { KINDS = 4 };

/* ---- what is saved ---- */

static float *moment_of(const lf_pstore *ps, int i, enum lf_pkind kind, int64_t *n)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    *n = 1;
    for (int k = 0; k < d->ndim; k++)
        *n *= d->dims[k];
    float *x = malloc((size_t)*n * sizeof *x);
    for (int64_t e = 0; e < *n; e++)
        x[e] = (float)lf_rng_f64(11, lf_name_site(d->name) + (uint32_t)kind, (uint64_t)e);
    return x;
}

static void fill(struct gu *u)
{
    if (lf_pstore_init(u->ps, 7, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < lf_pstore_count(u->ps); i++)
        for (enum lf_pkind k = LF_P_M; k <= LF_P_V; k++) {
            int64_t n;
            float *x = moment_of(u->ps, i, k, &n);
            if (lf_pstore_write_kind(u->ps, i, k, LF_F32, x, &err))
                tap_bail("%s", err.text);
            free(x);
        }
}

/* Not a number, everywhere. */
static void forget(struct gu *u)
{
    for (int k = 0; k < KINDS; k++) {
        void *data;
        size_t bytes;
        lf_pstore_block(u->ps, kinds[k], false, &data, &bytes);
        if (bytes)
            memset(data, 0xff, bytes);
    }
    lf_pstore_touch(u->ps);
}

static void open_layout(struct layout *l, const struct gu_opts *base, int ranks, int zero)
{
    *l = (struct layout){.ranks = ranks, .zero = zero};
    for (int r = 0; r < ranks; r++) {
        struct gu_opts o = *base;
        o.optimizer = true;
        o.dp_ranks = ranks;
        o.dp_rank = r;
        o.zero = zero;
        o.plan.threads = 1;
        gu_open(&l->rank[r], &model, &o);
    }
}

static const char *dir_of(const struct layout *l)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%d-%d", tap_tmpdir(), l->ranks, l->zero);
    return path;
}

/* ---- saving ---- */

/* The part of a rank, or everything where rank 0 writes alone. */
static lf_ckpt_writer *save_part(const struct layout *l, int r, const json_t *state, lf_arena *a)
{
    const bool parts = l->zero > 0 && l->ranks > 1;
    lf_ckpt_tensor *t;
    lf_ckpt_writer *w = NULL;
    size_t n;
    if (lf_weights_tensors(&t, &n, l->rank[r].ps,
                           &(struct lf_weights_what){LF_WEIGHTS_PREFIX, true, NULL}, a, &err))
        tap_bail("%s", err.text);
    const struct lf_weights_share share = {
        .ps = l->rank[r].ps, .prefix = LF_WEIGHTS_PREFIX, .rank = r, .ranks = l->ranks};
    if (parts)
        lf_weights_share(t, &n, &share);
    const lf_ckpt_options o = {
        .threads = 1, .part = parts ? r : 0, .parts = parts ? l->ranks : 0, .run = 7};
    if (lf_ckpt_writer_create(&w, t, n, &o, &err) ||
        lf_ckpt_save_begin(w, dir_of(l), state, &err) || lf_ckpt_save_wait(w, NULL, &err) < 0)
        tap_bail("%s", err.text);
    return w;
}

static void save(struct layout *l)
{
    json_t *state = json_pack("{s:i}", "step", 3);
    lf_arena *a = lf_arena_create(&err);
    lf_ckpt_writer *w[MOST];
    const char *receipts[MOST];
    const int writers = l->zero > 0 ? l->ranks : 1;
    for (int r = 0; r < writers; r++) {
        w[r] = save_part(l, r, state, a);
        receipts[r] = lf_ckpt_save_receipt(w[r]);
    }
    const struct lf_ckpt_parts parts = {
        .receipts = receipts, .n = (size_t)writers, .state = state, .threads = 1};
    if (writers > 1 && lf_ckpt_publish(dir_of(l), &parts, NULL, &err))
        tap_bail("%s", err.text);
    for (int r = 0; r < writers; r++)
        lf_ckpt_writer_destroy(w[r]);
    lf_arena_destroy(a);
    json_decref(state);
    lf_ckpt *c;
    if (lf_ckpt_open(&c, dir_of(l), 1, &err))
        tap_bail("%s", err.text);
    memcpy(l->identity, lf_ckpt_identity(c), LF_HASH_BYTES);
    lf_ckpt_close(c);
}

/* ---- loading ---- */

/* What a rank keeps of a kind of a tensor, against the one rank that has everything. */
static int64_t compare(const struct gu *one, const struct gu *u, int i, enum lf_pkind kind,
                       int *wrong)
{
    struct lf_pview want, got;
    if (lf_pstore_view(u->ps, i, kind, &got) != 1)
        return 0;
    const size_t size = lf_dtype_size(got.dtype);
    *wrong += lf_pstore_view(one->ps, i, kind, &want) != 1 || want.dtype != got.dtype ||
              memcmp((const char *)want.data + (size_t)got.first * size, got.data, got.bytes) != 0;
    return (int64_t)got.bytes;
}

/* Layout `to` loads what `from` saved. */
static int load(const struct layout *from, struct layout *to, const struct gu *one, int64_t *bytes)
{
    int wrong = 0;
    for (int r = 0; r < to->ranks; r++) {
        struct gu *u = &to->rank[r];
        lf_ckpt *c;
        forget(u);
        if (lf_ckpt_open_checked(&c, dir_of(from), LF_CKPT_CHECK_READS, 1, &err) ||
            lf_weights_load(u->ps, c, LF_WEIGHTS_PREFIX, true, &err))
            tap_bail("%s", err.text);
        lf_ckpt_close(c);
        for (int i = 0; i < lf_pstore_count(u->ps); i++)
            for (int k = 0; k < KINDS; k++)
                *bytes += compare(one, u, i, kinds[k], &wrong);
    }
    return wrong;
}

/* All ordered pairs of the first `layouts`. */
static void test_pairs(const struct gu_opts *o, int layouts, const char *name)
{
    const struct layout *first = &layout[0];
    int different = 0;
    for (int k = 0; k < layouts; k++) {
        open_layout(&layout[k], o, counts[k / STAGES], k % STAGES);
        for (int r = 0; r < layout[k].ranks; r++)
            fill(&layout[k].rank[r]);
        save(&layout[k]);
        different += memcmp(layout[k].identity, first->identity, LF_HASH_BYTES) != 0;
    }
    tap_i64(different, 0, "the checkpoints of all layouts have one identity");
    struct gu one; /* what was saved, untouched */
    struct gu_opts whole = *o;
    whole.optimizer = true;
    gu_open(&one, &model, &whole);
    fill(&one);
    for (int to = 0; to < layouts; to++) {
        int wrong = 0;
        int64_t bytes = 0;
        for (int from = 0; from < layouts; from++)
            wrong += load(&layout[from], &layout[to], &one, &bytes);
        tap_ok(wrong == 0 && bytes > 0,
               "%s, ranks %d with zero = %d load every layout's checkpoint: %lld bytes as saved",
               name, layout[to].ranks, layout[to].zero, (long long)bytes);
    }
    forget(&layout[layouts - 1].rank[1]); /* the comparison can fail */
    int wrong = 0;
    for (int i = 0; i < lf_pstore_count(one.ps); i++)
        compare(&one, &layout[layouts - 1].rank[1], i, LF_P_M, &wrong);
    tap_ok(wrong > 0, "moments that were not loaded are seen");
    for (int k = 0; k < layouts; k++) {
        for (int r = 0; r < layout[k].ranks; r++)
            gu_close(&layout[k].rank[r]);
        if (lf_artifact_remove(dir_of(&layout[k]), &err))
            tap_bail("%s", err.text);
    }
    gu_close(&one);
}

int main(void)
{
    TAP(LAYOUTS + 2, test_pairs(&gu_bf16, LAYOUTS, "bf16"));
    TAP(3 * STAGES + 2, test_pairs(&gu_f32, 3 * STAGES, "f32, up to 3 ranks"));
    return tap_done();
}
