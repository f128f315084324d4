/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a run do together. Those of the data axis share the micro-batches, those of the
 * tensor axis have the same ones (axes.h). Gradients are summed in the optimizer's segment
 * (lf_plan_data_parallel), and what divided matrices need is summed within the passes; everything
 * else is here: one small exchange per step, one per look at the stop flag, and the state they
 * begin with. Rank 0 alone writes metrics. With one rank nothing here does anything. The rules by
 * which ranks never wait for each other for ever are in run.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"
#include "engine/train/pipe.h"

/* A step may take so much longer than the longest so far before it counts as a hang. Before there
 * is one: as if a thread of a busy machine did so many FLOP/s. */
#define STEP_SLACK   4.0
#define STEP_SLACK_S 40.0
#define SLOW_FLOPS   5e8

bool lf_train_first_rank(const lf_trainer *t)
{
    return lf_run_first(&t->run);
}

int lf_train_agree(const lf_trainer *t, int rc, lf_err *err)
{
    return lf_run_agree(&t->run, rc, err);
}

void lf_train_pass_failed(const lf_trainer *t, const lf_err *err)
{
    char text[1100];
    if ((t->who.expert_ranks <= 1 && t->who.pipeline_ranks <= 1) || !err)
        return;
    snprintf(text, sizeof text, "rank %d failed in step %lld: %s", t->run.rank,
             (long long)t->s.step + 1, err->text);
    lf_comm_end_job(t->run.comm, text);
}

static double slow_step_s(const lf_trainer *t)
{
    const struct lf_train_config *c = t->c;
    double tokens =
        (double)(lf_ramp_samples(c->ramp, c->n_ramp, t->s.cursor) * c->seq_length) / t->run.ranks;
    return tokens * lf_model_train_flops_per_token(&t->mc, c->seq_length, true) /
           (SLOW_FLOPS * c->threads);
}

/* ---- passes in step ---- */

int64_t lf_train_rounds(const lf_trainer *t, int64_t n_samples)
{
    return lf_deal_count(n_samples, t->c->micro_batch, 0, t->who.data_ranks);
}

int lf_train_stand_by(lf_trainer *t, int chain, int64_t *ran, int64_t rounds, int rc, lf_err *err)
{
    int other = 0;
    for (; *ran < rounds && other == 0; (*ran)++)
        other = lf_exec_idle(t->m.ex, chain, LF_FWD, LF_FIRST, rc != 0 ? NULL : err);
    if (other != 0)
        lf_train_pass_failed(t, err);
    if (rc == 0 && other == 0)
        lf_train_expect_passes(t, chain, *ran, false);
    return rc != 0 ? rc : other;
}

/* ---- what moves ---- */

static void expect(struct lf_plan_moved *m, struct lf_plan_moved more, int64_t times)
{
    m->messages += times * more.messages;
    m->bytes += (double)times * more.bytes;
}

void lf_train_expect_passes(lf_trainer *t, int chain, int64_t passes, bool backward)
{
    struct lf_plan_moved rows;
    expect(&t->within, lf_plan_pass_comm(t->m.plan, chain, backward, false), passes);
    expect(&t->same, lf_plan_pass_comm(t->m.plan, chain, backward, true), passes);
    expect(&t->counts, lf_plan_pass_experts(t->m.plan, chain, backward, &rows), passes);
}

void lf_train_expect_run(lf_trainer *t, int chain, bool backward)
{
    struct lf_plan_moved *const of[] = {&t->tensor, &t->context};
    const enum lf_axis axis[] = {LF_AXIS_TENSOR, LF_AXIS_CONTEXT};
    for (int i = 0; i < 2; i++) {
        expect(of[i], lf_plan_pass_axis(t->m.plan, axis[i], chain, backward), 1);
        if (backward) /* that was of both passes */
            expect(of[i], lf_plan_pass_axis(t->m.plan, axis[i], chain, false), -1);
    }
}

void lf_train_expect_update(lf_trainer *t)
{
    struct lf_plan_comm c;
    if (lf_plan_comm(t->m.plan, &c) != 0)
        return;
    expect(&t->all, c.all, 1);
    expect(&t->within, c.within, 1);
    expect(&t->across, c.across, 1);
    expect(&t->tensor, c.tensor, 1);
    expect(&t->same, c.same, 1);
}

void lf_train_expect_hold(lf_trainer *t)
{
    struct lf_plan_comm c;
    if (lf_plan_comm(t->m.plan, &c) == 0)
        expect(&t->within, c.hold, 1);
}

void lf_train_count_anew(lf_trainer *t)
{
    if (t->run.ranks > 1 && t->m.back->ops->host_visible)
        lf_devcomm_counted(&t->dev, t->before);
}

void lf_train_count_apart(lf_trainer *t, const struct lf_comm_counts then[LF_DEVCOMM_COUNTED])
{
    struct lf_comm_counts now[LF_DEVCOMM_COUNTED];
    lf_devcomm_counted(&t->dev, now);
    for (int i = 0; i < LF_DEVCOMM_COUNTED; i++) {
        t->before[i].planned.calls += now[i].planned.calls - then[i].planned.calls;
        t->before[i].planned.bytes_sent += now[i].planned.bytes_sent - then[i].planned.bytes_sent;
    }
}

/* Without groups `within` is among all ranks. */
static bool as_planned(const lf_trainer *t, const struct lf_comm_counts *n)
{
    struct lf_plan_moved want[LF_DEVCOMM_COUNTED] = {t->all,     t->within, t->across, t->tensor,
                                                     t->context, t->counts, t->same};
    bool same = true;
    if (!t->dev.inner) {
        expect(&want[0], want[1], 1);
        want[1] = (struct lf_plan_moved){0};
    }
    for (int i = 0; i < LF_DEVCOMM_COUNTED; i++)
        same = same &&
               (uint64_t)want[i].messages == n[i].planned.calls - t->before[i].planned.calls &&
               want[i].bytes == (double)(n[i].planned.bytes_sent - t->before[i].planned.bytes_sent);
    return same;
}

int lf_train_report_moved(lf_trainer *t, lf_err *err)
{
    struct lf_comm_counts n[LF_DEVCOMM_COUNTED] = {0};
    if (t->run.ranks <= 1 || !t->m.back->ops->host_visible) /* others count calls alone */
        return 0;
    lf_devcomm_counted(&t->dev, n);
    int64_t differ = !as_planned(t, n);
    const int rc = lf_comm_agree_max(t->run.comm, &differ, err);
    uint64_t calls = 0, bytes = 0;
    for (int i = 0; i < LF_DEVCOMM_COUNTED; i++) {
        calls += n[i].planned.calls - t->before[i].planned.calls;
        bytes += n[i].planned.bytes_sent - t->before[i].planned.bytes_sent;
    }
    lf_train_log(t, differ ? 1 : 2,
                 "rank 0 sent %llu bytes in %llu collectives of the plan, and %llu bytes in %llu "
                 "others%s",
                 (unsigned long long)bytes, (unsigned long long)calls,
                 (unsigned long long)(n[0].collective.bytes_sent - n[0].planned.bytes_sent),
                 (unsigned long long)(n[0].collective.calls - n[0].planned.calls),
                 differ ? "; a rank sent what the plan does not say" : "; every rank as planned");
    if (differ)
        lf_train_log(t, 1, "the plan says %.0f bytes in %lld collectives of rank 0",
                     t->all.bytes + t->within.bytes + t->across.bytes + t->tensor.bytes +
                         t->context.bytes + t->counts.bytes + t->same.bytes,
                     (long long)(t->all.messages + t->within.messages + t->across.messages +
                                 t->tensor.messages + t->context.messages + t->counts.messages +
                                 t->same.messages));
    return rc;
}

void lf_train_phase_step(const lf_trainer *t)
{
    if (t->run.ranks <= 1)
        return;
    lf_comm_step(t->run.comm, t->s.step + 1);
    double most = t->longest_s > 0 ? STEP_SLACK * t->longest_s : slow_step_s(t);
    lf_comm_phase(t->run.comm, "training step", most + STEP_SLACK_S);
}

int lf_train_connect(lf_trainer *t, lf_err *err)
{
    /* Losses of objectives are computed by the host, profiles wait for every kernel, sums through
     * host memory for the gradients, ranks of a pipeline for each other: there is nothing to run
     * ahead of. A device that watches for spikes knows the sum of one loss, which nsp adds to. */
    t->ahead =
        t->m.back->ops->late_begin && !t->c->objective && !t->c->nsp && !t->c->profile && !t->pipe;
    if (t->run.ranks <= 1)
        return 0;
    const int inner = lf_zero_inner(&t->c->zero, lf_axes_sharers(&t->who));
    const struct lf_devcomm_axes axes = {.data = t->comms.data,
                                         .context = t->comms.context,
                                         .tensor = t->comms.tensor,
                                         .pipeline = t->comms.pipeline,
                                         .ends = t->comms.ends,
                                         .experts = t->comms.experts,
                                         .same = t->comms.same,
                                         .tied = lf_train_pipe_tied(t),
                                         .ring = lf_pipe_goes_round(&t->m.cut.spec),
                                         .groups = inner < lf_axes_sharers(&t->who)};
    int rc = lf_devcomm_open(&t->dev, &axes, t->m.back, err);
    if (rc == 0 && inner < lf_axes_sharers(&t->who))
        rc = lf_devcomm_groups(&t->dev, inner, err);
    if (rc == 0)
        lf_devcomm_connect(&t->dev, t->m.ex);
    t->ahead = t->ahead && t->dev.gpus;
    return rc;
}

void lf_train_disconnect(lf_trainer *t, bool failed)
{
    lf_devcomm_close(&t->dev, failed);
}

void lf_train_count_once(const lf_trainer *t, double *v, size_t n)
{
    for (size_t i = 0; t->who.tensor > 0 && i < n; i++)
        v[i] = 0;
}

void lf_train_count_packs(const lf_trainer *t, double *v, size_t n)
{
    lf_train_count_once(t, v, n);
    for (size_t i = 0; t->who.context > 0 && i < n; i++)
        v[i] = 0;
}

/* Collective: adds up what further heads have; no objective trains them. */
static int sum_more(const lf_trainer *t, const struct lf_train_sums *mine, struct lf_train_sums *s,
                    lf_err *err)
{
    double v[3 * LF_MORE_HEADS];
    memcpy(v, mine->more_loss, sizeof mine->more_loss);
    memcpy(v + LF_MORE_HEADS, mine->more_tokens, sizeof mine->more_tokens);
    memcpy(v + 2 * LF_MORE_HEADS, mine->more_correct, sizeof mine->more_correct);
    lf_train_count_once(t, v, 3 * LF_MORE_HEADS);
    const int rc =
        lf_comm_all_reduce(t->run.comm, v, 3 * LF_MORE_HEADS, LF_COMM_F64, LF_COMM_SUM, err);
    memcpy(s->more_loss, v, sizeof s->more_loss);
    memcpy(s->more_tokens, v + LF_MORE_HEADS, sizeof s->more_tokens);
    memcpy(s->more_correct, v + 2 * LF_MORE_HEADS, sizeof s->more_correct);
    return rc;
}

int lf_train_exchange(const lf_trainer *t, int rc, struct lf_train_sums *s, lf_err *err)
{
    if (t->run.ranks <= 1)
        return rc;
    /* Counts below 2^53: exact. */
    double v[] = {s->loss,
                  s->z,
                  (double)s->tokens,
                  s->router_aux,
                  s->router_entropy,
                  s->router_load,
                  (double)s->router_seen,
                  (double)s->correct,
                  s->entropy,
                  s->router_dropped,
                  s->waited,
                  s->passed,
                  s->late && t->run.rank == 0,
                  rc != 0};
    enum { N = sizeof(v) / sizeof(v[0]) };
    for (int i = 0; (rc != 0 || t->who.tensor > 0) && i < N - 4; i++)
        v[i] = 0;
    int failed =
        lf_comm_all_reduce(t->run.comm, v, N, LF_COMM_F64, LF_COMM_SUM, rc != 0 ? NULL : err);
    if (failed)
        return rc != 0 ? rc : failed;
    if (v[N - 1] > 0)
        return lf_comm_agree_ok(t->run.comm, rc, err);
    const struct lf_train_sums mine = *s;
    *s = (struct lf_train_sums){.loss = v[0],
                                .z = v[1],
                                .tokens = (int64_t)v[2],
                                .router_aux = v[3],
                                .router_entropy = v[4],
                                .router_load = v[5],
                                .router_seen = (int64_t)v[6],
                                .correct = (int64_t)v[7],
                                .entropy = v[8],
                                .router_dropped = v[9],
                                .passed = mine.passed,
                                .waited = v[11] > 0 ? v[10] / v[11] * mine.passed : 0,
                                .late = v[12] > 0};
    const lf_objective *o = t->c->objective;
    if (lf_decoder_more(t->m.dec))
        return sum_more(t, &mine, s, err);
    if (!o)
        return 0;
    memcpy(s->obj, mine.obj, sizeof(s->obj));
    memcpy(s->top, mine.top, sizeof(s->top));
    lf_train_count_packs(t, s->obj, LF_OBJECTIVE_SUMS);
    failed =
        lf_comm_all_reduce(t->run.comm, s->obj, LF_OBJECTIVE_SUMS, LF_COMM_F64, LF_COMM_SUM, err);
    return failed ? failed
                  : lf_comm_all_reduce(t->run.comm, s->top, LF_OBJECTIVE_SUMS, LF_COMM_F64,
                                       LF_COMM_MAX, err);
}

int lf_train_sum_record(const lf_trainer *t, lf_err *err)
{
    struct lf_step_record *rec = lf_exec_record_ptr(t->m.ex);
    if (t->run.ranks <= 1)
        return 0;
    int rc = lf_devcomm_begin(&t->dev, err);
    if (rc == 0)
        rc = lf_comm_all_reduce(t->dev.gpus, &rec->loss_sum, 3, LF_COMM_F64, LF_COMM_SUM,
                                err); /* z_sum, entropy_sum */
    if (rc == 0)
        rc = lf_comm_all_reduce(t->dev.gpus, &rec->tokens, 2, LF_COMM_I64, LF_COMM_SUM,
                                err); /* and correct */
    if (rc == 0 && t->mc.experts > 0)
        rc = lf_comm_all_reduce(t->dev.gpus, &rec->router_aux, 4, LF_COMM_F64, LF_COMM_SUM,
                                err); /* entropy, load, dropped */
    if (rc == 0 && t->mc.experts > 0)
        rc = lf_comm_all_reduce(t->dev.gpus, &rec->router_seen, 1, LF_COMM_I64, LF_COMM_SUM, err);
    if (rc == 0 && lf_decoder_more(t->m.dec))
        rc = lf_comm_all_reduce(t->dev.gpus, rec->more_loss, LF_MORE_HEADS, LF_COMM_F64,
                                LF_COMM_SUM, err);
    if (rc == 0 && lf_decoder_more(t->m.dec))
        rc = lf_comm_all_reduce(t->dev.gpus, rec->more_tokens, 2 * LF_MORE_HEADS, LF_COMM_I64,
                                LF_COMM_SUM, err); /* and correct */
    return lf_devcomm_end(&t->dev, rc, err);
}

/* ---- what they begin with ---- */

int lf_train_share_weights(lf_trainer *t, bool moments, lf_err *err)
{
    /* Below an adapter, weights may be there as bf16 alone. */
    static const enum lf_pkind kinds[] = {LF_P_MASTER, LF_P_COPY, LF_P_M, LF_P_V, LF_P_EMA};
    int rc = 0;
    if (t->run.ranks <= 1)
        return 0;
    for (size_t i = 0; i < (moments ? 5 : 2) && rc == 0; i++) {
        void *data;
        size_t bytes;
        lf_pstore_block(t->m.ps, kinds[i], false, &data, &bytes);
        rc = bytes ? lf_devcomm_broadcast(&t->dev, data, bytes, err) : 0;
        lf_pstore_block(t->m.ps, kinds[i], true, &data, &bytes);
        if (rc == 0 && bytes)
            rc = lf_comm_broadcast(t->comms.data, data, bytes, 0, err);
    }
    lf_pstore_touch(t->m.ps); /* bf16 copies follow the masters */
    return rc;
}

int lf_train_same(const lf_trainer *t, lf_err *err)
{
    if (t->run.ranks <= 1)
        return 0;
    json_t *state = lf_train_state_json(t, err);
    if (t->comms.mesh) /* plans of ranks with other boxes or layers differ */
        json_object_del(json_object_get(state, "fingerprint"), "plan");
    return lf_run_same(&t->run, state, err);
}

/* ---- are they still alike? ---- */

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    uint64_t lane[4] = {h, h ^ 1, h ^ 2, h ^ 3}, w[4];
    const char *p = data;
    for (; bytes >= sizeof(w); bytes -= sizeof(w), p += sizeof(w)) {
        memcpy(w, p, sizeof(w));
        for (int k = 0; k < 4; k++)
            lane[k] = (lane[k] ^ w[k]) * 0x9E3779B97F4A7C15u;
    }
    for (size_t i = 0; i < bytes; i++)
        lane[i % 4] = (lane[i % 4] ^ (unsigned char)p[i]) * 0x9E3779B97F4A7C15u;
    for (int k = 1; k < 4; k++)
        lane[0] = (lane[0] ^ lane[k] ^ lane[0] >> 29) * 0xBF58476D1CE4E5B9u;
    return lane[0];
}

/* Which of a rank's weights others have, too. */
enum alike {
    WHOLE,    /* whole tensors: all ranks with these layers */
    BOXES,    /* parts of divided matrices: the ranks of the data axis */
    REPLICAS, /* of these, what ranks of the tensor axis have, too (lf_box) */
    EXPERTS,  /* the ranks of the data axis with the same ones */
    PARTS /* with groups of zero, what this rank keeps: those with the same place in all groups */
};

static bool belongs(const lf_trainer *t, int i, enum lf_pkind *kind, enum alike set)
{
    const lf_pstore *ps = t->m.ps;
    const int64_t *lo, *hi;
    struct lf_box box;
    *kind = lf_pstore_weights(ps, i);
    if (set == PARTS)
        return lf_pstore_sharded(ps, i, *kind);
    if (lf_pstore_sharded(ps, i, *kind))
        *kind = LF_P_COPY; /* what all ranks have, but with zero = 3 */
    if (lf_pstore_sharded(ps, i, *kind))
        return false;
    if (set == EXPERTS || lf_pstore_experts(ps, i))
        return set == EXPERTS && lf_pstore_experts(ps, i);
    lf_pstore_box(ps, i, &box);
    return set == REPLICAS ? box.replicas > 1
                           : lf_pstore_divided(ps, i, &lo, &hi) == (set == BOXES);
}

static int hash_weights(const lf_trainer *t, enum alike set, uint64_t *h, lf_err *err)
{
    int rc = 0;
    *h = 0x10ADu;
    for (int i = 0; i < lf_pstore_count(t->m.ps) && rc == 0; i++) {
        struct lf_pview v;
        const void *data = NULL;
        void *copy = NULL;
        enum lf_pkind kind;
        if (!belongs(t, i, &kind, set) || lf_pstore_view(t->m.ps, i, kind, &v) != 1)
            continue;
        rc = lf_pstore_host(t->m.ps, i, kind, &data, &copy, err);
        if (rc == 0)
            *h = mix(*h, data, v.bytes);
        free(copy);
    }
    return rc;
}

/* Sets *differ where not all ranks of c have the same hash. */
static int compare(lf_comm *c, uint64_t hash, int64_t *differ, lf_err *err)
{
    int64_t v[] = {(int64_t)(hash >> 1), -(int64_t)(hash >> 1)};
    const int rc = lf_comm_all_reduce(c, v, 2, LF_COMM_I64, LF_COMM_MAX, err);
    *differ |= v[0] != -v[1];
    return rc;
}

/* How many successive ranks of the tensor axis share a box where several do: heads of keys are as
 * many in all layers. */
static int replicas_of(const lf_trainer *t)
{
    struct lf_box box;
    int most = 1;
    if (!t->comms.mesh)
        return 1;
    for (int i = 0; i < lf_pstore_count(t->m.ps); i++) {
        lf_pstore_box(t->m.ps, i, &box);
        most = box.replicas > most ? box.replicas : most;
    }
    return most;
}

static int compare_replicas(const lf_trainer *t, uint64_t hash, int64_t *differ, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    const int each = replicas_of(t);
    if (each == 1) /* on every rank */
        return 0;
    const int rc = lf_comm_gather_blobs(t->comms.tensor, &hash, sizeof hash, &all, err);
    for (int r = 0; rc == 0 && r < t->who.tensor_ranks; r++)
        *differ |=
            memcmp(all.data + all.offset[r], all.data + all.offset[r / each * each], sizeof hash);
    lf_comm_blobs_fini(&all);
    return rc;
}

int lf_train_replicas(const lf_trainer *t, lf_err *err)
{
    uint64_t h[PARTS + 1] = {0};
    int rc = 0;
    if (t->run.ranks <= 1)
        return 0;
    for (int set = WHOLE; set <= PARTS && rc == 0; set++)
        if (set == WHOLE || (set == PARTS     ? t->dev.outer != NULL
                             : set == EXPERTS ? t->comms.same != NULL
                                              : t->comms.mesh != NULL))
            rc = hash_weights(t, (enum alike)set, &h[set], err);
    rc = lf_comm_agree_ok(t->run.comm, rc, err);
    int64_t differ = 0;
    if (rc == 0)
        rc = compare(t->comms.layers, h[WHOLE], &differ, err);
    if (rc == 0 && t->comms.mesh)
        rc = compare(t->comms.data, h[BOXES], &differ, err);
    if (rc == 0 && t->comms.mesh)
        rc = compare_replicas(t, h[REPLICAS], &differ, err);
    if (rc == 0 && t->comms.same)
        rc = compare(t->comms.same, h[EXPERTS], &differ, err);
    if (rc == 0 && t->dev.outer)
        rc = compare(t->dev.outer, h[PARTS], &differ, err);
    if (rc == 0 && (t->comms.mesh || t->dev.outer || t->comms.same))
        rc = lf_comm_agree_max(t->run.comm, &differ, err);
    if (rc == 0 && differ)
        rc = lf_fail(err, LF_ECOMM,
                     "the ranks hold different weights after step %lld: a machine computes "
                     "wrongly, or this program does; "
                     "nothing was saved",
                     (long long)t->s.step);
    return rc;
}
