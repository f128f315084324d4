/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer to --plan: what a run would take, before it runs. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/base/vocab.h"
#include "engine/model/weights.h"
#include "engine/pipe/show.h"
#include "engine/pipe/walk.h"
#include "engine/train/laid.h"
#include "engine/train/loop_priv.h"
#include "engine/train/measure.h"
#include "engine/train/pipe.h"

/* Vocabulary and training tokens as the manifests tell them; 0 when they are not there (yet) or do
 * not say. */
static void manifest_facts(const struct lf_train_config *c, int64_t *vocab, int64_t *tokens)
{
    *vocab = *tokens = 0;
    for (size_t i = 0; i < c->n_sources; i++) {
        lf_artifact a = {0};
        int64_t v = 0, n = 0;
        if (lf_artifact_load(&a, c->sources[i].dir, "shards", NULL) == 0) {
            json_t *train = json_object_get(json_object_get(a.meta, "splits"), "train");
            v = json_integer_value(json_object_get(a.meta, "vocab_size"));
            n = json_integer_value(
                json_object_get(train, lf_train_pictures(c) ? "docs" : "tokens"));
            n *= lf_train_pictures(c) ? c->seq_length : 1; /* one is a row */
        }
        lf_artifact_fini(&a);
        *vocab = v > *vocab ? v : *vocab;
        *tokens += n;
    }
}

static int config_of_checkpoint(lf_model_config *out, const char *dir, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open(&ck, dir, 0, err);
    if (rc == 0)
        rc = lf_weights_config(out, ck, err);
    lf_ckpt_close(ck);
    return rc;
}

static int plan_model(lf_model_config *mc, const struct lf_train_config *c, int64_t vocab,
                      lf_err *err)
{
    *mc = c->model;
    if (!c->model_given) {
        int rc = config_of_checkpoint(mc, c->init_from, err);
        if (rc != 0)
            return rc;
    }
    if (!mc->vocab && !lf_model_sees_alone(mc))
        mc->vocab = vocab;
    if (!mc->vocab && !lf_model_sees_alone(mc))
        return lf_fail(err, LF_ENOENT,
                       "[model] vocab is not given, and %s is not there yet to say it; set vocab",
                       c->sources[0].dir);
    return 0;
}

static void note(json_t *notes, const char *text)
{
    json_array_append_new(notes, json_string(text));
}

/* Host memory that this rank takes for background saving; without parts only rank 0 does. */
static double snapshot_bytes(const struct lf_train_config *c, const struct lf_train_model *m,
                             const struct lf_train_who *who)
{
    struct lf_run_tensors t;
    lf_arena *a = lf_train_snapshots(c, m) ? lf_arena_create(NULL) : NULL;
    double bytes = 0;
    if (a && lf_train_tensors(&t, c, m, who, a, NULL) == 0 &&
        (t.own || lf_axes_ranks(who) == 1 || lf_axes_sharer(who) == 0))
        bytes = (double)lf_ckpt_snapshot_bytes(t.own ? t.own : t.all, t.own ? t.n_own : t.n_all);
    lf_arena_destroy(a);
    return bytes;
}

struct lf_plan_memory lf_train_planned(const struct lf_train_config *c,
                                       const struct lf_train_model *m,
                                       const struct lf_train_who *who)
{
    struct lf_plan_bytes b = {0};
    (void)lf_plan_bytes(m->plan, &b); /* an unfinished plan has no bytes */
    struct lf_plan_memory mem = {.host = snapshot_bytes(c, m, who) + (double)b.offloaded +
                                         (double)lf_train_data_bytes(c, lf_decoder_config(m->dec))};
    if (c->guest && c->guest->host_bytes)
        mem.host += (double)c->guest->host_bytes(c->guest->user);
    mem.host += (double)lf_train_pipe_bytes(c, m) + (double)lf_train_sight_bytes(c, m);
    mem.host += (double)lf_train_pack_bytes(c, m, who);
    mem.host += lf_zero_comm_bytes(&c->zero, lf_axes_sharers(who)) + lf_axes_comm_bytes(who);
    lf_plan_memory(&mem, lf_plan_target(m->plan), (double)b.total);
    mem.device += lf_train_gpu_comm_bytes(c, m, who);
    return mem;
}

double lf_train_gpu_comm_bytes(const struct lf_train_config *c, const struct lf_train_model *m,
                               const struct lf_train_who *who)
{
    return lf_plan_target(m->plan)->sm
               ? lf_devcomm_gpu_bytes(who, &c->zero, lf_pipe_goes_round(&m->cut.spec))
               : 0;
}

/* A rank of the run that is planned: the first one with these layers that is such a sharer. Of the
 * ranks that divide matrices the first has and saves as much as any other. */
static struct lf_train_who planned_rank(const struct lf_train_config *c, int pipeline, int sharer)
{
    struct lf_train_who who = lf_axes_who(&c->axes, 0, c->plan_ranks > 1 ? c->plan_ranks : 1);
    who.pipeline = pipeline;
    who.data = sharer / who.context_ranks;
    who.context = sharer % who.context_ranks;
    who.expert = lf_axes_expert_place(&who) % who.expert_ranks;
    return who;
}

/* What rank r of the data axis saves of tensors that all of them have, in bytes[r]. */
static int add_shared(double *bytes, const struct lf_train_config *c,
                      const struct lf_train_model *m, const struct lf_train_who *who)
{
    struct lf_run_tensors t;
    lf_arena *a = lf_arena_create(NULL);
    const int rc = a ? lf_train_tensors(&t, c, m, who, a, NULL) : LF_ENOMEM;
    const struct lf_weights_share share = {.ps = m->ps,
                                           .prefix = LF_WEIGHTS_PREFIX,
                                           .ranks = lf_axes_sharers(who),
                                           .expert = who->expert_ranks,
                                           .fold = who->folded ? who->tensor_ranks : 1};
    if (rc == 0)
        lf_weights_shared_bytes(bytes, t.all, t.n_all, &share);
    lf_arena_destroy(a);
    return rc;
}

/* Ranks that may need the most memory. What ranks have in common is left out, and so are the gaps
 * between tensors, which only their plans know; between these few the plans decide. */
enum { CLOSE_LOOKS = 16 };
struct looks {
    int rank[CLOSE_LOOKS], n;
    double bytes[CLOSE_LOOKS]; /* descending */
};

static void consider(struct looks *l, int rank, double bytes)
{
    if (l->n == CLOSE_LOOKS && bytes <= l->bytes[CLOSE_LOOKS - 1])
        return;
    int at = l->n < CLOSE_LOOKS ? l->n++ : CLOSE_LOOKS - 1;
    for (; at > 0 && l->bytes[at - 1] < bytes; at--) {
        l->bytes[at] = l->bytes[at - 1];
        l->rank[at] = l->rank[at - 1];
    }
    l->bytes[at] = bytes;
    l->rank[at] = rank;
}

/* Makes the plan that of the rank with these layers which needs the most memory, and returns its
 * number among the sharers. */
static int take_largest(const struct lf_train_config *c, struct lf_train_model *m, int pipeline)
{
    const struct lf_train_who first = planned_rank(c, pipeline, 0);
    const int sharers = lf_axes_sharers(&first);
    const int inner = lf_zero_inner(&c->zero, sharers); /* groups are alike, the first saves most */
    const bool saved = lf_train_snapshots(c, m);
    double *own =
        c->zero.stage > 0 && sharers > 1 ? lf_calloc((size_t)sharers, sizeof *own, NULL) : NULL;
    struct looks l = {.n = 0};
    double most = -1;
    int largest = 0;
    if (own && saved)
        (void)add_shared(own, c, m, &first); /* without it a rank may be missed by some bytes */
    for (int r = 0; own && r < inner; r++)
        consider(&l, r, own[r] + lf_plan_own_bytes(m->plan, r, saved));
    for (int i = 0; i < l.n && lf_plan_take_rank(m->plan, l.rank[i], NULL) == 0; i++) {
        const struct lf_train_who who = planned_rank(c, pipeline, l.rank[i]);
        const struct lf_plan_memory mem = lf_train_planned(c, m, &who);
        if (mem.total + mem.device > most) {
            most = mem.total + mem.device;
            largest = l.rank[i];
        }
    }
    free(own);
    (void)lf_plan_take_rank(m->plan, largest, NULL);
    return largest;
}

bool lf_train_word_unused(char *buf, size_t cap, const struct lf_train_config *c, int64_t rows,
                          int64_t tokens)
{
    const int unused = c->model_given && !c->init_from ? lf_vocab_unused(rows, tokens) : 0;
    snprintf(buf, cap,
             "the model has a vocabulary of %lld, the data one of %lld: %d %% of the rows of the "
             "embedding are never trained; give [model] vocab = %lld",
             (long long)rows, (long long)tokens, unused, (long long)tokens);
    return unused > 0;
}

/* Of a model that is cut as many bytes an element as this rank's layers have. */
static double checkpoint_bytes(const struct lf_train_config *c, const struct lf_train_model *m)
{
    const double here = (double)lf_pstore_elements(m->ps);
    return (double)lf_weights_bytes(m->ps, c->adapter != NULL, m->origin.of) *
           (here > 0 ? (double)lf_pstore_elements(lf_train_all(m)) / here : 0);
}

/* The rank that is planned, and what manifests say. */
struct plan_of {
    struct lf_train_who who;
    int64_t vocab, tokens;
};

/* Of a step of the last batch. What pictures take does not follow from tokens, and is not told. */
static int add_flops(json_t *plan, const struct lf_train_config *c, const lf_model_config *mc,
                     const struct lf_train_model *m, lf_err *err)
{
    const struct lf_train_flops f = lf_train_flops_of(mc, lf_train_all(m));
    const double tokens = (double)(c->ramp[c->n_ramp - 1].samples * c->seq_length);
    if (lf_train_pictures(c))
        return 0;
    const struct lf_json_member flops[] = {
        {"flops_per_step",
         json_real(tokens * lf_train_flops_per_token(&f, mc, c->seq_length, true))},
        {"flops_per_step_full",
         json_real(tokens * lf_train_flops_per_token(&f, mc, c->seq_length, false))},
    };
    return lf_json_set(plan, flops, sizeof flops / sizeof flops[0], "plan", err);
}

/* "bytes" of the rank whose plan it is; NULL where there is no memory, which lf_json_set says. */
static int plan_bytes(json_t **out, const struct lf_train_config *c, const struct lf_train_model *m,
                      const struct lf_train_who *at, lf_err *err)
{
    struct lf_plan_bytes b;
    const int rc = lf_plan_bytes(m->plan, &b);
    if (rc != 0)
        return lf_fail(err, rc, "the plan has no sizes");
    const struct lf_plan_memory mem = lf_train_planned(c, m, at);
    const double comm = lf_train_gpu_comm_bytes(c, m, at);
    const int largest =
        (at->pipeline * lf_axes_sharers(at) + lf_axes_sharer(at)) * at->tensor_ranks;
    json_t *bytes = *out =
        json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "params", (double)b.params,
                  "grads", (double)b.grads, "optimizer", (double)b.optimizer, "activations",
                  (double)(b.saved + b.transient), "cache", (double)b.state, "workspace",
                  (double)b.workspace, "inputs", (double)b.inputs, "offloaded", (double)b.offloaded,
                  "host", mem.host, "device", mem.device, "total", mem.total);
    if (comm > 0)
        json_object_set_new(bytes, "communicators", json_real(comm));
    if (c->zero.stage > 0 && lf_axes_ranks(at) > 1) /* without it all ranks have the same */
        json_object_set_new(bytes, "rank", json_integer(largest));
    return 0;
}

/* Adds what moves along an axis in a step. */
static void add_moved(json_t *comm, const char *axis, double bytes, int64_t messages)
{
    char key[40];
    snprintf(key, sizeof key, "%s_bytes_per_step", axis);
    json_object_set_new(comm, key, json_real(bytes));
    snprintf(key, sizeof key, "%s_messages_per_step", axis);
    json_object_set_new(comm, key, json_integer(messages));
}

/* "comm": what a rank sends in a step, along each axis with several ranks; along context at most.
 */
static json_t *plan_comm(const struct lf_train_config *c, const struct lf_train_model *m,
                         const struct lf_train_who *at)
{
    struct lf_plan_comm pc;
    lf_plan_comm(m->plan, &pc);
    const int64_t rounds =
        lf_deal_count(c->ramp[c->n_ramp - 1].samples, c->micro_batch, 0, at->data_ranks);
    const double n = (double)rounds;
    json_t *comm =
        json_pack("{s:f,s:I}", "bytes_per_step", pc.sent_bytes + n * pc.micro_bytes,
                  "messages_per_step", (json_int_t)(pc.messages + rounds * pc.micro_messages));
    if (at->tensor_ranks > 1)
        add_moved(comm, "tensor", pc.tensor.bytes + n * pc.micro_tensor.bytes,
                  pc.tensor.messages + rounds * pc.micro_tensor.messages);
    if (at->context_ranks > 1)
        add_moved(comm, "context", n * pc.context_most, rounds * pc.micro_context.messages);
    if (at->expert_ranks > 1)
        add_moved(comm, "expert",
                  pc.same.bytes +
                      n * (pc.micro_same.bytes + pc.micro_counts.bytes + pc.micro_rows.bytes),
                  pc.same.messages + rounds * (pc.micro_same.messages + pc.micro_counts.messages +
                                               pc.micro_rows.messages));
    if (at->pipeline_ranks > 1) {
        const int64_t messages = lf_laid_messages(&m->cut, (int)rounds);
        add_moved(comm, "pipeline", (double)messages * (double)m->cut.message, messages);
    }
    return comm;
}

static int plan_members(json_t *plan, const struct lf_train_config *c, const lf_model_config *mc,
                        struct lf_train_model *m, const struct plan_of *of, lf_err *err)
{
    const struct lf_train_who *at = &of->who;
    const int64_t vocab = of->vocab, tokens = of->tokens,
                  params = lf_pstore_elements(lf_train_all(m));
    int64_t steps = 0, samples = 0;
    const double saved = checkpoint_bytes(c, m);
    lf_schedule lr;
    json_t *bytes = NULL;
    int rc = plan_bytes(&bytes, c, m, at, err);
    if (rc != 0)
        return rc;
    json_t *notes = json_array();
    char unused[240];
    if (lf_train_word_unused(unused, sizeof unused, c, mc->vocab, vocab))
        note(notes, unused);
    if (c->epochs > 0 && !tokens) {
        note(notes, "the length of an epoch is known when the data is there");
    } else {
        rc = lf_train_length(&steps, &samples, &lr, c, tokens / c->seq_length, err);
        if (rc != 0) {
            json_decref(bytes);
            json_decref(notes);
            return rc;
        }
    }
    if (!tokens)
        note(notes, "the index of data that does not exist yet is not in the planned memory");
    if (c->epochs > 0 && tokens)
        note(notes, lf_train_pictures(c)
                        ? "steps follow from the documents of the data; those without pictures "
                          "are left out"
                        : "steps follow from the tokens of the data; packing may add a few");
    if (c->axes.measured && !c->costs)
        note(notes, "pipeline_cost = measured: the run measures its layers when it begins; this is "
                    "the cut by FLOPs");
    const struct lf_json_member sizes[] = {
        {"ranks", json_integer(lf_axes_ranks(at))},
        {"axes", lf_laid_axes(&c->axes, at)},
        {"comm", plan_comm(c, m, at)},
        {"parameters", json_integer(params)},
        {"trained", json_integer(lf_pstore_elements_trained(lf_train_all(m)))},
        {"bytes", bytes},
        {"disk_bytes",
         json_real((double)(c->keep + 2) * saved + (c->adapter ? 4.0 * (double)params : 0))},
        {"notes", notes},
    };
    rc = lf_json_set(plan, sizes, sizeof sizes / sizeof sizes[0], "plan", err);
    if (rc == 0)
        rc = add_flops(plan, c, mc, m, err);
    if (rc != 0 || steps <= 0)
        return rc;
    rc = lf_json_set(plan, &(struct lf_json_member){"steps", json_integer(steps)}, 1, "plan", err);
    if (rc != 0 || lf_train_pictures(c))
        return rc;
    const int64_t all = samples * c->seq_length;
    return lf_json_set(plan, &(struct lf_json_member){"tokens", json_integer(all)}, 1, "plan", err);
}

/* All ranks are on this machine: together they have its cores. */
static int add_measured(json_t *plan, const struct lf_train_config *c, const lf_model_config *mc,
                        const struct lf_train_model *m, lf_err *err)
{
    const int ranks = c->plan_ranks > 1 ? c->plan_ranks : 1, all = lf_ncpu();
    const struct lf_measure how = {.rows = c->micro_batch * c->seq_length,
                                   .threads = c->threads * ranks < all ? c->threads * ranks : all,
                                   .compute = c->compute,
                                   .seconds = 0.2};
    double rate = 0;
    if (!c->measure || lf_train_pictures(c) || lf_plan_target(m->plan)->sm)
        return 0;
    int rc = lf_train_measure(&rate, &how, mc, err);
    return rc == 0 && json_object_set_new(plan, "measured_flops", json_real(rate)) != 0
               ? lf_fail(err, LF_ENOMEM, "plan: out of memory")
               : rc;
}

/* The layers of a chunk as people count them: "0-3", "4", "none". */
static const char *layers_word(char *buf, size_t cap, const struct lf_decoder_chunk *k)
{
    const long long n = (long long)(k->end - k->begin), first = (long long)k->begin;
    if (n > 1)
        snprintf(buf, cap, "%lld-%lld", first, first + n - 1);
    else if (n == 1)
        snprintf(buf, cap, "%lld", first);
    else
        snprintf(buf, cap, "none");
    return buf;
}

/* What was measured of a rank. */
static int add_times(json_t *row, const struct lf_train_costs *k, const struct lf_train_cut *cut,
                     int rank)
{
    const struct lf_train_cost c = lf_train_cost_rank(k, cut, rank);
    return json_object_set_new(row, "forward_s", json_real(c.f_s)) ||
           json_object_set_new(row, "backward_input_s", json_real(c.b_s)) ||
           json_object_set_new(row, "backward_weight_s", json_real(c.w_s)) ||
           json_object_set_new(row, "update_s", json_real(c.update_s));
}

/* One row for each rank of the pipeline axis: its layers, and what it takes. */
static int add_row(json_t *rows, const struct lf_train_config *c, const struct lf_train_model *m,
                   const struct lf_plan_memory *mem, lf_err *err)
{
    char word[48];
    json_t *layers = json_array();
    for (int i = 0; layers && i < m->cut.n_chunks; i++)
        json_array_append_new(layers,
                              json_string(layers_word(word, sizeof word, &m->cut.chunk[i].part)));
    json_t *row = json_pack("{s:o,s:f,s:i}", "layers", layers, "total", mem->total + mem->device,
                            "micro_batches", m->cut.chunk[0].slots);
    if (row && c->costs && add_times(row, c->costs, &m->cut, (int)json_array_size(rows)) != 0) {
        json_decref(row);
        row = NULL;
    }
    return row && json_array_append_new(rows, row) == 0 ? 0 : lf_fail(err, LF_ENOMEM, "plan");
}

/* Columns of the drawing, which loong-flow plan indents. */
enum { DRAWN = 92 };

/* How the passes follow each other, as text. */
static int add_drawing(json_t *pipeline, const struct lf_train_config *c,
                       const struct lf_train_model *m, lf_err *err)
{
    struct lf_pipe_timing timing = {0};
    const int micro = m->cut.spec.micro_batches;
    const struct lf_pipe *p = lf_train_list(&m->cut, micro);
    double step_s = 0;
    lf_buf text;
    lf_buf_init(&text);
    int rc = c->costs ? lf_train_cost_walk(&timing, &step_s, c->costs, &m->cut, micro, err)
                      : lf_pipe_walk(&timing, p, &(struct lf_pipe_walk_opts){0}, err);
    lf_pipe_draw(&text, p, DRAWN);
    if (rc == 0)
        rc = lf_buf_check(&text, err);
    if (rc == 0 &&
        (json_object_set_new(pipeline, "schedule",
                             json_string(lf_pipe_kind_name(m->cut.spec.kind))) ||
         json_object_set_new(pipeline, "idle_share", json_real(timing.idle_share)) ||
         json_object_set_new(pipeline, "message_bytes", json_integer((json_int_t)m->cut.message)) ||
         json_object_set_new(pipeline, "drawing", json_string(text.data)) ||
         (c->costs && json_object_set_new(pipeline, "step_s", json_real(step_s)))))
        rc = lf_fail(err, LF_ENOMEM, "plan: out of memory");
    lf_pipe_timing_fini(&timing);
    lf_buf_fini(&text);
    return rc;
}

/* Plans each rank of the pipeline axis, of which the one that takes most stays. */
static int plan_largest(struct lf_train_model *m, struct lf_train_who *at,
                        const struct lf_train_config *c, const lf_model_config *mc, json_t *plan,
                        lf_err *err)
{
    const bool valid = c->n_valid > 0 || (c->objective && c->objective->prepare);
    const int ranks = planned_rank(c, 0, 0).pipeline_ranks;
    json_t *rows = json_array();
    double most = -1;
    size_t tied = 0;
    int rc = rows ? 0 : LF_ENOMEM;
    for (int r = 0; r < ranks && rc == 0; r++) {
        struct lf_train_model one = {0};
        struct lf_train_who who = planned_rank(c, r, 0);
        rc = lf_train_model_plan(&one, c, mc, valid, &who, err);
        if (rc == 0)
            who = planned_rank(c, r, take_largest(c, &one, r));
        const struct lf_plan_memory mem =
            rc == 0 ? lf_train_planned(c, &one, &who) : (struct lf_plan_memory){0};
        if (rc == 0)
            rc = add_row(rows, c, &one, &mem, err);
        if (rc == 0 && lf_pstore_tied_bytes(one.ps) > tied)
            tied = lf_pstore_tied_bytes(one.ps);
        if (rc == 0 && mem.total + mem.device > most) {
            const struct lf_train_model was = *m;
            most = mem.total + mem.device;
            *at = who;
            *m = one;
            one = was;
        }
        lf_train_model_fini(&one);
    }
    json_t *pipeline = rc == 0 && ranks > 1 ? json_pack("{s:O}", "ranks", rows) : NULL;
    if (pipeline)
        rc = add_drawing(pipeline, c, m, err);
    if (pipeline && tied &&
        json_object_set_new(pipeline, "tied_bytes", json_integer((json_int_t)tied)))
        rc = lf_fail(err, LF_ENOMEM, "plan: out of memory");
    if (pipeline && json_object_set_new(plan, "pipeline", pipeline))
        rc = lf_fail(err, LF_ENOMEM, "plan: out of memory");
    json_decref(rows);
    return rc;
}

/* What a run would find out when it opens its data, as far as it is known before. */
static int check_plan(const struct lf_train_config *c, lf_err *err)
{
    const struct lf_train_who first = planned_rank(c, 0, 0);
    int rc = lf_train_check_valid(c, err);
    if (rc == 0)
        rc = lf_axes_check(&c->axes, c->plan_ranks > 1 ? c->plan_ranks : 1, err);
    if (rc == 0)
        rc = lf_zero_check(&c->zero, lf_axes_sharers(&first), err);
    if (rc == 0)
        rc = lf_train_cut_check(c, err);
    if (rc == 0)
        rc = lf_train_context_check(c, &first, err);
    if (rc == 0)
        rc = lf_train_experts_check(c, &first, err);
    for (size_t i = 0; i < c->n_ramp && rc == 0; i++)
        rc = lf_loader_check_batch(c->ramp[i].samples, c->micro_batch, first.data_ranks, err);
    return rc;
}

/* Asked for by `measure` of a CPU, as add_measured. */
static int measure_costs(struct lf_train_costs *k, const struct lf_train_config *c,
                         const lf_model_config *mc, lf_err *err)
{
    const struct lf_train_who who = planned_rank(c, 0, 0);
    return c->measure && c->axes.measured && !lf_target_device(c->device)->sm
               ? lf_train_cost_measure(k, c, mc, &who, NULL, err)
               : 0;
}

/* Everything that follows from the model. */
static int plan_of_model(json_t *plan, const struct lf_train_config *c, const lf_model_config *mc,
                         struct plan_of *of, lf_err *err)
{
    struct lf_train_model m = {0};
    int rc = plan_largest(&m, &of->who, c, mc, plan, err);
    if (rc == 0)
        rc = plan_members(plan, c, mc, &m, of, err);
    if (rc == 0)
        rc = add_measured(plan, c, mc, &m, err);
    if (c->guest)
        c->guest->leave(c->guest->user);
    lf_train_model_fini(&m);
    return rc;
}

int lf_train_plan(const struct lf_train_config *c, json_t *plan, lf_err *err)
{
    struct lf_train_config own = *c;
    struct lf_train_costs costs = {0};
    lf_model_config mc;
    struct plan_of of = {0};
    enum lf_artifact_state there = LF_ARTIFACT_PRESENT;
    int rc = check_plan(c, err);
    if (rc != 0)
        return rc;
    manifest_facts(c, &of.vocab, &of.tokens);
    if (!c->model_given && lf_artifact_state(&there, c->init_from, NULL) == 0 &&
        there == LF_ARTIFACT_ABSENT) {
        const struct lf_train_who who =
            lf_axes_who(&c->axes, 0, c->plan_ranks > 1 ? c->plan_ranks : 1);
        return lf_laid_sizeless(plan, &c->axes, &who, err);
    }
    rc = plan_model(&mc, c, of.vocab, err);
    if (rc == 0)
        rc = measure_costs(&costs, c, &mc, err);
    own.costs = costs.n > 0 ? &costs : NULL;
    if (rc == 0)
        rc = plan_of_model(plan, &own, &mc, &of, err);
    lf_train_costs_fini(&costs);
    return rc;
}
