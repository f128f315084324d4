/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder cut into chunks has the bits of the whole model: loss and every gradient, for the
 * switches of all families, in f32 and bf16, with dropout, recomputation, adapters, experts and
 * several micro-batches in flight. Only a tied embedding, whose gradient is made in two chunks, is
 * added in another order.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/config_priv.h"
#include "tests/tap/tap.h"
#include "tests/unit/chunk_rig.h"

static const struct rig_way ways[] = {
    {.name = "two, uneven", .n = 2, .end = {1, 4}, .micro = 3, .in_flight = true, .plain = true},
    {.name = "three, none in the middle", .n = 3, .end = {2, 2, 4}, .micro = 3, .compute = LF_BF16},
    {.name = "a layer each",
     .n = 4,
     .end = {1, 2, 3, 4},
     .micro = 3,
     .in_flight = true,
     .compute = LF_BF16,
     .recompute = LF_RECOMPUTE_SELECTIVE},
    {.name = "ends alone",
     .n = 4,
     .end = {0, 3, 4, 4},
     .micro = 3,
     .in_flight = true,
     .recompute = LF_RECOMPUTE_FULL},
    {.name = "split",
     .n = 3,
     .end = {1, 3, 4},
     .micro = 3,
     .in_flight = true,
     .split = true,
     .compute = LF_BF16},
    {.name = "uncut and split", .micro = 3, .in_flight = true, .split = true},
    {.name = "in one plan",
     .n = 4,
     .end = {1, 2, 3, 4},
     .micro = 3,
     .in_flight = true,
     .together = true,
     .recompute = LF_RECOMPUTE_SELECTIVE},
    {.name = "in one plan and split",
     .n = 3,
     .end = {2, 2, 4},
     .micro = 3,
     .split = true,
     .together = true,
     .recompute = LF_RECOMPUTE_SELECTIVE},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void compare(const struct rig_model *m, const struct rig_way *w,
                    const struct rig_result *whole)
{
    static struct rig_result cut;
    const char *name = "";
    rig_run(m, w, &cut);
    const bool ran = !whole->error[0] && !cut.error[0];
    if (tap_ok(ran, "%s, %s: runs%s%s%s", m->name, w->name, ran ? "" : ": ", whole->error,
               cut.error)) {
        const int bad = rig_differing(m, whole, &cut, &name);
        tap_ok(bad == 0 && (whole->n_t > 0) == (m->head < RIG_SCORING),
               "every gradient has the bits of the whole model: %d of %d differ %s", bad,
               whole->n_t, name);
        tap_ok(rig_same_record(&cut, whole), "loss and sums too: %.17g, %.17g", cut.rec.loss_sum,
               whole->rec.loss_sum);
        bool ends = true;
        for (int k = 0; k < w->n; k++)
            ends = ends && cut.tokens[k] == (k == 0) &&
                   cut.targets[k] == (k == w->n - 1 && m->head != RIG_LOGITS);
        tap_ok(ends, "the first chunk alone reads tokens, the last alone targets");
    } else {
        for (int i = 0; i < 3; i++)
            tap_ok(0, "not run");
    }
    rig_forget(&cut);
}

static void test_model(const struct rig_model *m)
{
    static struct rig_result f32, bf16;
    const struct rig_way a = rig_whole(&ways[0]), b = rig_whole(&ways[1]);
    rig_run(m, &a, &f32);
    rig_run(m, &b, &bf16);
    for (int i = 0; i < N_WAYS; i++)
        compare(m, &ways[i], ways[i].compute == LF_BF16 ? &bf16 : &f32);
    rig_forget(&f32);
    rig_forget(&bf16);
}

/* ---- the test itself, and what is refused ---- */

/* What is lost between chunks is seen. */
static void test_can_fail(void)
{
    static struct rig_result whole, cut;
    static const char *const what[] = {"", "gradients of x", "the balance of experts", "x"};
    const struct rig_model *m = rig_model("mixtral");
    const char *name;
    for (int spoil = 1; spoil <= 3; spoil++) {
        struct rig_way w = ways[0];
        const struct rig_way one = rig_whole(&w);
        w.spoil = spoil;
        rig_run(m, &one, &whole);
        rig_run(m, &w, &cut);
        tap_ok(rig_differing(m, &whole, &cut, &name) > 3, "%s: %s that are lost show", m->name,
               what[spoil]);
        rig_forget(&whole);
        rig_forget(&cut);
    }
}

static void test_refused(void)
{
    static const struct lf_decoder_chunk bad[] = {{.begin = 2, .end = 5},
                                                  {.begin = 3, .end = 2},
                                                  {.begin = -1, .end = 2},
                                                  {.begin = 1, .end = 4, .first = true},
                                                  {.begin = 0, .end = 3, .last = true}};
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    rig_configure(rig_model("llama"), &c);
    lf_decoder *d = lf_decoder_create(&c, 48, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct lf_decoder_rows rows = {
            .rows = RIG_ROWS, .n_docs = RIG_DOCS, .chunk = &bad[i]};
        tap_rc(lf_decoder_declare_chunks(d, ps, &bad[i], 1, &err), LF_EINVAL, &err,
               "the model has 4 layers", "a chunk that is not of the model");
        tap_ok(!lf_decoder_loss_graph(d, ps, "train", &rows, true, &err) && err.rc == LF_EINVAL,
               "nor is its graph");
        err = (lf_err)LF_ERR_INIT;
    }
    tap_i64(lf_pstore_count(ps), 0, "nothing was declared");
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

/* Chunks declare what the whole model has, in its order, each tensor once but for tied ones. */
static void test_tensors(const struct rig_model *m)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    struct lf_decoder_chunk chunk[RIG_CHUNKS];
    struct lf_decoder_tied tied[LF_DECODER_TIED];
    rig_configure(m, &c);
    lf_decoder *d = lf_decoder_create(&c, 48, &err);
    if (d && m->mtp)
        lf_decoder_train_mtp(d);
    lf_pstore *all = lf_pstore_create(&err), *both = lf_pstore_create(&err);
    const int n = rig_cut(&ways[2], 0, chunk), n_tied = lf_decoder_tied(d, chunk, n, tied);
    if (lf_decoder_declare(d, all, &err) || lf_decoder_declare_chunks(d, both, chunk, n, &err))
        tap_bail("%s", err.text);
    bool order = lf_pstore_count(all) == lf_pstore_count(both);
    for (int i = 0; i < lf_pstore_count(all) && order; i++)
        order = strcmp(lf_pstore_desc(all, i)->name, lf_pstore_desc(both, i)->name) == 0 &&
                lf_pstore_desc(all, i)->init_std == lf_pstore_desc(both, i)->init_std;
    tap_ok(order, "%s: all chunks in one store are the whole model", m->name);
    struct lf_decoder_spread spread[LF_DECODER_SPREAD];
    int count = 0, held[LF_DECODER_SPREAD] = {0};
    for (int k = 0; k < n; k++) {
        lf_pstore *ps = lf_pstore_create(&err);
        if (lf_decoder_declare_chunks(d, ps, &chunk[k], 1, &err))
            tap_bail("%s", err.text);
        count += lf_pstore_count(ps);
        if (n_tied && (k == tied[0].owner || k == tied[0].other))
            count -= lf_pstore_find(ps, tied[0].name) >= 0 && k == tied[0].other;
        for (int i = lf_decoder_spread(&c, spread) - 1; i >= 0; i--) /* the first has it */
            count -= lf_pstore_find(ps, spread[i].name) >= 0 && held[i]++ > 0;
        lf_pstore_destroy(ps);
    }
    tap_i64(count, lf_pstore_count(all), "each tensor is in one chunk, but for what is listed");
    tap_ok(n_tied == ((c.tied_head && c.output == LF_OUTPUT_TOKENS) || m->mtp) &&
               (!n_tied || (tied[0].owner == 0 && tied[0].other == n - 1)) &&
               lf_decoder_tied(d, chunk, n - 1, tied) == 0 &&
               lf_decoder_tied(d, &chunk[1], n - 1, tied) == 0,
           "a tied embedding belongs to the first chunk");
    lf_pstore_destroy(all);
    lf_pstore_destroy(both);
    lf_decoder_destroy(d);
}

/* Layers are counted in the whole model; a chunk of edges alone multiplies in bf16. */
static void test_fp8(void)
{
    const struct rig_model m = {.name = "llama, fp8", .set = {"hidden=32", "ffn=64", "kv_heads=4"}};
    const struct rig_way w = {.name = "edges apart",
                              .n = 3,
                              .end = {1, 3, 4},
                              .micro = 2,
                              .in_flight = true,
                              .compute = LF_BF16,
                              .fp8 = LF_FP8_TENSORS,
                              .fp8_edges = 1},
                         one = rig_whole(&w);
    struct rig_way none = one;
    static struct rig_result whole, plain;
    const char *name;
    none.fp8 = LF_FP8_OFF;
    rig_run(&m, &one, &whole);
    rig_run(&m, &none, &plain);
    tap_ok(!whole.error[0] && rig_differing(&m, &whole, &plain, &name) > 3,
           "8-bit products change bits: %s", whole.error);
    compare(&m, &w, &whole);
    rig_forget(&whole);
    rig_forget(&plain);
}

/* Without an encoder their positions by distance are refused. */
static bool of_two_stacks(const char *family)
{
    static const char *const names[] = {"t5", "t5-v1.1", "mt5", "umt5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], family) == 0)
            return true;
    return false;
}

/* Its switches describe how pictures are read beside its texts, and no chunk sees pictures. */
static bool of_two_towers(const char *family)
{
    return strcmp(family, "siglip") == 0;
}

/* A family with its own switches, small. */
static void test_family(const char *family)
{
    /* sizes that follow from no other key */
    static const char *const more[][2] = {{"qwen", "rope_original_positions=64"},
                                          {"kimi-linear", "scan_rank=4"}};
    struct rig_model m = {
        .name = family,
        .family = family,
        .set = {"heads=2", "kv_heads=2", "scan_heads=4", "scan_key_dim=4", "scan_value_dim=4"}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (strcmp(more[i][0], family) == 0)
            m.set[5] = more[i][1];
    if (of_two_stacks(family)) {
        m.set[5] = "layers=2";
        m.set[6] = "encoder_layers=2";
    }
    const struct rig_way w = {.name = "a layer each",
                              .n = 4,
                              .end = {1, 2, 3, 4},
                              .micro = 2,
                              .in_flight = true,
                              .split = true,
                              .compute = LF_BF16},
                         one = rig_whole(&w);
    static struct rig_result whole;
    rig_run(&m, &one, &whole);
    compare(&m, &w, &whole);
    rig_forget(&whole);
}

/* Chunks that compute fewer rows than planned, as the whole model does. */
static void test_few(void)
{
    static struct rig_result whole, all;
    const struct rig_model *m = rig_model("llama");
    struct rig_way w = ways[0], one = rig_whole(&w);
    const char *name;
    rig_run(m, &one, &all);
    w.few = one.few = true;
    rig_run(m, &one, &whole);
    tap_ok(rig_differing(m, &all, &whole, &name) > 3, "a document less is noticed");
    compare(m, &w, &whole);
    rig_forget(&whole);
    rig_forget(&all);
}

int main(void)
{
    TAP(5, test_few());
    for (size_t i = 0; i < lf_model_n_families; i++)
        if (!of_two_towers(lf_model_families[i].name))
            TAP(4, test_family(lf_model_families[i].name));
    TAP(3, test_can_fail());
    TAP(11, test_refused());
    for (int i = 0; i < rig_n_models; i++)
        TAP(3, test_tensors(&rig_models[i]));
    TAP(5, test_fp8());
    for (int i = 0; i < rig_n_models; i++)
        TAP(4 * N_WAYS, test_model(&rig_models[i]));
    return tap_done();
}
