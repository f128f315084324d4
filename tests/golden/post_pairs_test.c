/* SPDX-License-Identifier: Apache-2.0
 *
 * Preference losses against trl (post/make_pairs.py): the loop with lf_dpo's objective, from the
 * same weights, 20 steps of all pairs each. Losses, gradient norms and margins of every step within
 * 1e-4; a setting that differs leaves that.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/convert/convert.h"
#include "engine/post/dpo.h"
#include "engine/store/safetensors.h"
#include "engine/train/loop.h"
#include "tests/tap/tap.h"

enum { PAIRS = 12, TEXTS = 2 * PAIRS, STEPS = 20, MAX_TOKENS = 1024, T = 64, V = 64 };
#define BAND 1e-4

struct golden {
    char checkpoint[4096], pairs[4096], labels[4096];
    int64_t length[TEXTS], prompt[TEXTS], tokens[MAX_TOKENS];
    lf_st *st;
};

static void read_as(const lf_st *s, const char *name, enum lf_st_dtype type, int64_t n, void *dst)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e = lf_st_find(s, name);
    if (!e || e->dtype != type || (n && e->elems != n) || e->elems > MAX_TOKENS ||
        lf_st_read(s, e, 0, e->elems, dst, &err))
        tap_bail("expected.safetensors has no %s as it should be: %s", name, err.text);
}

static void write_shards(char *dir, const struct golden *g, enum lf_rows rows)
{
    lf_shard_info info = {.vocab_size = V, .eos_id = 2, .source = "golden", .rows = rows};
    lf_err err = LF_ERR_INIT;
    lf_shard_writer *w = NULL;
    lf_artifact a = {0};
    char path[4200];
    memset(info.tokenizer_sha256, '0', LF_HASH_HEX - 1);
    snprintf(dir, 4096, "%s/%s", tap_tmpdir(), lf_rows_name(rows));
    snprintf(path, sizeof path, "%s/train-00000.h5", dir);
    int rc = lf_io_mkdirs(dir, 0777, &err);
    rc = rc ? rc : lf_shard_create(&w, path, &info, 0, &err);
    for (int64_t d = 0, at = 0; d < TEXTS && !rc; at += g->length[d++]) {
        uint32_t tok[T];
        uint8_t mask[T];
        for (int64_t k = 0; k < g->length[d]; k++) {
            tok[k] = (uint32_t)g->tokens[at + k];
            mask[k] = k >= g->prompt[d];
        }
        rc = lf_shard_append_doc(
            w,
            &(lf_shard_doc){
                .tokens = tok, .n = (size_t)g->length[d], .mask = mask, .label = d % 2 == 0},
            &err);
    }
    rc = rc ? rc : lf_shard_finish(w, NULL, &err);
    rc = rc ? rc : lf_artifact_init(&a, "shards", &err);
    rc = rc ? rc : lf_artifact_add_hashed(&a, dir, "train-00000.h5", &err);
    rc = rc ? rc : lf_artifact_publish(&a, dir, &err);
    lf_artifact_fini(&a);
    if (rc)
        tap_bail("%s", err.text);
}

static void open_golden(struct golden *g)
{
    lf_err err = LF_ERR_INIT;
    char dir[4096], path[4200];
    struct lf_convert_result res;
    snprintf(dir, sizeof dir, "%s/tests/golden/post/pairs", getenv("LF_SRCDIR"));
    snprintf(path, sizeof path, "%s/expected.safetensors", dir);
    snprintf(g->checkpoint, sizeof g->checkpoint, "%s/checkpoint", tap_tmpdir());
    const struct lf_convert_opts o = {
        .from = dir, .out = g->checkpoint, .threads = 1, .pad_token = -1};
    if (lf_st_open(&g->st, path, &err) || lf_convert_import(&o, &res, &err))
        tap_bail("%s", err.text);
    read_as(g->st, "tokens", LF_ST_I64, 0, g->tokens);
    read_as(g->st, "lengths", LF_ST_I64, TEXTS, g->length);
    read_as(g->st, "prompts", LF_ST_I64, TEXTS, g->prompt);
    write_shards(g->pairs, g, LF_ROWS_PAIRS);
    write_shards(g->labels, g, LF_ROWS_UNPAIRED);
}

/* How many rows hold all units: a step of so many is a step of all of them, whatever their
 * order. */
static int64_t rows_of(const char *dir, bool kto)
{
    static const lf_loader_ramp ramp[] = {{0, 1}};
    const lf_loader_source src = {dir, 1};
    const lf_loader_config c = {.mode = LF_LOADER_TRAIN,
                                .split = "train",
                                .sources = &src,
                                .n_sources = 1,
                                .T = T,
                                .B = 1,
                                .ramp = ramp,
                                .n_ramp = 1,
                                .rows = kto ? LF_ROWS_UNPAIRED : LF_ROWS_PAIRS,
                                .mismatched = kto};
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    if (lf_loader_open(&l, &c, &err))
        tap_bail("%s", err.text);
    int64_t n = (int64_t)lf_loader_source_samples(l, 0);
    lf_loader_close(l);
    return n;
}

struct curve {
    int n;
    double loss[STEPS], norm[STEPS], margin[STEPS];
};

static int read_record(void *arg, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    struct curve *c = arg;
    (void)offset;
    json_t *o = lf_json_load_text(payload, n, "record", err);
    if (!o || c->n >= STEPS) {
        json_decref(o);
        return LF_EFORMAT;
    }
    c->loss[c->n] = json_number_value(json_object_get(o, "loss"));
    c->norm[c->n] = json_number_value(json_object_get(o, "grad_norm"));
    c->margin[c->n++] = json_number_value(json_object_get(o, "margin"));
    json_decref(o);
    return 1;
}

static bool never(void)
{
    return false;
}

static void train(const struct golden *g, const struct lf_dpo_opts *d, const char *name, double lr,
                  struct curve *out)
{
    lf_err err = LF_ERR_INIT;
    char dir[4096], metrics[4096];
    int64_t offset = 0;
    lf_dpo *dpo = NULL;
    const lf_loader_source src = {d->kto ? g->labels : g->pairs, 1};
    const lf_ramp_row ramp = {0, rows_of(src.dir, d->kto)};
    struct lf_dpo_opts o = *d;
    o.loss = name;
    o.reference.seq_length = T;
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), name);
    snprintf(metrics, sizeof metrics, "%s/%s.metrics", tap_tmpdir(), name);
    if (lf_dpo_create(&dpo, &o, &err))
        tap_bail("%s", err.text);
    const struct lf_train_config c = {.objective = lf_dpo_objective(dpo),
                                      .sources = &src,
                                      .n_sources = 1,
                                      .verify = LF_VERIFY_NO,
                                      .seq_length = T,
                                      .micro_batch = 1,
                                      .packing = LF_PACK_BFD,
                                      .ramp = &ramp,
                                      .n_ramp = 1,
                                      .seed = 1,
                                      .steps = STEPS,
                                      .schedule = LF_SCHED_CONSTANT,
                                      .lr = lr,
                                      .min_lr = lr,
                                      .adam = {0.9f, 0.95f, 1e-8f, 0.1f},
                                      .clip = 1,
                                      .compute = LF_F32,
                                      .numeric = LF_INVARIANT,
                                      .threads = 1,
                                      .log_interval = 1000,
                                      .keep = 1,
                                      .init_from = g->checkpoint,
                                      .out = dir,
                                      .metrics = metrics};
    const struct lf_train_sink sink = {.stop = never};
    *out = (struct curve){0};
    if (lf_train_run(&c, &sink, NULL, &err) ||
        lf_frame_read(metrics, &offset, read_record, out, &err) || out->n != STEPS)
        tap_bail("%s: %s", name, err.text);
    lf_dpo_destroy(dpo);
}

/* Largest difference of a column from the reference's, relative but for values below 1/10. */
static double distance(const struct golden *g, const char *kind, const char *column,
                       const double *got)
{
    char name[64];
    double want[STEPS], worst = 0;
    snprintf(name, sizeof name, "%s.%s", kind, column);
    read_as(g->st, name, LF_ST_F64, STEPS, want);
    for (int i = 0; i < STEPS; i++)
        worst = tap_worse(worst, fabs(got[i] - want[i]) / fmax(fabs(want[i]), 0.1));
    return worst;
}

static void one(const struct golden *g, const char *kind, const struct lf_dpo_opts *o)
{
    struct curve c;
    char name[64];
    train(g, o, kind, 1e-3, &c);
    double loss = distance(g, kind, "loss", c.loss), norm = distance(g, kind, "norm", c.norm),
           margin = distance(g, kind, "margin", c.margin);
    tap_ok(loss <= BAND && norm <= BAND && margin <= BAND,
           "%s: 20 steps: losses within %.2g, gradient norms %.2g, margins %.2g", kind, loss, norm,
           margin);
    tap_ok(c.loss[STEPS - 1] < c.loss[0], "%s: and it learns: %.4f to %.4f", kind, c.loss[0],
           c.loss[STEPS - 1]);
    snprintf(name, sizeof name, "%s-other", kind);
    struct lf_dpo_opts other = *o;
    other.pair.beta *= 1.01;
    other.kto_opts.beta *= 1.01;
    train(g, &other, name, 1e-3, &c);
    tap_ok(distance(g, kind, "loss", c.loss) > BAND || distance(g, kind, "norm", c.norm) > BAND,
           "%s: with beta 1 %% off it is not", kind);
}

int main(void)
{
    static struct golden g;
    static const struct {
        const char *name;
        struct lf_pair_opts o;
    } kinds[] = {{"sigmoid", {.kind = LF_PAIR_SIGMOID, .beta = 0.1}},
                 {"cdpo", {.kind = LF_PAIR_SIGMOID, .beta = 0.1, .smoothing = 0.1}},
                 {"robust", {.kind = LF_PAIR_ROBUST, .beta = 0.1, .smoothing = 0.1}},
                 {"hinge", {.kind = LF_PAIR_HINGE, .beta = 0.1}},
                 {"ipo", {.kind = LF_PAIR_IPO, .beta = 0.3}},
                 {"orpo", {.kind = LF_PAIR_ORPO, .beta = 0.1}},
                 {"simpo", {.kind = LF_PAIR_SIMPO, .beta = 2, .gamma = 0.5}},
                 {"nll", {.kind = LF_PAIR_SIGMOID, .beta = 0.1, .nll = 0.5}}};
    open_golden(&g);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        TAP(3, one(&g, kinds[i].name, &(struct lf_dpo_opts){.pair = kinds[i].o}));
    TAP(3, one(&g, "kto",
               &(struct lf_dpo_opts){.kto = true, .pair = kinds[0].o, .kto_opts = {0.1, 1, 1}}));
    lf_st_close(g.st);
    return tap_done();
}
