/* SPDX-License-Identifier: Apache-2.0
 *
 * Before the first step: checks, model, plan, memory, data, length of the run; and the answer to
 * --plan. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/sys.h"
#include "engine/base/vocab.h"
#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"
#include "engine/train/measure.h"
#include "engine/train/megatron_order.h"

/* Below them are a guest's. */
#define ERA_TRAIN (1u << LF_TRAIN_GUEST_ERAS)
#define ERA_VALID (2u << LF_TRAIN_GUEST_ERAS)

/* Of a whole run; far from where 64 bits end. */
#define MAX_RUN_TOKENS 100000000000000000

int64_t lf_train_max_docs(const struct lf_train_config *c)
{
    const lf_loader_config lc = lf_train_loader_config(c);
    return (int64_t)lf_loader_segs(&lc) * c->micro_batch;
}

static int check_ramp(const struct lf_train_config *c, lf_err *err)
{
    if (c->n_ramp < 1 || c->ramp[0].from_sample != 0)
        return lf_fail(err, LF_EINVAL, "batch_ramp must begin with N@0");
    for (size_t i = 0; i < c->n_ramp; i++) {
        if (i > 0 && c->ramp[i].from_sample <= c->ramp[i - 1].from_sample)
            return lf_fail(err, LF_EINVAL,
                           "batch_ramp: %lld@%lld does not come after the row before it",
                           (long long)c->ramp[i].samples, (long long)c->ramp[i].from_sample);
        if (c->ramp[i].samples < 1 || c->ramp[i].samples % c->micro_batch)
            return lf_fail(err, LF_EINVAL,
                           "a batch of %lld sequences is not a multiple of micro_batch = %d",
                           (long long)c->ramp[i].samples, c->micro_batch);
    }
    return 0;
}

/* So that nothing that counts samples or tokens of the run leaves 64 bits. */
static int check_size(const struct lf_train_config *c, lf_err *err)
{
    int64_t most = MAX_RUN_TOKENS / c->seq_length,
            longest = c->steps > c->warmup_steps ? c->steps : c->warmup_steps;
    for (size_t i = 0; i < c->n_ramp; i++)
        if (c->ramp[i].samples > most || longest > most / c->ramp[i].samples)
            return lf_fail(
                err, LF_EINVAL,
                "steps x batch x seq_length is more than 10^17 tokens; make one of them less");
    return 0;
}

static int check_megatron(const struct lf_train_config *c, lf_err *err)
{
    double bounds[4];
    if (c->epochs > 0)
        return lf_fail(
            err, LF_EINVAL,
            "sample_order = megatron depends on the length of the run; give steps or tokens");
    return lf_megatron_parse_split(bounds, c->megatron.split, err)
               ? lf_err_prefix(err, "megatron_split")
               : 0;
}

static const char *const best_metrics[] = {"loss", "accuracy", "margin"};

int lf_train_best_index(const struct lf_train_config *c)
{
    const lf_objective *o = c->objective;
    for (size_t i = 0; o && i < o->n_metrics; i++)
        if (strcmp(o->metrics[i], best_metrics[c->best_metric]) == 0)
            return (int)i;
    return -1;
}

static int check_best(const struct lf_train_config *c, lf_err *err)
{
    if (c->patience > 0 && !c->valid_interval)
        return lf_fail(err, LF_EINVAL,
                       "patience counts validations, and there is one at the end only: give "
                       "valid_interval");
    if (c->objective && lf_train_best_index(c) < 0)
        return lf_fail(err, LF_EINVAL, "best_metric = %s: this loss has no %s",
                       best_metrics[c->best_metric], best_metrics[c->best_metric]);
    return 0;
}

int lf_train_check(const struct lf_train_config *c, lf_err *err)
{
    int given = (c->steps > 0) + (c->tokens > 0) + (c->epochs > 0);
    if (given != 1)
        return lf_fail(err, LF_EINVAL, "give one of steps, tokens and epochs (%d given)", given);
    if (c->n_sources < 1)
        return lf_fail(err, LF_EINVAL, "no data given");
    if (c->epochs > 0 && c->n_sources > 1)
        return lf_fail(err, LF_EINVAL,
                       "epochs are counted in one data; with several give steps or tokens");
    if (!c->model_given && !c->init_from)
        return lf_fail(err, LF_EINVAL, "no model: describe one in [model], or give init_from");
    if (c->axes.tensor > 1 && c->guest)
        return lf_fail(err, LF_ENOTSUP,
                       "samples during training (sample_interval) need whole matrices on one rank; "
                       "leave them out, or tensor");
    if (c->adapter && !c->init_from)
        return lf_fail(err, LF_EINVAL,
                       "an adapter (lora_rank) needs init_from, the weights it is for");
    if (c->adapter && c->adam.masters != LF_F32)
        return lf_fail(err, LF_EINVAL,
                       "masters = bf16 is for training of all weights; an adapter (lora_rank) has "
                       "few of its own");
    if (c->model_given && c->seq_length > c->model.max_positions)
        return lf_fail(err, LF_EINVAL, "seq_length = %d is more than [model] max_positions = %lld",
                       c->seq_length, (long long)c->model.max_positions);
    if (lf_early_check(c->hours, c->schedule, err))
        return LF_EINVAL;
    if (c->decay_steps && c->schedule != LF_SCHED_WSD)
        return lf_fail(err, LF_EINVAL, "decay belongs to schedule = wsd");
    if (c->schedule == LF_SCHED_WSD && !c->decay_steps)
        return lf_fail(err, LF_EINVAL, "schedule = wsd needs decay");
    if (c->objective &&
        (c->objective->n_sums > LF_OBJECTIVE_SUMS || c->objective->n_tops > LF_OBJECTIVE_SUMS ||
         c->objective->n_metrics > LF_OBJECTIVE_METRICS))
        LF_BUG("an objective with %zu sums and %zu metrics", c->objective->n_sums,
               c->objective->n_metrics);
    int rc = lf_adamw_opts_check(&c->adam, c->compute, err);
    if (rc == 0)
        rc = check_best(c, err);
    if (rc == 0)
        rc = check_ramp(c, err);
    if (rc == 0 && c->megatron_order)
        rc = check_megatron(c, err);
    return rc != 0 ? rc : check_size(c, err);
}

int lf_train_length(int64_t *steps, int64_t *samples, lf_schedule *lr,
                    const struct lf_train_config *c, int64_t epoch_samples, lf_err *err)
{
    if (c->steps > 0) {
        *steps = c->steps;
    } else if (c->tokens > 0) {
        *steps =
            lf_ramp_steps_to(c->ramp, c->n_ramp, (c->tokens + c->seq_length - 1) / c->seq_length);
    } else {
        if (epoch_samples < 1)
            return lf_fail(err, LF_EINVAL, "the length of an epoch is not known yet");
        *steps =
            lf_ramp_steps_to(c->ramp, c->n_ramp, (int64_t)ceil(c->epochs * (double)epoch_samples));
    }
    *samples = lf_ramp_samples_of_steps(c->ramp, c->n_ramp, *steps);
    int64_t tail = *steps - c->decay_steps;
    *lr = (lf_schedule){.kind = c->schedule,
                        .tail = c->tail,
                        .peak = c->lr,
                        .min = c->min_lr,
                        .warmup = lf_ramp_samples_of_steps(c->ramp, c->n_ramp, c->warmup_steps),
                        .total = *samples};
    if (c->warmup_steps > *steps)
        return lf_fail(err, LF_EINVAL, "warmup = %lld steps is longer than the run of %lld",
                       (long long)c->warmup_steps, (long long)*steps);
    if (tail < 0)
        return lf_fail(err, LF_EINVAL, "decay = %lld steps is longer than the run of %lld",
                       (long long)c->decay_steps, (long long)*steps);
    lr->decay = *samples - lf_ramp_samples_of_steps(c->ramp, c->n_ramp, tail);
    return lf_schedule_check(lr, err);
}

/* ---- model and plan ---- */

static lf_graph *make_graph(const struct lf_train_model *m, const struct lf_train_config *c,
                            const char *name, const struct lf_decoder_rows *r, bool train,
                            lf_err *err)
{
    const lf_objective *o = c->objective;
    return o ? o->graph(o->user, m->dec, m->ps, name, r, train, err)
             : lf_decoder_loss_graph(m->dec, m->ps, name, r, train, err);
}

static int add_chains(struct lf_train_model *m, const struct lf_train_config *c, bool valid,
                      lf_err *err)
{
    struct lf_decoder_rows r = {.rows = m->rows,
                                .n_docs = m->n_docs,
                                .max_doc = c->seq_length,
                                .noise = c->neftune_alpha > 0,
                                .entropy = c->entropy};
    lf_graph *g = make_graph(m, c, "train", &r, true, err);
    if (!g)
        return err ? err->rc : LF_EINVAL;
    struct lf_chain_opts train = {
        .train = true, .recompute = c->recompute, .slots = 1, .eras = ERA_TRAIN};
    m->train = lf_plan_add(m->plan, g, &train, err);
    lf_graph_destroy(g);
    m->valid = -1;
    if (m->train < 0 || !valid)
        return m->train < 0 ? m->train : 0;
    g = make_graph(m, c, "valid", &r, false, err);
    if (!g)
        return err ? err->rc : LF_EINVAL;
    m->valid = lf_plan_add(m->plan, g, &(struct lf_chain_opts){.slots = 1, .eras = ERA_VALID}, err);
    lf_graph_destroy(g);
    return m->valid < 0 ? m->valid : 0;
}

int lf_train_model_plan(struct lf_train_model *m, const struct lf_train_config *c,
                        const lf_model_config *mc, bool valid, const struct lf_train_who *who,
                        lf_err *err)
{
    const struct lf_plan_ranks share =
        lf_zero_share(&c->zero, c->bucket_bytes, who->data, who->data_ranks);
    const struct lf_layout layout = lf_axes_layout(&c->axes, who);
    struct lf_plan_opts po = {.target = lf_target_device(c->device),
                              .threads = c->threads,
                              .compute = c->compute,
                              .fp8 = c->fp8,
                              .mode = c->numeric,
                              .keep_master = !c->adapter,
                              .no_reuse = c->no_reuse};
    const lf_loader_config lc = lf_train_loader_config(c);
    int rc = lf_loader_check(&lc, err);
    if (rc == 0)
        rc = lf_zero_check(&c->zero, who->data_ranks, err);
    if (rc != 0)
        return rc;
    m->rows = (int64_t)c->micro_batch * c->seq_length;
    m->n_docs = lf_train_max_docs(c);
    m->dec = lf_decoder_create(mc, c->seq_length, err);
    m->ps = m->dec ? lf_pstore_create(err) : NULL;
    if (!m->ps)
        return err ? err->rc : LF_EINVAL;
    rc = who->tensor_ranks > 1 ? lf_pstore_set_layout(m->ps, &layout, err) : 0;
    if (rc == 0)
        rc = lf_decoder_declare(m->dec, m->ps, err);
    if (rc == 0 && c->adapter)
        rc = lf_decoder_adapt(m->dec, m->ps, c->adapter, err);
    if (rc == 0 && c->objective && c->objective->declare)
        rc = c->objective->declare(c->objective->user, m->dec, m->ps, err);
    if (rc == 0 && c->fp8)
        rc = lf_decoder_mark_fp8(m->dec, m->ps, &c->fp8_layers, err);
    for (size_t i = 0; i < c->n_freeze && rc == 0; i++)
        if (lf_pstore_freeze_matching(m->ps, c->freeze[i], true) == 0)
            rc = lf_fail(
                err, LF_EINVAL,
                "freeze = %s matches no tensor of the model; names are like layers.0.attn.q.weight",
                c->freeze[i]);
    if (rc != 0)
        return rc;
    m->plan = lf_plan_create(m->ps, &po, err);
    if (!m->plan)
        return err ? err->rc : LF_ENOMEM;
    rc = add_chains(m, c, valid, err);
    if (rc == 0 && c->guest)
        rc = c->guest->plan(c->guest->user, m->dec, m->ps, m->plan, err);
    if (rc == 0)
        rc = lf_plan_optimizer(m->plan, &c->adam, err);
    if (rc == 0)
        rc = lf_plan_data_parallel(m->plan, &share, err);
    if (rc == 0)
        rc = lf_plan_finish(m->plan, err);
    return rc;
}

int lf_train_model_bind(struct lf_train_model *m, const struct lf_train_config *c,
                        const lf_comm *comm, lf_err *err)
{
    const struct lf_device_opts d = {.device = c->device,
                                     .rank = comm ? comm->rank : 0,
                                     .local_rank = comm ? comm->local_rank : 0,
                                     .threads = c->threads};
    m->back = lf_back_create(&d, err);
    m->ex = m->back
                ? lf_exec_create(m->plan, m->back,
                                 &(struct lf_exec_opts){.profile = c->profile, .poison = c->poison},
                                 err)
                : NULL;
    return m->ex ? 0 : err ? err->rc : LF_ENOMEM;
}

void lf_train_model_fini(struct lf_train_model *m)
{
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->dec);
    memset(m, 0, sizeof(*m));
}

/* ---- --plan ---- */

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
            n = json_integer_value(json_object_get(train, "tokens"));
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
    if (!mc->vocab)
        mc->vocab = vocab;
    if (!mc->vocab)
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
    if (a && lf_train_tensors(&t, c, m, who, a, NULL) == 0 && (t.own || who->data == 0))
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
                                         (double)lf_train_data_bytes(c)};
    if (c->guest && c->guest->host_bytes)
        mem.host += (double)c->guest->host_bytes(c->guest->user);
    mem.host += lf_zero_comm_bytes(&c->zero, who->data_ranks) + lf_axes_comm_bytes(who);
    lf_plan_memory(&mem, lf_plan_target(m->plan), (double)b.total);
    return mem;
}

/* A rank of the run that is planned: the first one with this coordinate on the data axis. Of the
 * ranks that divide matrices the first has and saves as much as any other. */
static struct lf_train_who planned_rank(const struct lf_train_config *c, int data)
{
    struct lf_train_who who = lf_axes_who(&c->axes, 0, c->plan_ranks > 1 ? c->plan_ranks : 1);
    who.data = data;
    return who;
}

/* Makes the plan that of the rank which needs the most memory, and returns its coordinate on the
 * data axis. */
static int take_largest(const struct lf_train_config *c, struct lf_train_model *m)
{
    const int inner = lf_zero_inner(&c->zero, planned_rank(c, 0).data_ranks);
    /* the groups are alike, the first saves most */
    double most = -1;
    int largest = 0;
    for (int r = 0; c->zero.stage > 0 && r < inner && lf_plan_take_rank(m->plan, r, NULL) == 0;
         r++) {
        const struct lf_train_who who = planned_rank(c, r);
        const struct lf_plan_memory mem = lf_train_planned(c, m, &who);
        if (mem.total + mem.device > most) {
            most = mem.total + mem.device;
            largest = r;
        }
    }
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

static int plan_members(json_t *plan, const struct lf_train_config *c, const lf_model_config *mc,
                        struct lf_train_model *m, int64_t vocab, int64_t tokens, lf_err *err)
{
    struct lf_plan_bytes b;
    const struct lf_train_who who = planned_rank(c, take_largest(c, m));
    const int ranks = lf_axes_ranks(&who), largest = who.data * who.tensor_ranks;
    int rc = lf_plan_bytes(m->plan, &b);
    if (rc != 0)
        return lf_fail(err, rc, "the plan has no sizes");
    int64_t params = lf_pstore_elements(m->ps), steps = 0, samples = 0;
    const double saved = (double)lf_weights_bytes(m->ps, c->adapter != NULL); /* a checkpoint */
    const struct lf_plan_memory mem = lf_train_planned(c, m, &who);
    lf_schedule lr;
    json_t *notes = json_array();
    char unused[240];
    if (lf_train_word_unused(unused, sizeof unused, c, mc->vocab, vocab))
        note(notes, unused);
    if (c->epochs > 0 && !tokens) {
        note(notes, "the length of an epoch is known when the data is there");
    } else {
        rc = lf_train_length(&steps, &samples, &lr, c, tokens / c->seq_length, err);
        if (rc != 0) {
            json_decref(notes);
            return rc;
        }
    }
    if (!tokens)
        note(notes, "the index of data that does not exist yet is not in the planned memory");
    if (c->epochs > 0 && tokens)
        note(notes, "steps follow from the tokens of the data; packing may add a few");
    const struct lf_train_flops f = lf_train_flops_of(mc, m->ps);
    const double step_tokens = (double)(c->ramp[c->n_ramp - 1].samples * c->seq_length);
    double per_step = step_tokens * lf_train_flops_per_token(&f, mc, c->seq_length, true);
    double per_step_full = step_tokens * lf_train_flops_per_token(&f, mc, c->seq_length, false);
    json_t *bytes =
        json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "params", (double)b.params,
                  "grads", (double)b.grads, "optimizer", (double)b.optimizer, "activations",
                  (double)(b.saved + b.transient), "cache", (double)b.state, "workspace",
                  (double)b.workspace, "inputs", (double)b.inputs, "offloaded", (double)b.offloaded,
                  "host", mem.host, "device", mem.device, "total", mem.total);
    if (c->zero.stage > 0 && ranks > 1) /* without it all ranks have the same */
        json_object_set_new(bytes, "rank", json_integer(largest));
    struct lf_plan_comm pc;
    lf_plan_comm(m->plan, &pc);
    const int64_t rounds =
        lf_deal_count(c->ramp[c->n_ramp - 1].samples, c->micro_batch, 0, who.data_ranks);
    json_t *comm =
        json_pack("{s:f,s:I}", "bytes_per_step", pc.sent_bytes + (double)rounds * pc.micro_bytes,
                  "messages_per_step", (json_int_t)(pc.messages + rounds * pc.micro_messages));
    if (who.tensor_ranks > 1) {
        const double moved = pc.tensor.bytes + (double)rounds * pc.micro_tensor.bytes;
        json_object_set_new(comm, "tensor_bytes_per_step", json_real(moved));
        json_object_set_new(comm, "tensor_messages_per_step",
                            json_integer(pc.tensor.messages + rounds * pc.micro_tensor.messages));
    }
    const struct lf_json_member sizes[] = {
        {"ranks", json_integer(ranks)},
        {"comm", comm},
        {"parameters", json_integer(params)},
        {"trained", json_integer(lf_pstore_elements_trained(m->ps))},
        {"bytes", bytes},
        {"flops_per_step", json_real(per_step)},
        {"flops_per_step_full", json_real(per_step_full)},
        {"disk_bytes",
         json_real((double)(c->keep + 2) * saved + (c->adapter ? 4.0 * (double)params : 0))},
        {"notes", notes},
    };
    rc = lf_json_set(plan, sizes, sizeof sizes / sizeof sizes[0], "plan", err);
    if (rc != 0 || steps <= 0)
        return rc;
    const struct lf_json_member length[] = {
        {"steps", json_integer(steps)},
        {"tokens", json_integer(samples * c->seq_length)},
    };
    return lf_json_set(plan, length, sizeof length / sizeof length[0], "plan", err);
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
    if (!c->measure || lf_plan_target(m->plan)->sm)
        return 0;
    int rc = lf_train_measure(&rate, &how, mc, err);
    return rc == 0 && json_object_set_new(plan, "measured_flops", json_real(rate)) != 0
               ? lf_fail(err, LF_ENOMEM, "plan: out of memory")
               : rc;
}

/* What a run would find out when it opens its data, as far as it is known before. */
static int check_plan(const struct lf_train_config *c, lf_err *err)
{
    int rc = lf_train_check_valid(c, err);
    if (rc == 0)
        rc = lf_axes_check(&c->axes, c->plan_ranks > 1 ? c->plan_ranks : 1, err);
    for (size_t i = 0; i < c->n_ramp && rc == 0; i++)
        rc = lf_loader_check_batch(c->ramp[i].samples, c->micro_batch,
                                   planned_rank(c, 0).data_ranks, err);
    return rc;
}

int lf_train_plan(const struct lf_train_config *c, json_t *plan, lf_err *err)
{
    struct lf_train_model m = {0};
    lf_model_config mc;
    int64_t vocab, tokens;
    enum lf_artifact_state there = LF_ARTIFACT_PRESENT;
    const struct lf_train_who who = planned_rank(c, 0);
    int rc = check_plan(c, err);
    if (rc != 0)
        return rc;
    manifest_facts(c, &vocab, &tokens);
    if (!c->model_given && lf_artifact_state(&there, c->init_from, NULL) == 0 &&
        there == LF_ARTIFACT_ABSENT) {
        json_t *notes = json_pack(
            "[s]", "sizes follow from the checkpoint init_from, which does not exist yet");
        return notes && json_object_set_new(plan, "notes", notes) == 0
                   ? 0
                   : lf_fail(err, LF_ENOMEM, "plan: out of memory");
    }
    rc = plan_model(&mc, c, vocab, err);
    if (rc == 0)
        rc = lf_train_model_plan(
            &m, c, &mc, c->n_valid > 0 || (c->objective && c->objective->prepare), &who, err);
    if (rc == 0)
        rc = plan_members(plan, c, &mc, &m, vocab, tokens, err);
    if (rc == 0)
        rc = add_measured(plan, c, &mc, &m, err);
    if (c->guest)
        c->guest->leave(c->guest->user);
    lf_train_model_fini(&m);
    return rc;
}
