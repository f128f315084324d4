/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of ranks on a mesh (data, tensor). What the ranks write of a tensor covers it once. What
 * they keep of it are as many copies as layout and zero say. And what each moves on the tensor axis
 * is what the division of a decoder costs (Shoeybi et al. 2019, Korthikanti et al. 2022). No memory
 * is bound.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"
#include "engine/model/decoder.h"
#include "tests/tap/tap.h"

enum { ROWS = 32, DOCS = 2, RANKS = 16, LAYERS = 2, HIDDEN = 64 };

struct mesh {
    int data, tensor, zero;
    bool sequence, bf16;
    bool few; /* a vocabulary that shares a unit with other tensors where nothing prevents it */
};

struct rank {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *p;
};

static lf_decoder *decoder(bool few, bool latent)
{
    static const char *const set[][2] = {
        {"layers", "2"},   {"hidden", "64"}, {"heads", "8"},    {"kv_heads", "2"},
        {"qkv_bias", "1"}, {"ffn", "128"},   {"vocab", "1037"}, {"max_positions", "64"},
        {"qk_norm", "1"},  {"out_bias", "1"}};
    static const char *const latents[][2] = {
        {"kv_heads", "8"}, {"qkv_bias", "0"}, {"qk_norm", "0"}, {"kv_lora", "12"},
        {"nope_dim", "6"}, {"rope_dim", "4"}, {"v_dim", "5"}};
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    lf_model_config_defaults(&c);
    int rc = lf_model_config_family(&c, "llama", "test", &err);
    for (size_t i = 0; i < sizeof set / sizeof *set && rc == 0; i++)
        rc = lf_model_config_set(&c, set[i][0], set[i][1], "test", &err);
    for (size_t i = 0; latent && i < sizeof latents / sizeof *latents && rc == 0; i++)
        rc = lf_model_config_set(&c, latents[i][0], latents[i][1], "test", &err);
    if (rc == 0 && few)
        rc = lf_model_config_set(&c, "vocab", "101", "test", &err);
    rc = rc != 0 ? rc : lf_model_config_finish(&c, &err);
    lf_decoder *d = rc == 0 ? lf_decoder_create(&c, ROWS, &err) : NULL;
    if (!d)
        tap_bail("%s", err.text);
    return d;
}

static struct rank plan_of(const struct mesh *m, int data, int tensor)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_layout l = {
        .tensor = m->tensor, .tensor_rank = tensor, .sequence = m->sequence};
    const struct lf_plan_ranks ranks = {
        .ranks = m->data, .rank = data, .bucket_bytes = 16384, .zero = m->zero};
    const struct lf_plan_opts o = {.threads = 1, .compute = m->bf16 ? LF_BF16 : LF_F32};
    const struct lf_adamw_opts adamw = {.eps = 1e-8f};
    const struct lf_decoder_rows rows = {.rows = ROWS, .n_docs = DOCS};
    struct rank r = {.d = decoder(m->few, false), .ps = lf_pstore_create(&err)};
    int rc = r.ps ? lf_pstore_set_layout(r.ps, &l, &err) : LF_ENOMEM;
    rc = rc != 0 ? rc : lf_decoder_declare(r.d, r.ps, &err);
    r.p = rc == 0 ? lf_plan_create(r.ps, &o, &err) : NULL;
    lf_graph *g = r.p ? lf_decoder_loss_graph(r.d, r.ps, "train", &rows, true, &err) : NULL;
    rc = g ? lf_plan_add(r.p, g, &(struct lf_chain_opts){.train = true}, &err) : LF_ENOMEM;
    rc = rc != 0 ? rc : lf_plan_optimizer(r.p, &adamw, &err);
    rc = rc != 0 ? rc : lf_plan_data_parallel(r.p, &ranks, &err);
    rc = rc != 0 ? rc : lf_plan_finish(r.p, &err);
    if (rc != 0)
        tap_bail("%s", err.text);
    lf_graph_destroy(g);
    return r;
}

static void close_rank(struct rank *r)
{
    lf_plan_destroy(r->p);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->d);
}

/* Counts how often each element of a kind of tensor i is written: where all ranks of the data axis
 * have the same, by the first of them. */
static void count_written(const struct mesh *m, const struct rank *all, int i, enum lf_pkind kind,
                          uint8_t *times)
{
    struct lf_pstore_share s;
    for (int d = 0; d < m->data; d++)
        for (int t = 0; t < m->tensor; t++) {
            const struct rank *r = &all[d * m->tensor + t];
            lf_pstore_written(r->ps, i, kind, &s);
            for (int64_t e = s.flat[0]; e < s.flat[1] && !(s.shared && d > 0); e++)
                times[lf_box_element(&r->ps->p[i], e)]++;
        }
}

/* How many elements of a kind of tensor i the ranks keep together. */
static int64_t kept(const struct mesh *m, const struct rank *all, int i, enum lf_pkind kind)
{
    int64_t n = 0, own[2];
    for (int r = 0; r < m->data * m->tensor; r++) {
        lf_pstore_own(all[r].ps, i, kind, own);
        n += own[1] - own[0];
    }
    return n;
}

/* What they should keep: ranks of the tensor axis have a box each, which several may share, and
 * those of the data axis a part of it or all. */
static int64_t should_keep(const struct mesh *m, const struct rank *all, int i, enum lf_pkind kind)
{
    struct lf_box box;
    lf_pstore_box(all->ps, i, &box);
    const struct lf_param_desc *d = lf_pstore_desc(all->ps, i);
    const bool whole = d->shard == LF_SHARD_NONE;
    return lf_logical(d) * (whole ? m->tensor : box.replicas) *
           (lf_pstore_sharded(all->ps, i, kind) ? 1 : m->data);
}

/* Do ranks of the tensor axis that have the same of a tensor, and may have to sum its gradients,
 * keep the same part of them? */
static bool same_parts(const struct mesh *m, const struct rank *all, int i)
{
    struct lf_box box;
    int64_t first[2], own[2];
    bool same = true;
    lf_pstore_box(all->ps, i, &box);
    for (int r = 0; r < m->data * m->tensor; r++) {
        lf_pstore_own(all[r].ps, i, LF_P_GRAD, own);
        if (r % m->tensor == 0)
            memcpy(first, own, sizeof first);
        same = same && memcmp(first, own, sizeof first) == 0;
    }
    return same || (lf_pstore_desc(all->ps, i)->shard != LF_SHARD_NONE && box.replicas == 1);
}

static bool once(const uint8_t *times, int64_t n, const struct lf_param_desc *d, enum lf_pkind kind)
{
    for (int64_t e = 0; e < n; e++)
        if (times[e] != 1) {
            tap_diag("element %lld of %s of %s is written %d times", (long long)e,
                     lf_pkind_name(kind), d->name, times[e]);
            return false;
        }
    return true;
}

/* A sum of n floats over so many ranks, as rank r counts what it sends. */
static double sum_bytes(size_t n, int ranks, int r)
{
    const size_t p = (size_t)ranks, own = n / p + ((size_t)r < n % p);
    return n * 4 <= LF_PLAN_SHORT_SUM ? (double)(n * 4 * (p - 1))
                                      : (double)((n - own + own * (p - 1)) * 4);
}

/* A layer has two products of columns and two of rows. Each pair costs a sum in the forward and one
 * in the backward pass, and so do the vocabulary's two ends; with divided rows each of these is a
 * gather and a scatter. The gradient of the embedding is gathered in f32 in any precision. The head
 * exchanges reductions. */
static struct lf_plan_moved micro_batch(const struct mesh *m, const struct rank *r)
{
    enum { SUMS = 4 * LAYERS + 2 };
    const int others = m->tensor - 1, rank = r->ps->layout.tensor_rank;
    const size_t n = (size_t)ROWS * HIDDEN, each = m->bf16 ? 2 : 4;
    const double row_parts = (double)(others * ROWS * LF_XENT_PART),
                 part = (double)(n / (size_t)m->tensor) * others;
    if (m->tensor == 1)
        return (struct lf_plan_moved){0, 0};
    return m->sequence
               ? (struct lf_plan_moved){2 * SUMS + 1,
                                        part * (4 * (SUMS + 1) + (double)each * (SUMS - 1)) +
                                            row_parts}
               : (struct lf_plan_moved){SUMS + 1, SUMS * sum_bytes(n, m->tensor, rank) + row_parts};
}

/* Gradients that are partial sums: those of norms of heads, with divided rows those of all norms.
 * Then weights and biases of keys and values that ranks share, and the blocks of the norm. */
static int64_t sums_of_step(const struct mesh *m)
{
    const int norms = 2 * LAYERS + (m->sequence ? 2 * LAYERS + 1 : 0),
              shared = m->tensor > 2 ? 4 * LAYERS : 0;
    return m->tensor == 1 ? 0 : norms + shared + 1;
}

static bool moves(const struct mesh *m, const struct rank *r)
{
    struct lf_plan_comm c;
    const struct lf_plan_moved want = micro_batch(m, r),
                               pass = lf_plan_pass_axis(r->p, LF_AXIS_TENSOR, 0, true);
    lf_plan_comm(r->p, &c);
    if (c.micro_tensor.messages == want.messages && c.micro_tensor.bytes == want.bytes &&
        pass.messages == want.messages &&
        (m->zero < 2 ? c.tensor.messages == sums_of_step(m)
                     : c.tensor.messages > 0 && c.tensor.messages <= sums_of_step(m)))
        return true; /* with zero = 2 and 3 a rank sums what it keeps a part of */
    tap_diag("%lld calls of %.0f bytes, expected %lld of %.0f; %lld sums, expected %lld",
             (long long)c.micro_tensor.messages, c.micro_tensor.bytes, (long long)want.messages,
             want.bytes, (long long)c.tensor.messages, (long long)sums_of_step(m));
    return false;
}

/* The bytes that plans name for the stores of all ranks are those of the elements that they keep,
 * and of a group's rounding up for each kind. */
static bool bytes_add_up(const struct mesh *m, const struct rank *all, int64_t elements)
{
    const int64_t groups = (int64_t)all->ps->n_g, ranks = (int64_t)m->data * m->tensor;
    int64_t bytes = 0;
    for (int r = 0; r < ranks; r++) {
        struct lf_plan_bytes b;
        lf_plan_bytes(all[r].p, &b);
        bytes += (int64_t)(b.params + b.grads + b.optimizer);
    }
    const int64_t over = bytes - elements;
    return over >= 0 && over < ranks * groups * LF_P_KINDS * (int64_t)all->p->o.target->align;
}

static void test_mesh(const struct mesh *m)
{
    static const enum lf_pkind kinds[] = {LF_P_MASTER, LF_P_M, LF_P_V, LF_P_GRAD, LF_P_COPY};
    struct rank all[RANKS];
    bool written = true, keep = true, moved = true;
    int parts = 0;
    int64_t bytes = 0;
    for (int r = 0; r < m->data * m->tensor; r++) {
        all[r] = plan_of(m, r / m->tensor, r % m->tensor);
        moved = moved && moves(m, &all[r]);
    }
    for (int i = 0; i < lf_pstore_count(all->ps); i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            keep = keep && same_parts(m, all, i);
            const struct lf_param_desc *d = lf_pstore_desc(all->ps, i);
            if (!lf_pstore_planned(all->ps, i, kinds[k]))
                continue;
            const int64_t n = lf_logical(d);
            uint8_t *times = calloc((size_t)n, 1);
            count_written(m, all, i, kinds[k], times);
            written = written && once(times, n, d, kinds[k]);
            free(times);
            keep = keep && kept(m, all, i, kinds[k]) == should_keep(m, all, i, kinds[k]);
            bytes += kept(m, all, i, kinds[k]) *
                     (int64_t)lf_dtype_size(lf_pstore_type(all->ps, kinds[k]));
            parts += lf_pstore_sharded(all->ps, i, kinds[k]);
        }
    tap_ok(written, "data %d, tensor %d, zero = %d%s%s: every element is written once", m->data,
           m->tensor, m->zero, m->sequence ? ", rows divided" : "", m->bf16 ? ", bf16" : "");
    tap_ok(keep && (parts > 0) == (m->zero > 0) && bytes_add_up(m, all, bytes),
           "and kept as often as boxes and parts say: %lld bytes in all, %d kinds in parts",
           (long long)bytes, parts);
    tap_ok(moved, "and every rank moves what the division says");
    for (int r = 0; r < m->data * m->tensor; r++)
        close_rank(&all[r]);
}

/* A step of generation: two sums a layer and that of the embedding, then the logits, of which each
 * rank gives as many columns as the one with the most. The cache has the heads of keys that the
 * rank has: of 2, which are 16 of 64 channels. Of latents, 12 and 4 channels, every rank has all.
 */
static void test_generation(int tensor, bool latent)
{
    enum {
        STEP = 4,
        PAGES = 3,
        PAGE = 64,
        SEQUENCES = 2,
        SUMS = 2 * LAYERS + 1,
        VOCABULARY = 1037
    };
    const struct lf_decoder_paged o = {.rows = STEP,
                                       .n_seq = SEQUENCES,
                                       .max_pages = PAGES,
                                       .n_pages = PAGES,
                                       .page_tokens = PAGE,
                                       .n_select = SEQUENCES,
                                       .cache = LF_F32,
                                       .latent = latent};
    const struct lf_plan_opts po = {.threads = 1, .compute = LF_F32};
    const int64_t each = lf_vocabulary_rows(VOCABULARY, tensor);
    bool moved = true, cached = true;
    for (int t = 0; t < tensor; t++) {
        lf_err err = LF_ERR_INIT;
        const struct lf_layout l = {.tensor = tensor, .tensor_rank = t};
        struct rank r = {.d = decoder(false, latent), .ps = lf_pstore_create(&err)};
        struct lf_plan_bytes b = {0};
        int rc = lf_pstore_set_layout(r.ps, &l, &err);
        rc = rc != 0 ? rc : lf_decoder_declare(r.d, r.ps, &err);
        r.p = rc == 0 ? lf_plan_create(r.ps, &po, &err) : NULL;
        lf_graph *g = r.p ? lf_decoder_paged_graph(r.d, r.ps, "step", &o, &err) : NULL;
        rc = g ? lf_plan_add(r.p, g, &(struct lf_chain_opts){.slots = 1}, &err) : LF_ENOMEM;
        rc = rc != 0 ? rc : lf_plan_finish(r.p, &err);
        if (rc != 0)
            tap_bail("%s", err.text);
        lf_graph_destroy(g);
        const struct lf_plan_moved m = lf_plan_pass_axis(r.p, LF_AXIS_TENSOR, 0, false);
        moved = moved && m.messages == SUMS + 1 &&
                m.bytes == SUMS * sum_bytes((size_t)STEP * HIDDEN, tensor, t) +
                               (double)(SEQUENCES * each * 4 * (tensor - 1));
        lf_plan_bytes(r.p, &b);
        const size_t wide = latent ? 12 + 4 : 8 * (tensor < 2 ? 2 : 1) * 2;
        cached = cached && b.state == (size_t)PAGES * PAGE * wide * LAYERS * 4;
        close_rank(&r);
    }
    tap_ok(moved, "generation by %d ranks: two sums a layer, and all columns of the logits",
           tensor);
    tap_ok(cached, "each has a cache of %s", latent ? "all latents" : "the heads that it has");
}

int main(void)
{
    static const struct mesh meshes[] = {{.data = 1, .tensor = 1},
                                         {.data = 1, .tensor = 2},
                                         {.data = 1, .tensor = 4, .sequence = true},
                                         {.data = 1, .tensor = 8, .bf16 = true},
                                         {.data = 2, .tensor = 2, .sequence = true},
                                         {.data = 2, .tensor = 2, .zero = 1},
                                         {3, 2, 1, .sequence = true, .bf16 = true},
                                         {.data = 2, .tensor = 8, .zero = 1},
                                         {4, 4, 1, .sequence = true, .bf16 = true},
                                         {3, 4, 2, .few = true},
                                         {2, 4, 3, .sequence = true, .bf16 = true, .few = true},
                                         {.data = 2, .tensor = 8, .zero = 3}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        TAP(3, test_mesh(&meshes[i]));
    TAP(2, test_generation(2, false));
    TAP(2, test_generation(4, false));
    TAP(2, test_generation(4, true));
    return tap_done();
}
