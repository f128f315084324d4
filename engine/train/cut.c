/* SPDX-License-Identifier: Apache-2.0
 *
 * The cut of a run: see cut.h.
 */
#include "engine/train/cut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/flops.h"
#include "engine/pipe/cut.h"
#include "engine/pipe/walk.h"
#include "engine/train/cost.h"
#include "engine/train/loop.h"

/* Of buffers, as tensors have. */
enum { ALIGN = 64 };

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static const struct lf_pipe *find(const struct lf_pipe *list, size_t n, int micro_batches)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].spec.micro_batches == micro_batches)
            return &list[i];
    return NULL;
}

const struct lf_pipe *lf_train_list(const struct lf_train_cut *k, int micro_batches)
{
    return find(k->list, k->n_lists, micro_batches);
}

/* ---- which layers ---- */

/* Most micro-batches of a rank in a step of the last batch, which is the one for most of a run. */
static int64_t micro_batches(const struct lf_train_config *c, const struct lf_train_who *who)
{
    return lf_deal_count(c->ramp[c->n_ramp - 1].samples, c->micro_batch, 0, who->data_ranks);
}

static int layer_flops(int64_t *cost, int64_t *head, const struct lf_train_config *c,
                       const lf_model_config *mc, lf_err *err)
{
    const int64_t layers = lf_model_depth(mc);
    double *flops = lf_calloc((size_t)layers + 1, sizeof *flops, err);
    const struct lf_model_lengths of = {c->seq_length, c->seq2seq.source_length};
    const int rc = flops ? lf_model_layer_flops(flops, mc, of, lf_train_mtp(c), err) : LF_ENOMEM;
    for (int64_t l = 0; l < layers && rc == 0; l++)
        cost[l] = llround(flops[l]);
    if (rc == 0)
        *head = llround(flops[layers]);
    free(flops);
    return rc;
}

/* By the times that were measured, else by FLOPs. */
static int cut_by_cost(struct lf_train_cut *k, const struct lf_train_config *c,
                       const lf_model_config *mc, int64_t step, lf_err *err)
{
    const int stages = k->spec.ranks * k->spec.chunks;
    const int64_t layers = lf_model_depth(mc);
    int64_t *cost = lf_calloc((size_t)layers + 1, sizeof *cost, err);
    struct lf_pipe_layers of = {.cost = cost, .n = (int)layers};
    int rc = cost ? 0 : LF_ENOMEM;
    if (rc == 0 && c->costs)
        lf_train_cost_weigh(&of, cost, c->costs, (int)step);
    else if (rc == 0)
        rc = layer_flops(cost, &of.head, c, mc, err);
    if (rc == 0 && lf_pipe_cut(k->layers, NULL, &of, stages, false, err))
        rc = lf_err_prefix(err, "pipeline: %d pipeline stages, the model has %lld layers", stages,
                           (long long)layers);
    free(cost);
    return rc;
}

static int cut_layers(struct lf_train_cut *k, const struct lf_train_config *c,
                      const lf_model_config *mc, const struct lf_train_who *who, lf_err *err)
{
    const int stages = k->spec.ranks * k->spec.chunks;
    if (!(k->layers = lf_calloc((size_t)stages, sizeof *k->layers, err)))
        return LF_ENOMEM;
    const char *given = c->costs && c->costs->layers ? c->costs->layers : c->axes.stages;
    if (given)
        return lf_pipe_cut_parse(k->layers, given, stages, (int)lf_model_depth(mc), err)
                   ? lf_err_prefix(err, "pipeline_stages")
                   : 0;
    return cut_by_cost(k, c, mc, micro_batches(c, who), err);
}

struct lf_decoder_chunk lf_train_part(const struct lf_train_cut *k, int stage)
{
    struct lf_decoder_chunk p = {.first = stage == 0,
                                 .last = stage == k->spec.ranks * k->spec.chunks - 1};
    for (int s = 0; s < stage; s++)
        p.begin += k->layers[s];
    p.end = p.begin + k->layers[stage];
    return p;
}

/* Of this rank. */
static void take_chunks(struct lf_train_cut *k, int rank)
{
    k->n_chunks = k->spec.chunks;
    for (int i = 0; i < k->n_chunks; i++) {
        k->chunk[i].stage = lf_pipe_stage(&k->spec, rank, i);
        k->chunk[i].part = lf_train_part(k, k->chunk[i].stage);
    }
}

/* ---- in which order ---- */

static int make_list(struct lf_pipe *p, const struct lf_pipe_spec *spec, lf_err *err)
{
    *p = (struct lf_pipe){0};
    int rc = lf_pipe_init(p, spec, err);
    if (rc == 0)
        rc = lf_pipe_add_messages(p, &(struct lf_pipe_message_opts){0}, err);
    return rc != 0 ? rc : lf_pipe_walk(NULL, p, &(struct lf_pipe_walk_opts){0}, err);
}

static int add_list(struct lf_train_cut *k, int64_t m, lf_err *err)
{
    struct lf_pipe_spec spec = k->spec;
    const int least = lf_pipe_kind_least(spec.kind, spec.ranks);
    if (m < 1 || lf_train_list(k, (int)m))
        return 0;
    if (m < least)
        return lf_fail(
            err, LF_EINVAL,
            "pipeline_schedule = %s with pipeline = %d: a step has %d micro-batch%s, and "
            "this order of passes needs %d; take a larger batch, or zb-v",
            lf_pipe_kind_name(spec.kind), spec.ranks, (int)m, m == 1 ? "" : "es", least);
    spec.micro_batches = (int)m;
    const int rc = lf_grow(&k->list, &k->room, k->n_lists, sizeof *k->list, err);
    if (rc != 0)
        return rc;
    k->spec.micro_batches = (int)m > k->spec.micro_batches ? (int)m : k->spec.micro_batches;
    return make_list(&k->list[k->n_lists++], &spec, err);
}

/* A last group of fewer than all ranks makes them wait for each other. */
int lf_train_forward_most(const struct lf_train_cut *k)
{
    const int m = k->spec.micro_batches, left = m % k->spec.ranks;
    return left < m ? m - left : m;
}

const struct lf_pipe *lf_train_forward_list(struct lf_train_cut *k, int micro_batches, lf_err *err)
{
    struct lf_pipe_spec spec = k->spec;
    const struct lf_pipe *found = find(k->forward, k->n_forward, micro_batches);
    if (found || lf_grow(&k->forward, &k->forward_room, k->n_forward, sizeof *k->forward, err))
        return found;
    spec.micro_batches = micro_batches;
    spec.forward = true;
    struct lf_pipe *p = &k->forward[k->n_forward];
    const int rc = make_list(p, &spec, err);
    if (rc == 0)
        return &k->forward[k->n_forward++];
    lf_pipe_fini(p);
    return NULL;
}

/* A rank has as many micro-batches as the first of those that share a batch, or as the last. */
static int make_lists(struct lf_train_cut *k, const struct lf_train_config *c,
                      const struct lf_train_who *who, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < c->n_ramp && rc == 0; i++)
        for (int last = 0; last < 2 && rc == 0; last++)
            rc = add_list(k,
                          lf_deal_count(c->ramp[i].samples, c->micro_batch,
                                        last ? who->data_ranks - 1 : 0, who->data_ranks),
                          err);
    return rc;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* What the lists of this rank need. */
static void take_needs(struct lf_train_cut *k, int rank)
{
    for (size_t l = 0; l < k->n_lists; l++)
        for (int i = 0; i < k->n_chunks; i++) {
            const struct lf_pipe *p = &k->list[l];
            struct lf_train_chunk *h = &k->chunk[i];
            const int at = rank * k->spec.chunks + i;
            h->slots = larger(h->slots, p->slots[at]);
            for (int d = 0; d < LF_PIPE_DIRS; d++) {
                h->buffers[d][0] = larger(h->buffers[d][0], p->recv_buffers[d][at]);
                h->buffers[d][1] = larger(h->buffers[d][1], p->send_buffers[d][at]);
            }
        }
    for (int i = 0; i < k->n_chunks; i++)
        for (int d = 0; d < LF_PIPE_DIRS; d++)
            k->bytes +=
                k->message * (size_t)(k->chunk[i].buffers[d][0] + k->chunk[i].buffers[d][1]);
}

/* ---- what is asked for ---- */

static enum lf_pipe_kind kind_of(const struct lf_axes *a)
{
    return a->schedule     ? (enum lf_pipe_kind)(a->schedule - 1)
           : a->chunks > 1 ? LF_PIPE_INTERLEAVED
                           : LF_PIPE_1F1B;
}

int lf_train_chunks(const struct lf_axes *a)
{
    const int own = lf_pipe_kind_chunks(kind_of(a));
    return own ? own : a->chunks > 1 ? a->chunks : 1;
}

/* Do chunks and schedule go together? */
static int check_chunks(const struct lf_axes *a, lf_err *err)
{
    const int own = lf_pipe_kind_chunks(kind_of(a));
    if (a->chunks > LF_TRAIN_MAX_CHUNKS)
        return lf_fail(err, LF_EINVAL, "pipeline_chunks = %d: at most %d", a->chunks,
                       (int)LF_TRAIN_MAX_CHUNKS);
    if (a->chunks > 1 && own && a->chunks != own)
        return lf_fail(
            err, LF_EINVAL, "pipeline_chunks = %d: pipeline_schedule = %s has %s on each rank; %s",
            a->chunks, lf_pipe_kind_name(kind_of(a)), own == 1 ? "one chunk" : "two chunks",
            own == 1 ? "take interleaved" : "leave pipeline_chunks out");
    return 0;
}

int64_t lf_train_own_rows(const struct lf_train_config *c, const struct lf_train_who *who)
{
    return (int64_t)c->micro_batch * c->seq_length / who->context_ranks;
}

int lf_train_cut_check(const struct lf_train_config *c, lf_err *err)
{
    const struct lf_axes *a = &c->axes;
    if (a->pipeline <= 1)
        return 0;
    const int rc = check_chunks(a, err);
    if (rc != 0)
        return rc;
    if (c->zero.stage > 1)
        return lf_fail(err, LF_ENOTSUP,
                       "zero = %d with pipeline = %d: gradients and weights would be moved for "
                       "each micro-batch; take zero = 1",
                       c->zero.stage, a->pipeline);
    if (c->guest)
        return lf_fail(err, LF_ENOTSUP,
                       "samples during training (sample_interval) need the whole model on one "
                       "rank; leave them out, or pipeline");
    return 0;
}

int lf_train_cut_open(struct lf_train_cut *k, const struct lf_train_config *c,
                      const lf_model_config *mc, const struct lf_train_who *who, lf_err *err)
{
    *k = (struct lf_train_cut){.n_chunks = 1};
    k->chunk[0].part =
        (struct lf_decoder_chunk){.end = lf_model_depth(mc), .first = true, .last = true};
    k->chunk[0].slots = 1;
    if (who->pipeline_ranks <= 1)
        return 0;
    k->chunk[0] = (struct lf_train_chunk){0};
    int rc = lf_train_cut_check(c, err);
    k->spec = (struct lf_pipe_spec){.kind = kind_of(&c->axes),
                                    .ranks = who->pipeline_ranks,
                                    .chunks = lf_train_chunks(&c->axes)};
    if (rc == 0)
        rc = cut_layers(k, c, mc, who, err);
    if (rc == 0)
        rc = make_lists(k, c, who, err);
    if (rc != 0)
        return rc;
    take_chunks(k, who->pipeline);
    const int64_t parts = c->axes.sequence ? who->tensor_ranks : 1,
                  rows = lf_train_own_rows(c, who) / parts,
                  sources = (int64_t)c->micro_batch * c->seq2seq.source_length / parts;
    k->source_at = padded((size_t)(rows * mc->hidden) * lf_dtype_size(c->compute));
    k->sums_at = k->source_at + padded((size_t)(sources * mc->hidden) * lf_dtype_size(c->compute));
    k->message = k->sums_at + padded(2 * (size_t)mc->experts * sizeof(float));
    take_needs(k, who->pipeline);
    return 0;
}

void lf_train_cut_close(struct lf_train_cut *k)
{
    for (size_t i = 0; i < k->n_lists; i++)
        lf_pipe_fini(&k->list[i]);
    for (size_t i = 0; i < k->n_forward; i++)
        lf_pipe_fini(&k->forward[i]);
    free(k->list);
    free(k->forward);
    free(k->layers);
    *k = (struct lf_train_cut){0};
}
