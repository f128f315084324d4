/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks do between steps, and what a step tells of several attempts: a validation that one
 * rank cannot begin fails on all; one rank that is asked to stop ends a pass of all; what was
 * waited for in attempts that overflowed counts.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/comm/comm.h"
#include "engine/graph/exec_priv.h"
#include "engine/post/reference.h"
#include "tests/layout/rig.h"
#include "tests/tap/tap.h"

enum what { NOTHING, VALIDATES, CANNOT_SEEK, IS_STOPPED, WAITS };

static struct {
    enum what what;
    int rank;                 /* of which it is so */
    bool begun[LOCAL_RANKS];  /* the validation */
    double loss[LOCAL_RANKS]; /* of it */
    bool hung[LOCAL_RANKS];   /* it says that ranks wait for each other */
    int rc[LOCAL_RANKS];
    double clock[LOCAL_RANKS]; /* seconds that were waited for: WAIT for each question */
    double waited[LOCAL_RANKS], seconds[LOCAL_RANKS]; /* of the step */
    int infinite[LOCAL_RANKS];                        /* gradients so far that are */
    int64_t overflows;
} plan;
enum { INFINITE = 3 };
#define WAIT 1e-6

/* ---- in place of the engine's ---- */

int __real_lf_train_step_now(lf_trainer *t, struct lf_train_step *st, lf_err *err);
int __wrap_lf_train_step_now(lf_trainer *t, struct lf_train_step *st, lf_err *err);
int __real_lf_train_model_plan(struct lf_train_model *m, const struct lf_train_config *c,
                               const lf_model_config *mc, bool valid,
                               const struct lf_train_who *who, lf_err *err);
int __wrap_lf_train_model_plan(struct lf_train_model *m, const struct lf_train_config *c,
                               const lf_model_config *mc, bool valid,
                               const struct lf_train_who *who, lf_err *err);
int __real_lf_loader_seek(lf_loader *l, int64_t sample, lf_err *err);
int __wrap_lf_loader_seek(lf_loader *l, int64_t sample, lf_err *err);
int __wrap_lf_train_over(lf_trainer *t, const struct lf_train_over *o, lf_err *err);
bool __wrap_lf_run_asked_to_stop(const lf_run *r);
int __real_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
double __wrap_lf_comm_waited_s(const lf_comm *c);

int __wrap_lf_train_model_plan(struct lf_train_model *m, const struct lf_train_config *c,
                               const lf_model_config *mc, bool valid,
                               const struct lf_train_who *who, lf_err *err)
{
    (void)valid; /* the rig has no validation data */
    return __real_lf_train_model_plan(m, c, mc, true, who, err);
}

int __wrap_lf_loader_seek(lf_loader *l, int64_t sample, lf_err *err)
{
    return plan.what == CANNOT_SEEK && plan.begun[rig_rank] && rig_rank == plan.rank
               ? lf_fail(err, LF_EIO, "data that cannot be read again")
               : __real_lf_loader_seek(l, sample, err);
}

/* A pass with one pause. */
int __wrap_lf_train_over(lf_trainer *t, const struct lf_train_over *o, lf_err *err)
{
    return lf_train_agree(t, o->between(o->user, 0, err), err);
}

bool __wrap_lf_run_asked_to_stop(const lf_run *r)
{
    (void)r;
    return plan.what == IS_STOPPED && rig_rank == plan.rank;
}

/* The first gradients of a step are not finite. */
int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err)
{
    struct lf_pview g;
    if (plan.what == WAITS && chain == LF_CHAIN_OPT && plan.infinite[rig_rank]++ < INFINITE &&
        lf_pstore_view(ex->p->ps, 0, LF_P_GRAD, &g) == 1)
        ((float *)g.data)[0] = INFINITY;
    return __real_lf_exec_run(ex, chain, seg, slot, v, err);
}

double __wrap_lf_comm_waited_s(const lf_comm *c)
{
    (void)c;
    return plan.what == WAITS ? plan.clock[rig_rank] += WAIT : 0;
}

/* Of the training data. */
static int validate(lf_trainer *t, lf_err *err)
{
    struct lf_train_step st = {0};
    const lf_loader_source src = {lf_train_source_dir(t, 0, false), 1};
    lf_loader_config lc = lf_train_valid_config(t->c, &t->mc, 1);
    lc.split = "train";
    lc.sources = &src;
    lc.max_tokens = 2048;
    lc.dp_rank = t->who.data;
    lc.dp_size = t->who.data_ranks;
    lc.vocab_size = t->mc.vocab;
    int rc = lf_train_agree(t, lf_loader_open(&t->vdata, &lc, err), err);
    plan.begun[rig_rank] = true;
    if (rc == 0)
        rc = lf_train_validate(t, &st, err);
    lf_loader_close(t->vdata);
    t->vdata = NULL;
    plan.loss[rig_rank] = st.valid_loss;
    return rc;
}

int __wrap_lf_train_step_now(lf_trainer *t, struct lf_train_step *st, lf_err *err)
{
    const struct lf_reference_opts o = {.seq_length = t->c->seq_length};
    lf_reference *ref = NULL;
    int rc = 0;
    if (plan.what == VALIDATES || plan.what == CANNOT_SEEK)
        rc = validate(t, err);
    if (plan.what == IS_STOPPED)
        rc = lf_reference_prepare(&ref, t, &o, true, err);
    lf_reference_destroy(ref);
    plan.rc[rig_rank] = rc;
    plan.hung[rig_rank] =
        rc != 0 && (strstr(err->text, "no rank can go on") || strstr(err->text, "where others"));
    if (rc == 0)
        rc = __real_lf_train_step_now(t, st, err);
    plan.waited[rig_rank] = rc == 0 ? st->waited : (double)NAN;
    plan.seconds[rig_rank] = rc == 0 ? st->seconds : 0;
    plan.overflows = t->s.scaler.overflows;
    return rc;
}

/* ---- rows ---- */

static int run(const struct rig_case *k, enum what what, int rank, lf_err *err)
{
    struct rig_seen s;
    memset(&plan, 0, sizeof plan);
    plan.what = what;
    plan.rank = rank;
    *err = (lf_err)LF_ERR_INIT;
    const int rc = rig_run(k, &s, err);
    rig_fini(&s);
    return rc;
}

/* Every rank fails, that one with its own words and the others with the transport's, but not
 * because no rank could go on. */
static bool all_hear(int ranks)
{
    bool all = true;
    for (int r = 0; r < ranks; r++)
        all = all && !plan.hung[r] && plan.rc[r] == (r == plan.rank ? LF_EIO : LF_ECOMM);
    return all;
}

#define EXPERTS "layers=4 experts=8 experts_per_token=2 expert_ffn=64 router_aux=0.1"

static void case_of(struct rig_case *k, const struct rig_layout *l, const char *keys)
{
    lf_err err = LF_ERR_INIT;
    rig_begin(k);
    k->c.steps = 1;
    k->layout = *l;
    if (rig_model(k, keys, &err))
        tap_bail("%s", err.text);
}

static void test_validation(const struct rig_layout *l, const char *keys)
{
    struct rig_case k;
    lf_err err;
    case_of(&k, l, keys);
    const int ranks = rig_all_ranks(l);
    k.layout = (struct rig_layout){.ranks = 1};
    if (run(&k, VALIDATES, 0, &err))
        tap_bail("%s", err.text);
    const double one = plan.loss[0];
    k.layout = *l;
    if (run(&k, VALIDATES, 0, &err))
        tap_bail("%s", err.text);
    tap_ok(one > 0 && fabs(plan.loss[ranks - 1] - one) <= 1e-5 * one,
           "%d ranks, %s: the validation of one rank", ranks, keys);
    for (int r = 0; r < ranks; r += ranks - 1) {
        const int rc = run(&k, CANNOT_SEEK, r, &err);
        if (!tap_ok(rc == LF_EIO && all_hear(ranks), "rank %d cannot begin it: nobody does", r))
            for (int i = 0; i < ranks; i++)
                tap_diag("rank %d: %d%s", i, plan.rc[i], plan.hung[i] ? ", which waits" : "");
    }
}

static void test_stop(const struct rig_layout *l)
{
    struct rig_case k;
    char out[600];
    lf_err err;
    case_of(&k, l, "layers=2");
    const int ranks = rig_all_ranks(l);
    for (int r = 0; r < ranks; r++) {
        snprintf(out, sizeof out, "%s/stop-%d-%d-%d", tap_tmpdir(), l->context, l->tensor, r);
        k.out = out;
        const int rc = run(&k, IS_STOPPED, r, &err);
        bool all = true;
        for (int i = 0; i < ranks; i++)
            all = all && plan.rc[i] == LF_EINTR;
        if (!tap_ok(rc == LF_EINTR && all, "rank %d of %d is asked to stop: all do", r, ranks))
            tap_diag("%d: %s", rc, err.text);
    }
}

/* An attempt has two parts, the passes and what is behind them. Of the passes each rank has the
 * share of all, so the ranks' numbers add up to what all waited. */
static void test_waited(int ranks)
{
    struct rig_case k;
    lf_err err;
    case_of(&k, &(struct rig_layout){.ranks = ranks}, "layers=2");
    k.c.scaler = (struct lf_scaler_opts){.dynamic = true, .start = 1024, .window = 100};
    const int rc = run(&k, WAITS, 0, &err);
    double sum = 0;
    const double parts = 2 * (double)(plan.overflows + 1) * ranks;
    bool less = true;
    for (int r = 0; r < ranks; r++) {
        sum += plan.waited[r];
        less = less && plan.waited[r] > 0 && plan.waited[r] <= plan.seconds[r];
    }
    if (!tap_ok(rc == 0 && plan.overflows == INFINITE && less &&
                    fabs(sum - parts * WAIT) <= 1e-6 * parts * WAIT,
                "%d ranks: %g s of %g parts of %g s each, and of steps no more than they took",
                ranks, sum, parts, WAIT))
        tap_diag("%s", err.text);
}

int main(void)
{
    TAP(3, test_validation(&(struct rig_layout){.ranks = 1, .pipeline = 2}, "layers=4"));
    TAP(3, test_validation(&(struct rig_layout){.ranks = 2, .tensor = 2}, "layers=2"));
    TAP(3, test_validation(&(struct rig_layout){.ranks = 2, .context = 2}, "layers=2"));
    TAP(3, test_validation(&(struct rig_layout){.ranks = 2, .zero = 3}, "layers=2"));
    TAP(3, test_validation(&(struct rig_layout){.ranks = 2, .expert = 2}, EXPERTS));
    TAP(3, test_validation(&(struct rig_layout){.ranks = 2, .expert = 2, .pipeline = 2}, EXPERTS));
    TAP(4, test_stop(&(struct rig_layout){.ranks = 1, .tensor = 2, .context = 2}));
    TAP(2, test_stop(&(struct rig_layout){.ranks = 1, .pipeline = 2}));
    TAP(1, test_waited(2));
    return tap_done();
}
