/* SPDX-License-Identifier: Apache-2.0
 *
 * Before the first step: checks, model, plan, memory, data, length of the run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/loop_priv.h"
#include "engine/train/megatron_order.h"

/* Below them are a guest's. */
#define ERA_TRAIN (1u << LF_TRAIN_GUEST_ERAS)
#define ERA_VALID (2u << LF_TRAIN_GUEST_ERAS)

/* Of a whole run; far from where 64 bits end. */
#define MAX_RUN_TOKENS 100000000000000000

int64_t lf_train_max_docs(const struct lf_train_config *c)
{
    const lf_loader_config lc = lf_train_loader_config(c, NULL);
    return (int64_t)lf_loader_segs(&lc) * c->micro_batch;
}

/* Texts of a micro-batch: documents, or, where these are several texts, four of each on average. */
static int64_t texts_room(const struct lf_train_config *c, int64_t rows)
{
    const int64_t docs = lf_train_max_docs(c);
    if (!c->objective || !c->objective->several)
        return docs;
    return 4 * docs < rows ? 4 * docs : rows;
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

static const char *const best_metrics[] = {"loss",     "accuracy", "margin", "f1",
                                           "matthews", "pearson",  "exact"};

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

static int check_features(const struct lf_train_config *c, lf_err *err)
{
    if (!c->n_features)
        return 0;
    if (!c->max_patches)
        return lf_fail(err, LF_EINVAL, "features are of pictures, which need max_patches too");
    if (!c->init_from && !c->vision_from)
        return lf_fail(err, LF_EINVAL,
                       "features are those of an encoder, which the result has too: give init_from "
                       "or vision_from, the checkpoint that they were made with");
    if (lf_train_pictures(c))
        return lf_fail(err, LF_EINVAL,
                       "objective = mae trains an encoder, so there are no features of it yet");
    return 0;
}

/* Has the model an encoder for sources, if there are some? */
static int check_source(const struct lf_train_config *c, const lf_model_config *mc, lf_err *err)
{
    return !c->seq2seq.source_length || lf_model_is_seq2seq(mc)
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "source_length = %d is of encoder-decoders ([model] encoder_layers), and "
                         "this model reads one text; leave it out",
                         c->seq2seq.source_length);
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
    if (c->vision_from && c->model_given && !c->model.vision.family)
        return lf_fail(
            err, LF_EINVAL,
            "vision_from gives an encoder of pictures, but [model] has no vision.family");
    if (!c->model_given && !c->init_from)
        return lf_fail(err, LF_EINVAL, "no model: describe one in [model], or give init_from");
    if (c->adapter && !c->init_from)
        return lf_fail(err, LF_EINVAL,
                       "an adapter (lora_rank) needs init_from, the weights it is for");
    if (c->average.decay > 0 && c->adapter)
        return lf_fail(err, LF_ENOTSUP,
                       "ema averages all weights of a model; with an adapter (lora_rank) leave it "
                       "out");
    if (c->average.decay <= 0 && (c->average.start > 0 || c->average.warmup))
        return lf_fail(err, LF_EINVAL, "%s belongs to ema, and there is none",
                       c->average.start > 0 ? "ema_start" : "ema_warmup");
    if (c->adapter && c->adam.masters != LF_F32)
        return lf_fail(err, LF_EINVAL,
                       "masters = bf16 is for training of all weights; an adapter (lora_rank) has "
                       "few of its own");
    if (c->model_given && !lf_model_sees_alone(&c->model) && c->seq_length > c->model.max_positions)
        return lf_fail(err, LF_EINVAL, "seq_length = %d is more than [model] max_positions = %lld",
                       c->seq_length, (long long)c->model.max_positions);
    if (c->model_given && check_source(c, &c->model, err))
        return LF_EINVAL;
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
        rc = check_features(c, err);
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
        const double repeats =
            c->objective && c->objective->repeats > 1 ? c->objective->repeats : 1;
        if (epoch_samples < 1)
            return lf_fail(err, LF_EINVAL, "the length of an epoch is not known yet");
        *steps = lf_ramp_steps_to(c->ramp, c->n_ramp,
                                  (int64_t)ceil(c->epochs * (double)epoch_samples * repeats));
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

static struct lf_decoder_rows rows_of(const struct lf_train_model *m,
                                      const struct lf_train_config *c,
                                      const struct lf_train_chunk *h)
{
    return (struct lf_decoder_rows){.rows = m->own_rows,
                                    .n_docs = m->n_docs,
                                    .max_doc = c->seq_length,
                                    .source_rows =
                                        (int64_t)c->micro_batch * c->seq2seq.source_length,
                                    .max_source = c->seq2seq.source_length,
                                    .noise = c->neftune_alpha > 0,
                                    .entropy = c->entropy,
                                    .media = c->max_patches ? &m->media : NULL,
                                    .chunk = lf_train_is_cut(&m->cut) ? &h->part : NULL};
}

/* Of training, or of validation. Returns the chain. */
static int add_chain(struct lf_train_model *m, const struct lf_train_config *c,
                     const struct lf_train_chunk *h, const struct lf_chain_opts *o, lf_err *err)
{
    const struct lf_decoder_rows r = rows_of(m, c, h);
    lf_graph *g = make_graph(m, c, o->train ? "train" : "valid", &r, o->train, err);
    if (!g)
        return err ? err->rc : LF_EINVAL;
    const int chain = lf_plan_add(m->plan, g, o, err);
    lf_graph_destroy(g);
    return chain;
}

static int add_chains(struct lf_train_model *m, const struct lf_train_config *c, bool valid,
                      lf_err *err)
{
    const bool cut = lf_train_is_cut(&m->cut);
    int rc = 0;
    for (int i = 0; i < m->cut.n_chunks && rc == 0; i++) {
        struct lf_train_chunk *h = &m->cut.chunk[i];
        const struct lf_chain_opts train = {.train = true,
                                            .frozen = h->part.frozen,
                                            .recompute = c->recompute,
                                            .slots = h->slots,
                                            .eras = ERA_TRAIN,
                                            .chunk = cut ? i + 1 : 0,
                                            .split = cut && lf_pipe_kind_splits(m->cut.spec.kind)};
        rc = h->train = add_chain(m, c, h, &train, err);
    }
    for (int i = 0; i < m->cut.n_chunks && rc >= 0; i++) {
        struct lf_train_chunk *h = &m->cut.chunk[i];
        const struct lf_chain_opts check = {
            .slots = 1, .eras = ERA_VALID, .chunk = cut ? i + 1 : 0};
        h->valid = -1;
        if (valid)
            rc = h->valid = add_chain(m, c, h, &check, err);
    }
    m->train = m->cut.chunk[m->cut.n_chunks - 1].train;
    m->valid = m->cut.chunk[m->cut.n_chunks - 1].valid;
    const struct lf_decoder_rows r = rows_of(m, c, &m->cut.chunk[0]);
    if (rc >= 0 && c->objective && c->objective->plan)
        rc = c->objective->plan(c->objective->user, m->ps, m->plan, &r, valid, err);
    return rc < 0 ? rc : 0;
}

static int check_guest(const struct lf_train_config *c, lf_err *err)
{
    if (c->n_features && c->guest)
        return lf_fail(err, LF_ENOTSUP,
                       "samples during training (sample_interval) run the encoder, which is not in "
                       "memory with features; leave one of them out");
    if (c->axes.sequence && c->guest)
        return lf_fail(
            err, LF_ENOTSUP,
            "samples during training (sample_interval) have one row for each text, which "
            "sequence_parallel cannot divide; leave one of them out");
    return 0;
}

/* Is the model one that can be asked for what is trained? */
/* The head that pairs of texts are for, and types by which its model knows them apart. */
static int check_nsp(const struct lf_train_config *c, const lf_model_config *mc, lf_err *err)
{
    if (!c->nsp)
        return 0;
    if (!lf_model_tells_pairs(mc))
        return lf_fail(err, LF_EINVAL,
                       "nsp: this model has no head that tells whether texts follow each other; "
                       "give [model] nsp_head = yes, or an init_from that was imported as "
                       "BertForPreTraining");
    if (mc->token_types < 2)
        return lf_fail(err, LF_EINVAL,
                       "nsp: the two texts of a pair are of two types, and [model] token_types = "
                       "%lld",
                       (long long)mc->token_types);
    return lf_nsp_check(c->nsp, mc->vocab, err);
}

static int check_mask(const struct lf_train_config *c, const lf_model_config *mc, lf_err *err)
{
    if (mc->output == LF_OUTPUT_LABELS && !c->objective)
        return lf_fail(err, LF_EINVAL,
                       "this model gives labels ([model] output = labels); train it with objective "
                       "= labels of lf-rm");
    if (!c->mlm) /* what is read of whole texts asks for no next token */
        return c->objective && c->objective->whole_texts ? 0 : lf_model_need_next(mc, err);
    if (mc->mask != LF_MASK_BOTH)
        return lf_fail(err, LF_EINVAL,
                       "objective = mlm trains an encoder, whose tokens see both ways: [model] "
                       "mask = both, which the families bert, roberta, distilbert and modernbert "
                       "have");
    const int rc = lf_mlm_check(c->mlm, mc->vocab, err);
    return rc != 0 ? rc : check_nsp(c, mc, err);
}

/* An encoder-decoder is trained on sources and targets, and nothing else is. */
static int check_seq2seq(const struct lf_train_config *c, const lf_model_config *mc,
                         const struct lf_train_who *who, lf_err *err)
{
    if (!lf_model_is_seq2seq(mc))
        return check_source(c, mc, err);
    if (c->objective)
        return lf_fail(err, LF_ENOTSUP,
                       "this model is an encoder-decoder ([model] encoder_layers): it is trained "
                       "by lf-pretrain and lf-sft alone so far");
    if (!c->seq2seq.source_length)
        return lf_fail(err, LF_EINVAL,
                       "this model is an encoder-decoder ([model] encoder_layers): give "
                       "source_length, the tokens that its encoder reads of a sequence");
    if (c->seq2seq.source_length > mc->max_positions)
        return lf_fail(err, LF_EINVAL,
                       "source_length = %d is more than [model] max_positions = %lld",
                       c->seq2seq.source_length, (long long)mc->max_positions);
    if (c->guest)
        return lf_fail(err, LF_ENOTSUP,
                       "samples during training (sample_interval) continue texts, and an "
                       "encoder-decoder answers a source; leave them out");
    if (c->neftune_alpha > 0)
        return lf_fail(err, LF_ENOTSUP,
                       "neftune_alpha: noise on the embeddings of sources is not there yet; leave "
                       "it out");
    if (who->context_ranks > 1)
        return lf_fail(err, LF_ENOTSUP,
                       "context = %d: the rows of sources are not divided; take context = 1",
                       who->context_ranks);
    const int64_t rows = (int64_t)c->micro_batch * c->seq2seq.source_length;
    return c->axes.sequence && rows % who->tensor_ranks
               ? lf_fail(err, LF_EINVAL,
                         "sequence_parallel: the %lld rows of sources of a micro-batch "
                         "(source_length x micro_batch) do not divide among %d ranks (tensor); "
                         "make source_length a multiple of %d, or leave sequence_parallel out",
                         (long long)rows, who->tensor_ranks, who->tensor_ranks)
               : 0;
}

int lf_train_context_check(const struct lf_train_config *c, const struct lf_train_who *who,
                           lf_err *err)
{
    const int64_t rows = (int64_t)c->micro_batch * c->seq_length;
    if (who->context_ranks <= 1)
        return 0;
    if (c->objective && !c->objective->row_bytes)
        return lf_fail(err, LF_ENOTSUP,
                       "context = %d: this loss is one of pictures, whose rows are not divided; "
                       "take context = 1",
                       who->context_ranks);
    if (c->guest)
        return lf_fail(err, LF_ENOTSUP,
                       "samples during training (sample_interval) have one row for each text, "
                       "which context cannot divide; leave one of them out");
    const int rc = lf_axes_check_device(&c->axes, c->device, err);
    if (rc != 0)
        return rc;
    return rows % who->context_ranks
               ? lf_fail(err, LF_EINVAL,
                         "context = %d: the %lld rows of a micro-batch (seq_length x micro_batch) "
                         "do not divide among so many ranks; make seq_length a multiple of it",
                         who->context_ranks, (long long)rows)
               : 0;
}

int lf_train_experts_check(const struct lf_train_config *c, const struct lf_train_who *who,
                           lf_err *err)
{
    const int n = who->expert_ranks;
    if (n <= 1)
        return 0;
    if (c->zero.inner)
        return lf_fail(err, LF_ENOTSUP,
                       "expert = %d with zero_inner = %d: the ranks with the same experts are in "
                       "several of these groups; leave zero_inner out",
                       n, c->zero.inner);
    if (c->guest)
        return lf_fail(err, LF_ENOTSUP,
                       "samples during training (sample_interval) run on each rank alone, which "
                       "has not all experts; leave them out, or expert");
    return 0;
}

static int check_experts(const struct lf_train_config *c, const lf_model_config *mc,
                         const struct lf_train_who *who, lf_err *err)
{
    const int n = who->expert_ranks;
    if (n <= 1)
        return 0;
    if (!mc->experts)
        return lf_fail(err, LF_EINVAL,
                       "expert = %d divides experts among ranks, and the model has none; leave it "
                       "out",
                       n);
    if (mc->experts % n)
        return lf_fail(err, LF_EINVAL,
                       "expert = %d: the %lld experts of the model do not divide among so many "
                       "ranks; take a divisor of their number",
                       n, (long long)mc->experts);
    return lf_train_experts_check(c, who, err);
}

static int add_optimizer(lf_plan *plan, const struct lf_train_config *c, lf_err *err)
{
    struct lf_adamw_opts adam = c->adam;
    adam.average = c->average.decay > 0;
    return lf_plan_optimizer(plan, &adam, err);
}

int lf_train_model_plan(struct lf_train_model *m, const struct lf_train_config *c,
                        const lf_model_config *mc, bool valid, const struct lf_train_who *who,
                        lf_err *err)
{
    struct lf_plan_ranks share =
        lf_zero_share(&c->zero, c->bucket_bytes, lf_axes_sharer(who), lf_axes_sharers(who));
    struct lf_layout layout = lf_axes_layout(&c->axes, who);
    struct lf_plan_opts po = {.target = lf_target_device(c->device),
                              .threads = c->threads,
                              .compute = c->compute,
                              .fp8 = c->fp8,
                              .mode = c->numeric,
                              /* a checkpoint has no fp16 */
                              .keep_master = (!c->adapter && c->compute == LF_F16) ||
                                             (c->objective && c->objective->averages),
                              .no_reuse = c->no_reuse};
    const lf_loader_config lc = lf_train_loader_config(c, mc);
    if (c->mtp_asked && !mc->mtp_layers)
        return lf_fail(err, LF_EINVAL,
                       "mtp_weight: this model has no heads for later tokens; leave it out, or "
                       "train a model with [model] mtp_layers");
    m->rows = (int64_t)c->micro_batch * c->seq_length;
    m->own_rows = lf_train_own_rows(c, who);
    lf_axes_fit(&layout, &c->axes, mc, m->own_rows);
    int rc = check_mask(c, mc, err);
    if (rc == 0)
        rc = check_seq2seq(c, mc, who, err);
    if (rc != 0)
        return rc;
    rc = lf_model_heads_fit(mc, po.target->head_dim, po.target->name, err);
    if (rc == 0)
        rc = lf_train_bound_pictures(m, c, mc, err);
    if (rc == 0)
        rc = lf_loader_check(&lc, err);
    if (rc == 0)
        rc = check_guest(c, err);
    if (rc == 0)
        rc = lf_train_context_check(c, who, err);
    if (rc == 0)
        rc = check_experts(c, mc, who, err);
    if (rc == 0)
        rc = lf_zero_check(&c->zero, lf_axes_sharers(who), err);
    if (rc == 0)
        rc = lf_train_cut_open(&m->cut, c, mc, who, err);
    if (rc != 0)
        return rc;
    share.pipeline = who->pipeline_ranks;
    if (layout.sequence && m->own_rows % who->tensor_ranks)
        return lf_fail(
            err, LF_EINVAL,
            "sequence_parallel: the %lld rows of a micro-batch (seq_length x micro_batch%s) "
            "do not divide among %d ranks (tensor); make seq_length a multiple of %d, or "
            "leave sequence_parallel out",
            (long long)m->own_rows, who->context_ranks > 1 ? " / context" : "", who->tensor_ranks,
            who->tensor_ranks * who->context_ranks);
    m->n_docs = texts_room(c, m->rows);
    m->dec = lf_decoder_create(mc, c->seq_length, err);
    m->ps = m->dec ? lf_pstore_create(err) : NULL;
    if (!m->ps)
        return err ? err->rc : LF_EINVAL;
    if (lf_train_mtp(c))
        lf_decoder_train_mtp(m->dec);
    if (c->nsp)
        lf_decoder_train_nsp(m->dec);
    if (who->tensor_ranks > 1 || who->context_ranks > 1 || who->expert_ranks > 1)
        rc = lf_pstore_set_layout(m->ps, &layout, err);
    if (rc == 0)
        rc = lf_train_declare(m, c, who, err);
    if (rc != 0)
        return rc;
    m->plan = lf_plan_create(m->ps, &po, err);
    if (!m->plan)
        return err ? err->rc : LF_ENOMEM;
    rc = add_chains(m, c, valid, err);
    if (rc == 0 && c->guest)
        rc = c->guest->plan(c->guest->user, m->dec, m->ps, m->plan, err);
    if (rc == 0 && m->cut.bytes && !lf_train_cut_on_host(m))
        rc = lf_plan_state(m->plan, LF_TRAIN_CUT_STATE, m->cut.bytes, err);
    if (rc == 0)
        rc = add_optimizer(m->plan, c, err);
    if (rc == 0)
        rc = lf_plan_data_parallel(m->plan, &share, err);
    if (rc == 0)
        rc = lf_plan_finish(m->plan, err);
    return rc == 0 ? lf_train_origin_open(m, c, err) : rc;
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
    lf_pstore_destroy(m->whole);
    lf_decoder_destroy(m->dec);
    lf_train_cut_close(&m->cut);
    lf_train_origin_close(&m->origin);
    memset(m, 0, sizeof(*m));
}
