/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that ranks of the expert axis may have, planted one by one: each is found, by the checks
 * that its row names. What the check of a layout refuses when the plan is made (rows that are not
 * sent, gradients that are not of a rank's experts) is planted in tests/unit/graph_experts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"
#include "tests/layout/fault.h"
#include "tests/tap/tap.h"

enum planted {
    SOUND,
    SUMMED_BY_ALL,   /* gradients of experts are summed over ranks with other experts */
    NOT_SUMMED,      /* and over none */
    SCALED,          /* they are divided by the ranks that sent rows */
    MICRO_LOST,      /* they are those of the last micro-batch */
    ROUND_LOST,      /* they are those of the last round */
    IDLE_CLEARED,    /* what a rank without a micro-batch makes of others' rows is cleared */
    RETURNED_TURNED, /* rows come back in another order */
    COUNTS_BEFORE,   /* rank 1 tells the counts of its first micro-batch again */
    EXPERTS_TWICE,   /* each rank with the same experts counts them in the norm */
    WHOLE_TWICE,     /* each counts what all have */
    EXPERTS_OMITTED, /* experts of other ranks than the first do not count */
    NOT_SENT_AGAIN,  /* a later round computes with the rows of the one before */
    IDLE_APART,      /* a rank without a micro-batch does not take part */
    OTHERS_EXPERTS,  /* a rank begins with the weights of the first experts */
    OVERFLOW_LOST,   /* nobody notices that an expert's gradient is not finite */
    UNREADABLE,      /* rank 1 cannot read a micro-batch */
    NO_STEP,         /* nor find out what a step has */
    SAME_ROWS,       /* every rank of the tensor axis sends the rows of the first */
    OWN_LOADS,       /* the loads of a pipeline stage begin with its own layers */
    OWN_TOTALS       /* the first one takes its own loads for those of all layers */
};

static struct {
    enum planted what;
    bool infinite;              /* the gradient of an expert of the last rank, once: no fault */
    int optimizer[LOCAL_RANKS]; /* its runs */
    int32_t *offsets[LOCAL_RANKS][2];
    int counted[LOCAL_RANKS];
    bool idle[LOCAL_RANKS];
    struct lf_exec_comm comm[LOCAL_RANKS];
} plan;

void fault_plant(const struct fault *f, bool planted)
{
    for (int r = 0; r < LOCAL_RANKS; r++) {
        free(plan.offsets[r][0]);
        free(plan.offsets[r][1]);
    }
    memset(&plan, 0, sizeof plan);
    plan.infinite = f->infinite;
    plan.what = planted ? (enum planted)f->what : SOUND;
}

/* ---- in place of the engine's ---- */

int __real_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
void __real_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
int __real_lf_experts_call(const struct lf_kernels *k, lf_queue *q, const void *args);
int __wrap_lf_experts_call(const struct lf_kernels *k, lf_queue *q, const void *args);
bool __real_lf_plan_counts(const lf_plan *p, const struct lf_param *q);
bool __wrap_lf_plan_counts(const lf_plan *p, const struct lf_param *q);
int __real_lf_exec_idle_experts(lf_exec *ex, int chain, const struct lf_call *calls, size_t from,
                                size_t to, lf_err *err);
int __wrap_lf_exec_idle_experts(lf_exec *ex, int chain, const struct lf_call *calls, size_t from,
                                size_t to, lf_err *err);
int __real_lf_exec_idle(lf_exec *ex, int chain, enum lf_segment seg, enum lf_variant v,
                        lf_err *err);
int __wrap_lf_exec_idle(lf_exec *ex, int chain, enum lf_segment seg, enum lf_variant v,
                        lf_err *err);
int __real_lf_exec_fill_within(lf_exec *ex, void *args, const struct lf_chain *c,
                               const struct lf_exec_within *n, lf_err *err);
int __wrap_lf_exec_fill_within(lf_exec *ex, void *args, const struct lf_chain *c,
                               const struct lf_exec_within *n, lf_err *err);
int __real_lf_loader_begin_step(lf_loader *l, lf_loader_step *s, lf_err *err);
int __wrap_lf_loader_begin_step(lf_loader *l, lf_loader_step *s, lf_err *err);
int __real_lf_loader_next(lf_loader *l, const lf_loader_batch **b, lf_err *err);
int __wrap_lf_loader_next(lf_loader *l, const lf_loader_batch **b, lf_err *err);
int64_t __real_lf_box_element(const struct lf_param *p, int64_t e);
int64_t __wrap_lf_box_element(const struct lf_param *p, int64_t e);

/* Of the last rank that shares a batch, in an expert; after a step's passes. */
static void make_infinite(const lf_exec *ex)
{
    const lf_plan *p = ex->p;
    for (int i = 0; i < lf_pstore_count(p->ps) && p->ranks.rank == p->ranks.ranks - 1; i++) {
        struct lf_pview v;
        if (strstr(lf_pstore_desc(p->ps, i)->name, "experts.down.weight") &&
            lf_pstore_view(p->ps, i, LF_P_GRAD, &v) == 1)
            ((float *)v.data)[v.count / 2] = INFINITY;
    }
}

/* What comes from the pipeline stage before, or back from the one behind, is changed. */
static void change_loads(lf_exec *ex, int chain, enum lf_segment seg, int slot)
{
    size_t bytes;
    void *load = lf_exec_cut(ex, chain, slot, "load", false, &bytes),
         *own = lf_exec_cut(ex, chain, slot, "load", true, &bytes),
         *total = lf_exec_cut(ex, chain, slot, "load_total", false, &bytes);
    if (plan.what == OWN_LOADS && seg == LF_FWD && load)
        memset(load, 0, bytes);
    if (plan.what == OWN_TOTALS && seg != LF_FWD && own && total)
        memcpy(total, own, bytes);
}

int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err)
{
    if (chain != LF_CHAIN_OPT && plan.what >= OWN_LOADS)
        change_loads(ex, chain, seg, slot);
    if (chain == LF_CHAIN_OPT && plan.optimizer[rig_rank]++ == 0 && plan.infinite &&
        plan.what != OVERFLOW_LOST)
        make_infinite(ex);
    return __real_lf_exec_run(ex, chain, seg, slot, v, err);
}

static int by_all(void *user, float *grads, size_t n, lf_err *err)
{
    return plan.comm[rig_rank].reduce(user, grads, n, err);
}

static int by_none(void *user, float *grads, size_t n, lf_err *err)
{
    (void)user, (void)grads, (void)n, (void)err;
    return 0;
}

static int no_scatter(void *user, float *grads, const size_t *counts, lf_err *err)
{
    (void)user, (void)grads, (void)counts, (void)err;
    return 0;
}

/* Each owner has its own part alone. */
static int no_window(void *user, struct lf_exec_req *q, float *out, const float *data,
                     const size_t *counts, bool more, lf_err *err)
{
    const int rank = ((const struct lf_devcomm *)user)->same->rank;
    (void)q, (void)err;
    for (int r = 0; r < rank; r++)
        data += counts[r];
    for (size_t i = 0; i < counts[rank]; i++)
        out[i] = (more ? out[i] : 0) + data[i];
    return 0;
}

static int window_anew(void *user, struct lf_exec_req *q, float *out, const float *data,
                       const size_t *counts, bool more, lf_err *err)
{
    (void)more; /* what is there is lost */
    return plan.comm[rig_rank].same_begin_sum(user, q, out, data, counts, false, err);
}

static int window_of_idle(void *user, struct lf_exec_req *q, float *out, const float *data,
                          const size_t *counts, bool more, lf_err *err)
{
    size_t n = 0;
    for (int r = 0; r < ((const struct lf_devcomm *)user)->same->size; r++)
        n += counts[r];
    if (plan.idle[rig_rank])
        memset((float *)(uintptr_t)data, 0, n * sizeof *data);
    return plan.comm[rig_rank].same_begin_sum(user, q, out, data, counts, more, err);
}

static int scaled(void *user, float *grads, size_t n, lf_err *err)
{
    const int rc = plan.comm[rig_rank].same_reduce(user, grads, n, err);
    for (size_t i = 0; i < n; i++)
        grads[i] /= 2;
    return rc;
}

void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user)
{
    struct lf_exec_comm c = *comm;
    plan.comm[rig_rank] = c;
    if (plan.what == SUMMED_BY_ALL)
        c.same_reduce = by_all;
    if (plan.what == NOT_SUMMED) {
        c.same_reduce = by_none;
        c.same_scatter = no_scatter;
        c.same_begin_sum = no_window;
    }
    if (plan.what == IDLE_CLEARED)
        c.same_begin_sum = window_of_idle;
    if (plan.what == MICRO_LOST)
        c.same_begin_sum = window_anew;
    if (plan.what == SCALED)
        c.same_reduce = scaled;
    __real_lf_exec_set_comm(ex, &c, user);
}

/* The first two pairs of a rank change places. */
static void turn(const struct lf_k_experts *a)
{
    const size_t bytes = (size_t)a->width * lf_dtype_size((enum lf_dtype)a->type);
    char *out = a->out, *kept = malloc(bytes);
    if (!kept)
        tap_bail("out of memory");
    memcpy(kept, out, bytes);
    memcpy(out, out + bytes, bytes);
    memcpy(out + bytes, kept, bytes);
    free(kept);
}

/* The model has two layers with experts, so the calls of a rank are theirs in turn. */
static int count_before(const struct lf_kernels *k, lf_queue *q, const struct lf_k_experts *a)
{
    struct lf_k_experts of = *a;
    const size_t bytes = (size_t)(a->experts + 1) * sizeof *a->offsets;
    int32_t **kept = &plan.offsets[rig_rank][plan.counted[rig_rank]++ % 2];
    if (!*kept) {
        if (!(*kept = malloc(bytes)))
            tap_bail("out of memory");
        memcpy(*kept, a->offsets, bytes);
    }
    of.offsets = *kept;
    return __real_lf_experts_call(k, q, &of);
}

int __wrap_lf_experts_call(const struct lf_kernels *k, lf_queue *q, const void *args)
{
    const struct lf_k_experts *a = args;
    struct lf_experts *x = a->with->experts;
    if (plan.what == COUNTS_BEFORE && a->what == LF_EXPERTS_COUNT && rig_rank == 1)
        return count_before(k, q, a);
    if (plan.what == SAME_ROWS && a->what == LF_EXPERTS_COUNT) {
        struct lf_k_experts of = *a;
        of.hi -= of.lo;
        of.lo = 0;
        return __real_lf_experts_call(k, q, &of);
    }
    const int64_t round = x->round;
    if (plan.what == NOT_SENT_AGAIN && a->what == LF_EXPERTS_SEND && a->row_of)
        x->round = 0;
    const int rc = __real_lf_experts_call(k, q, args);
    x->round = round;
    if (plan.what == RETURNED_TURNED && a->what == LF_EXPERTS_RETURN && rig_rank == 0)
        turn(a);
    return rc;
}

bool __wrap_lf_plan_counts(const lf_plan *p, const struct lf_param *q)
{
    const bool experts = p->ps->g[q->group].experts;
    if (plan.what == (experts ? EXPERTS_TWICE : WHOLE_TWICE))
        return true;
    return __real_lf_plan_counts(p, q) &&
           !(plan.what == EXPERTS_OMITTED && experts && p->ps->layout.expert_rank > 0);
}

int __wrap_lf_exec_idle_experts(lf_exec *ex, int chain, const struct lf_call *calls, size_t from,
                                size_t to, lf_err *err)
{
    return plan.what == IDLE_APART ? 0
                                   : __real_lf_exec_idle_experts(ex, chain, calls, from, to, err);
}

int __wrap_lf_exec_idle(lf_exec *ex, int chain, enum lf_segment seg, enum lf_variant v, lf_err *err)
{
    plan.idle[rig_rank] = true;
    const int rc = __real_lf_exec_idle(ex, chain, seg, v, err);
    plan.idle[rig_rank] = false;
    return rc;
}

int __wrap_lf_exec_fill_within(lf_exec *ex, void *args, const struct lf_chain *c,
                               const struct lf_exec_within *n, lf_err *err)
{
    struct lf_exec_within of = *n;
    of.add = n->add && plan.what != ROUND_LOST;
    return __real_lf_exec_fill_within(ex, args, c, &of, err);
}

int64_t __wrap_lf_box_element(const struct lf_param *p, int64_t e)
{
    return plan.what == OTHERS_EXPERTS && p->d.experts ? e : __real_lf_box_element(p, e);
}

/* As a failure of the transport, before which a rank that nobody meets is told (local_run.c). */
int __wrap_lf_loader_next(lf_loader *l, const lf_loader_batch **b, lf_err *err)
{
    return plan.what == UNREADABLE && rig_rank == 1
               ? lf_fail(err, LF_ECOMM, "a micro-batch that cannot be read")
               : __real_lf_loader_next(l, b, err);
}

int __wrap_lf_loader_begin_step(lf_loader *l, lf_loader_step *s, lf_err *err)
{
    return plan.what == NO_STEP && rig_rank == 1
               ? lf_fail(err, LF_ECOMM, "a step that cannot be read")
               : __real_lf_loader_begin_step(l, s, err);
}

/* ---- the rows ---- */

#define MODEL "experts=8 experts_per_token=2 expert_ffn=64 router_aux=0.1 "
#define TWO                                                                                        \
    {                                                                                              \
        .ranks = 2, .expert = 2                                                                    \
    }
#define FOUR                                                                                       \
    {                                                                                              \
        .ranks = 4, .expert = 2                                                                    \
    }

static const struct fault rows[] = {
    {"gradients of experts summed over all ranks", FOUR, MODEL, .what = SUMMED_BY_ALL,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_MOVED},
    {"gradients of experts not summed", FOUR, MODEL, .what = NOT_SUMMED,
     .by = RIG_SAW_GRAD | APART},
    {"the same of ranks with rows of one micro-batch",
     {.ranks = 2, .context = 2, .expert = 2},
     MODEL,
     .what = SUMMED_BY_ALL,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_MOVED},
    {"gradients of experts not summed for their owners",
     {.ranks = 4, .expert = 2, .zero = 3},
     MODEL,
     .what = NOT_SUMMED,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {"gradients of experts of the last micro-batch alone",
     {.ranks = 4, .expert = 2, .zero = 2},
     MODEL,
     .what = MICRO_LOST,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {"and of the last round alone",
     {.ranks = 4, .expert = 2, .zero = 3, .expert_room = 0.4},
     MODEL,
     .what = ROUND_LOST,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {"a rank without a micro-batch forgets what its experts got",
     {.ranks = 4, .expert = 2, .zero = 2},
     MODEL,
     .what = IDLE_CLEARED,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {"gradients of experts by the ranks that sent rows", FOUR, MODEL, .what = SCALED,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {"rows come back in another order", TWO, MODEL, .what = RETURNED_TURNED,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {"counts of another micro-batch", TWO, MODEL, .what = COUNTS_BEFORE, .by = RIG_SAW_GRAD},
    {"an expert counts twice in the norm", FOUR, MODEL, .what = EXPERTS_TWICE,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {"what all have counts once for each rank", TWO, MODEL, .what = WHOLE_TWICE,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {"experts of other ranks do not count", TWO, MODEL, .what = EXPERTS_OMITTED,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {"a round with the rows of the one before",
     {.ranks = 2, .expert = 2, .expert_room = 0.4},
     MODEL,
     .what = NOT_SENT_AGAIN,
     .by = RIG_SAW_GRAD},
    {"a rank without a micro-batch stays away", TWO, MODEL, .what = IDLE_APART, .by = RIG_SAW_RUN,
     .says = "no rank can go on"},
    {"so does one of a pipeline",
     {.ranks = 2, .expert = 2, .pipeline = 2, .schedule = LF_PIPE_ZB_H1 + 1},
     MODEL "layers=4 ",
     .what = IDLE_APART,
     .by = RIG_SAW_RUN,
     .says = "where others are in"},
    {"ranks of the tensor axis send the same rows",
     {.ranks = 2, .tensor = 2, .sequence = true, .expert = 4, .expert_tensor = 1},
     MODEL,
     .what = SAME_ROWS,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {"F7: the balance of a pipeline stage is that of its own layers",
     {.ranks = 2, .expert = 2, .pipeline = 2},
     MODEL "layers=4 ",
     .what = OWN_LOADS,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {"F7: the first one never hears of the others",
     {.ranks = 2, .expert = 2, .pipeline = 2},
     MODEL "layers=4 ",
     .what = OWN_TOTALS,
     .by = RIG_SAW_GRAD},
    {"every rank begins with the first experts", TWO, MODEL, .what = OTHERS_EXPERTS,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {"an overflow beside a rank whose gradients are finite", FOUR, MODEL, .what = OVERFLOW_LOST,
     .infinite = true, .by = RIG_SAW_SCALE},
    {"a rank that cannot read a micro-batch", TWO, MODEL, .what = UNREADABLE, .by = RIG_SAW_RUN,
     .says = "rank 1 (local"},
    {"a rank of a pipeline that cannot read a micro-batch",
     {.ranks = 2, .expert = 2, .pipeline = 2},
     MODEL,
     .what = UNREADABLE,
     .by = RIG_SAW_RUN,
     .says = "rank 1 (local"},
    {"one that cannot find out what a step has",
     {.ranks = 2, .expert = 2, .pipeline = 2},
     MODEL,
     .what = NO_STEP,
     .by = RIG_SAW_RUN,
     .says = "rank 1 (local"},
};

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        TAP(2, fault_test(&rows[i], (int)i));
    return tap_done();
}
