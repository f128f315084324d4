/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that train in lock step: settings, and a rank's steps.
 */
#include "tests/layout/rig_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/rng.h"
#include "engine/store/shard.h"
#include "tests/tap/tap.h"

enum { VOCAB = 1040, SEQ = 16, DOCS = 400 };

/* ---- files ---- */

/* Chains of tokens of which three in four follow from the one before. */
static int write_doc(lf_shard_writer *w, uint32_t d, lf_err *err)
{
    uint32_t doc[64], n = 5 + lf_rng_u32(3, 1, d) % 40,
                      token = 1 + lf_rng_u32(3, 2, d) % (VOCAB - 1);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t r = lf_rng_u32(3, 3, d * 64 + k);
        doc[k] = k + 1 == n ? 0 : token;
        token = 1 + (r % 4 ? token * 29 + 11 : r / 4) % (VOCAB - 1);
    }
    return lf_shard_append(w, doc, n, err);
}

static int write_shard(const char *dir, lf_artifact *a, lf_err *err)
{
    lf_shard_info info = {.vocab_size = VOCAB, .source = "test"};
    lf_shard_writer *w = NULL;
    lf_shard_stat st;
    char *path = lf_path_join(dir, "train-00000.h5", err);
    memset(info.tokenizer_sha256, '0', LF_HASH_HEX - 1);
    int rc = path ? lf_shard_create(&w, path, &info, 0, err) : LF_ENOMEM;
    for (uint32_t d = 0; d < DOCS && rc == 0; d++)
        rc = write_doc(w, d, err);
    if (rc == 0) {
        rc = lf_shard_finish(w, &st, err);
        w = NULL;
    }
    if (rc == 0)
        rc = lf_artifact_add(a, "train-00000.h5", st.bytes, st.sha256, err);
    lf_shard_abort(w);
    free(path);
    return rc;
}

static struct path below(const char *name)
{
    struct path p;
    snprintf(p.text, sizeof p.text, "%s/%s", tap_tmpdir(), name);
    return p;
}

static const char *data(void)
{
    static struct path made; /* one test program has one */
    const char *dir = made.text;
    lf_err err = LF_ERR_INIT;
    lf_artifact a = {0};
    if (dir[0])
        return dir;
    made = below("data");
    int rc = lf_io_mkdirs(dir, 0777, &err);
    rc = rc != 0 ? rc : lf_artifact_init(&a, "shards", &err);
    rc = rc != 0 ? rc : write_shard(dir, &a, &err);
    rc = rc != 0 ? rc : lf_artifact_publish(&a, dir, &err);
    lf_artifact_fini(&a);
    if (rc != 0)
        tap_bail("%s", err.text);
    return dir;
}

/* ---- settings ---- */

/* A division cuts tensors between blocks of LF_NORM_BLOCK elements: the embedding has three. */
_Static_assert(VOCAB * 64 > 2 * LF_NORM_BLOCK, "no tensor is cut");

void rig_begin(struct rig_case *k)
{
    *k = (struct rig_case){.layout = {.ranks = 1}, .batch = 8};
    k->c = (struct lf_train_config){.model_given = true,
                                    .n_sources = 1,
                                    .verify = LF_VERIFY_NO,
                                    .seq_length = SEQ,
                                    .micro_batch = 1,
                                    .n_ramp = 1,
                                    .seed = 5,
                                    .steps = RIG_STEPS,
                                    .schedule = LF_SCHED_CONSTANT,
                                    .lr = 3e-3,
                                    .adam = {.beta1 = 0.9f,
                                             .beta2 = 0.95f,
                                             .eps = 1e-6f,
                                             .weight_decay = 0.1f,
                                             .moments = LF_F32,
                                             .masters = LF_F32},
                                    .clip = 0.01,
                                    .scaler = {.start = 1, .window = 1},
                                    .compute = LF_F32,
                                    .threads = 1,
                                    .device = LF_DEVICE_CPU,
                                    .bucket_bytes = 64 << 10,
                                    .keep = 9};
    lf_model_config_defaults(&k->c.model);
    lf_err err = LF_ERR_INIT;
    if (lf_model_config_family(&k->c.model, "llama", "rig", &err) ||
        rig_model(k,
                  "layers=2 hidden=64 heads=8 kv_heads=2 ffn=128 vocab=1040 max_positions=64 "
                  "init_std=0.08",
                  &err))
        tap_bail("%s", err.text);
}

int rig_model(struct rig_case *k, const char *keys, lf_err *err)
{
    char text[512], *rest, *one;
    int rc = 0;
    snprintf(text, sizeof text, "%s", keys);
    for (one = strtok_r(text, " ", &rest); one && rc == 0; one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        *value++ = '\0';
        rc = lf_model_config_set(&k->c.model, one, value, "case:1", err);
    }
    return rc;
}

void rig_two_stacks(struct rig_case *k)
{
    lf_model_config *m = &k->c.model;
    m->layers = m->encoder_layers = 2;
    if (m->kv_heads == 2)
        m->kv_heads = m->heads;
    if (m->position == LF_POS_ROPE && !(m->rope_fraction < 1)) {
        m->position = LF_POS_RELATIVE;
        m->relative_buckets = 8;
        m->relative_distance = 20;
    }
    k->c.seq2seq = (lf_seq2seq){.kind = LF_SEQ2SEQ_SPAN,
                                .source_length = SEQ,
                                .share = 0.4,
                                .mean = 2,
                                .sentinel = VOCAB - 1,
                                .n_sentinels = 20};
}

__thread int rig_rank;

/* ---- a rank ---- */

static int one_step(struct rig *g, lf_trainer *t, lf_err *err)
{
    struct lf_train_step st;
    const int step = (int)t->s.step;
    if (step == 0)
        rig_count_moved(g->s, t, -1);
    const int rc = lf_train_step_now(t, &st, err);
    if (rc != 0)
        return rc;
    rig_show_number(g, g->s->loss, st.loss, "loss", step);
    rig_show_number(g, g->s->norm, st.grad_norm, "norm of the gradient", step);
    rig_show_number(g, g->s->scale, t->s.scaler.scale, "loss scale", step);
    if (step == 0) {
        g->again = t->s.scaler.overflows > 0;
        rig_count_moved(g->s, t, 1);
        rig_count_planned(g->s, t);
        rig_show_told(g, &st);
        rig_show(g, t, RIG_GRAD);
    }
    return 0;
}

/* To where the first step begins, with a writer of checkpoints. */
static int begin(struct rig *g, lf_trainer *t, lf_comm *comm, lf_err *err)
{
    bool done = false;
    rig_rank = comm->rank;
    int rc = lf_train_open(t, &g->c, NULL, comm, err);
    if (rc == 0)
        rc = lf_train_start(t, &done, err);
    return lf_train_agree(t, rc != 0 ? rc : lf_train_writer_open(t, err), err);
}

/* A checkpoint in dir, which is freed. */
static int save(lf_trainer *t, char *dir, lf_err *err)
{
    const int rc = lf_train_save_at(t, dir ? 0 : LF_ENOMEM, dir, NULL, err);
    free(dir);
    return lf_train_agree(t, rc, err);
}

static int steps(struct rig *g, lf_trainer *t, lf_err *err)
{
    int rc = g->k->copy ? save(t, lf_strdup(g->k->copy, err), err) : 0;
    while (rc == 0 && t->s.step < g->c.steps && !g->k->still) {
        rc = one_step(g, t, err);
        if (rc == 0 && g->k->save && t->s.step == 1)
            rc = save(t, lf_ckpt_step_dir(t->c->out, t->s.step, err), err);
    }
    return rc;
}

/* What the engine says of them is a finding as others are. */
static int compare_replicas(struct rig *g, const lf_trainer *t, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    const int rc = lf_train_replicas(t, &why);
    if (rc == 0 || !strstr(why.text, "the ranks hold different weights"))
        return rc == 0 ? 0 : lf_fail(err, rc, "%s", why.text);
    g->s->replicas = true;
    return 0;
}

static int run_rank(void *user, lf_comm *comm, lf_err *err)
{
    struct rig *g = user;
    lf_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return LF_ENOMEM;
    int rc = begin(g, t, comm, err);
    if (rc == 0 && t->s.step != g->k->from)
        rc = lf_fail(err, LF_EINVAL, "it begins at step %lld, not %d", (long long)t->s.step,
                     g->k->from);
    if (rc == 0) {
        local_arm(comm);
        rig_show_names(g, t);
        for (int kind = RIG_BEFORE; kind <= RIG_BEFORE_V; kind++)
            rig_show(g, t, (enum rig_kind)kind);
        rc = steps(g, t, err);
    }
    for (int kind = RIG_AFTER; kind < RIG_KINDS && rc == 0; kind++)
        rig_show(g, t, (enum rig_kind)kind);
    if (rc == 0)
        rc = compare_replicas(g, t, err);
    lf_train_close(t, rc);
    free(t);
    return rc;
}

/* ---- a run ---- */

void rig_fini(struct rig_seen *s)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < RIG_KINDS; k++) {
            free(s->t[i].v[k]);
            free(s->t[i].times[k]);
        }
    free(s->t);
    *s = (struct rig_seen){0};
}

static int run_case(struct rig *g, const struct local_opts *o, local_fn fn, lf_err *err)
{
    const lf_loader_source source = {data(), 1};
    const lf_ramp_row ramp = {0, g->k->batch};
    g->c = g->k->c;
    g->c.sources = &source;
    g->c.ramp = &ramp;
    g->c.zero.stage = g->k->layout.zero;
    g->c.zero.inner = g->k->layout.zero_inner;
    g->c.axes = (struct lf_axes){.tensor = g->k->layout.tensor,
                                 .context = g->k->layout.context,
                                 .context_kind = g->k->layout.kind,
                                 .sequence = g->k->layout.sequence,
                                 .pipeline = g->k->layout.pipeline,
                                 .chunks = g->k->layout.chunks,
                                 .schedule = g->k->layout.schedule,
                                 .stages = g->k->layout.stages,
                                 .expert = g->k->layout.expert,
                                 .expert_room = g->k->layout.expert_room,
                                 .expert_tensor = g->k->layout.expert_tensor};
    g->c.poison = g->k->poison;
    g->c.no_reuse = g->k->no_reuse;
    g->c.freeze = &g->k->frozen;
    g->c.n_freeze = g->k->frozen != NULL;
    if (g->k->adapted) {
        g->c.adapter = &g->k->adapter;
        g->c.init_from = g->base.text;
    }
    g->out = below("none");
    g->c.out = g->k->out ? g->k->out : g->out.text;
    const int rc = lf_model_config_finish(&g->c.model, err);
    return rc != 0 ? rc : local_run(o, fn, g, err);
}

/* ---- what adapters are for ---- */

/* The weights that a run begins with, as a checkpoint. */
static int make_base(void *user, lf_comm *comm, lf_err *err)
{
    struct rig *g = user;
    lf_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return LF_ENOMEM;
    int rc = begin(g, t, comm, err);
    if (rc == 0)
        rc = save(t, strdup(g->base.text), err);
    lf_train_close(t, rc);
    free(t);
    return rc;
}

/* One for each description of a model and type. */
static int find_base(struct rig *g, lf_err *err)
{
    struct rig_case plain = *g->k;
    struct rig of = {.k = &plain};
    lf_model_config mc = g->k->c.model;
    int rc = lf_model_config_finish(&mc, err);
    json_t *o = rc == 0 ? lf_model_config_to_json(&mc, err) : NULL;
    char *text = o ? json_dumps(o, JSON_SORT_KEYS | JSON_COMPACT) : NULL, name[40];
    if (!text)
        return rc != 0 ? rc : LF_ENOMEM;
    snprintf(name, sizeof name, "base-%08x-%d", lf_name_site(text), (int)g->k->c.compute);
    free(text);
    json_decref(o);
    of.base = g->base = below(name);
    if (lf_io_exists(g->base.text))
        return 0;
    plain.adapted = false;
    plain.frozen = NULL;
    plain.layout = (struct rig_layout){.ranks = 1};
    return run_case(&of, &(struct local_opts){.ranks = 1}, make_base, err);
}

int rig_run(const struct rig_case *k, struct rig_seen *out, lf_err *err)
{
    struct rig g = {.k = k, .s = out};
    const struct local_opts o = {
        .ranks = rig_all_ranks(&k->layout), .late = k->late, .turns = k->turns, .plant = k->plant};
    *out = (struct rig_seen){.from = k->from};
    for (int i = 0; i < RIG_STEPS; i++)
        out->loss[i] = out->norm[i] = out->scale[i] = NAN;
    for (int i = 0; i < RIG_TOLD; i++)
        out->told[i] = NAN;
    int rc = k->adapted ? find_base(&g, err) : 0;
    if (rc == 0)
        rc = run_case(&g, &o, run_rank, err);
    if (g.again)
        memset(out->moved, 0, sizeof out->moved);
    rig_sort(out);
    if (rc == 0)
        rig_find_missing(out, &k->layout);
    return rc;
}

int rig_alone(const struct rig_case *k, struct rig_seen *out, lf_err *err)
{
    struct rig_case one = *k;
    one.layout = (struct rig_layout){.ranks = 1};
    one.poison = one.no_reuse = one.late = false;
    one.turns = 0;
    one.plant = (struct local_plant){.fault = LOCAL_SOUND};
    return rig_run(&one, out, err);
}

int rig_exact(const struct rig_case *k, struct rig_seen *out, lf_err *err)
{
    struct rig_case exact = *k;
    exact.c.compute = exact.c.adam.moments = exact.c.adam.masters = LF_F32;
    exact.c.adam.stochastic = false;
    return rig_alone(&exact, out, err);
}
