/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that ranks with different layers may have, planted one by one: each is found, by the
 * checks that its row names. A fault of a list is planted twice: the walk of engine/pipe refuses
 * the list before the first step, and without that walk the run fails or has other numbers.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/pipe/walk.h"
#include "tests/layout/fault.h"
#include "tests/tap/tap.h"

enum planted {
    SOUND,
    TIED_APART, /* both ends of the axis keep the gradients of the embedding that they have */
    TIED_ELSEWHERE,
    TIED_UNWAITED, /* the last rank has other rows of it where the first has these */
    TIED_COUNTED,  /* the norm counts it on both ends */
    TABLES_APART,  /* tables that all layers of a stack share have the gradients of a rank's own */
    STAGE_OMITTED, /* the norm omits the layers of the last ranks */
    NORMS_APART,   /* every rank has the norm of its own layers */
    ADDED_TWICE,   /* the last rank adds the gradients of its second micro-batch twice */
    WEIGHTS_TWICE, /* the same with a backward pass in two segments */
    SENDS_SWAPPED, /* rank 0 sends its second micro-batch first; from here on in lists */
    NO_WAIT,       /* rank 1 does not wait for its second micro-batch */
    LATE_WAIT,     /* rank 0 writes to a buffer before it was sent */
    EARLY_RECEIVE, /* rank 1 receives into a buffer that it has not read */
    ORDER_SWAPPED, /* backward passes of the second and the third micro-batch change places */
    HANDED_LATE,   /* the second chunk of rank 1 reads what its first one has not yet made */
    NEIGHBOUR,     /* a reader takes the layers behind its own */
    NO_MOMENTS     /* moments of the checkpoint are not loaded */
};

static struct {
    enum planted what;
    bool walked;   /* the lists are walked */
    bool infinite; /* the gradient of rank 0 is not finite in step 1, once: no fault */
    int optimizer[LOCAL_RANKS];
    struct lf_exec_comm comm[LOCAL_RANKS];
} plan;

/* What is planted in lists, and found by a run since nobody walks them. */
enum { UNWALKED = 100 };

void fault_plant(const struct fault *f, bool planted)
{
    memset(&plan, 0, sizeof plan);
    plan.infinite = f->infinite;
    plan.what = planted ? (enum planted)(f->what % UNWALKED) : SOUND;
    plan.walked = !planted || f->what < UNWALKED;
}

/* ---- in place of the engine's ---- */

void __real_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
bool __real_lf_box_owner(const lf_pstore *ps, const struct lf_param *p);
bool __wrap_lf_box_owner(const lf_pstore *ps, const struct lf_param *p);
int __real_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
int __real_lf_pipe_add_messages(struct lf_pipe *p, const struct lf_pipe_message_opts *o,
                                lf_err *err);
int __wrap_lf_pipe_add_messages(struct lf_pipe *p, const struct lf_pipe_message_opts *o,
                                lf_err *err);
int __real_lf_pipe_walk(struct lf_pipe_timing *out, const struct lf_pipe *p,
                        const struct lf_pipe_walk_opts *o, lf_err *err);
int __wrap_lf_pipe_walk(struct lf_pipe_timing *out, const struct lf_pipe *p,
                        const struct lf_pipe_walk_opts *o, lf_err *err);
int __real_lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                                const void *src, const int64_t range[2], lf_err *err);
int __wrap_lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                                const void *src, const int64_t range[2], lf_err *err);

/* ---- what ranks of the axis add up ---- */

static void rotate(float *x, size_t n, size_t by)
{
    for (size_t k = 0; k < by; k++) {
        const float first = x[0];
        memmove(x, x + 1, (n - 1) * sizeof *x);
        x[n - 1] = first;
    }
}

enum { ROW = 64 }; /* of the embedding */

static int tied_sum(void *user, float *data, size_t n, lf_err *err)
{
    const bool last = rig_rank > 0;
    if (plan.what == TIED_APART)
        return 0;
    if (last)
        rotate(data, n, ROW);
    int rc = plan.comm[rig_rank].tied_sum(user, data, n, err);
    if (rc == 0)
        rc = plan.comm[rig_rank].tied_end(user, err);
    if (last)
        rotate(data, n, n - ROW);
    return rc;
}

static int not_waited(void *user, lf_err *err)
{
    (void)user, (void)err;
    return 0;
}

static int pipeline_add(void *user, double *sums, size_t n, lf_err *err)
{
    const bool norm = n == 1;
    if (plan.what == (norm ? NORMS_APART : TABLES_APART))
        return 0;
    if (!norm || plan.what == TABLES_APART)
        return plan.comm[rig_rank].pipeline_add(user, sums, n, err);
    if (rig_rank > 0)
        sums[0] = 0;
    return plan.comm[rig_rank].pipeline_add(user, sums, n, err);
}

void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user)
{
    struct lf_exec_comm c = *comm;
    plan.comm[rig_rank] = c;
    if (plan.what == TIED_APART || plan.what == TIED_ELSEWHERE) {
        c.tied_begin = NULL;
        c.tied_sum = tied_sum;
        c.tied_end = NULL;
    }
    if (plan.what == TIED_UNWAITED && rig_rank > 0)
        c.tied_end = not_waited;
    if (plan.what == STAGE_OMITTED || plan.what == NORMS_APART || plan.what == TABLES_APART)
        c.pipeline_add = pipeline_add;
    __real_lf_exec_set_comm(ex, &c, user);
}

bool __wrap_lf_box_owner(const lf_pstore *ps, const struct lf_param *p)
{
    struct lf_param q = *p;
    q.lent = q.lent && plan.what != TIED_COUNTED;
    return __real_lf_box_owner(ps, &q);
}

/* ---- passes ---- */

static void make_infinite(const lf_exec *ex)
{
    struct lf_pview v;
    if (lf_pstore_view(ex->p->ps, 1, LF_P_GRAD, &v) == 1)
        ((float *)v.data)[v.count / 2] = INFINITY;
}

int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err)
{
    const bool again = chain >= 0 && v == LF_ACCUM && rig_rank == 1 &&
                       ((plan.what == ADDED_TWICE && seg == LF_BWD) ||
                        (plan.what == WEIGHTS_TWICE && seg == LF_BWD_WEIGHT));
    if (chain == LF_CHAIN_OPT && plan.optimizer[rig_rank]++ == 0 && plan.infinite && rig_rank == 0)
        make_infinite(ex);
    const int rc = again ? __real_lf_exec_run(ex, chain, seg, slot, v, err) : 0;
    return rc != 0 ? rc : __real_lf_exec_run(ex, chain, seg, slot, v, err);
}

/* ---- lists ---- */

static void swap(struct lf_pipe_list *l, int a, int b)
{
    const struct lf_pipe_item was = l->item[a];
    l->item[a] = l->item[b];
    l->item[b] = was;
}

/* The place of an item. */
static int place_of(const struct lf_pipe_list *l, enum lf_pipe_op op, int dir, int micro)
{
    for (int i = 0; i < l->n; i++)
        if (l->item[i].op == op && l->item[i].dir == dir && l->item[i].micro == micro)
            return i;
    tap_bail("a list has no item %d of micro-batch %d", (int)op, micro);
}

/* The place of a forward pass. */
static int pass_of(const struct lf_pipe_list *l, int chunk, int micro)
{
    for (int i = 0; i < l->n; i++)
        if (l->item[i].op == LF_PIPE_F && l->item[i].chunk == chunk && l->item[i].micro == micro)
            return i;
    tap_bail("a list has no forward pass of micro-batch %d, chunk %d", micro, chunk);
}

static void move(struct lf_pipe_list *l, int from, int to)
{
    for (; from < to; from++)
        swap(l, from, from + 1);
    for (; from > to; from--)
        swap(l, from, from - 1);
}

/* On every rank, so that the lists still fit together. */
static void swap_order(struct lf_pipe_list *l)
{
    struct lf_pipe_item *const a = &l->item[place_of(l, LF_PIPE_Z, 0, 1)],
                               *const b = &l->item[place_of(l, LF_PIPE_Z, 0, 2)];
    const int32_t slot = a->slot;
    a->slot = b->slot;
    b->slot = slot;
    for (int i = 0; i < l->n; i++) {
        struct lf_pipe_item *it = &l->item[i];
        if ((it->micro == 1 || it->micro == 2) &&
            (it->op == LF_PIPE_Z || it->dir == LF_PIPE_GRADIENT))
            it->micro = 3 - it->micro;
    }
}

static void plant(struct lf_pipe *p)
{
    struct lf_pipe_list *const first = &p->list[0], *const second = &p->list[1];
    switch (plan.what) {
    case SENDS_SWAPPED:
        swap(first, place_of(first, LF_PIPE_SEND, LF_PIPE_ACTIVATION, 0),
             place_of(first, LF_PIPE_SEND, LF_PIPE_ACTIVATION, 1));
        break;
    case NO_WAIT:
        move(second, place_of(second, LF_PIPE_WAIT_RECV, LF_PIPE_ACTIVATION, 1),
             place_of(second, LF_PIPE_F, 0, 1));
        break;
    case LATE_WAIT:
        move(first, place_of(first, LF_PIPE_WAIT_SEND, LF_PIPE_ACTIVATION, 0),
             place_of(first, LF_PIPE_F, 0, 2));
        break;
    case EARLY_RECEIVE:
        move(second, place_of(second, LF_PIPE_RECV, LF_PIPE_ACTIVATION, 2),
             place_of(second, LF_PIPE_F, 0, 0));
        break;
    case HANDED_LATE:
        swap(second, pass_of(second, 0, 1), pass_of(second, 1, 1));
        break;
    case ORDER_SWAPPED:
        for (int r = 0; r < p->spec.ranks; r++)
            swap_order(&p->list[r]);
        break;
    default:
        break;
    }
}

int __wrap_lf_pipe_add_messages(struct lf_pipe *p, const struct lf_pipe_message_opts *o,
                                lf_err *err)
{
    const int rc = __real_lf_pipe_add_messages(p, o, err);
    if (rc == 0)
        plant(p);
    return rc;
}

int __wrap_lf_pipe_walk(struct lf_pipe_timing *out, const struct lf_pipe *p,
                        const struct lf_pipe_walk_opts *o, lf_err *err)
{
    return plan.walked ? __real_lf_pipe_walk(out, p, o, err) : 0;
}

/* ---- checkpoints ---- */

/* "layers.2.x" of a rank with two layers is written where its "layers.3.x" is, and the other way
 * round. */
static int other_layer(lf_pstore *ps, int i)
{
    char name[64];
    snprintf(name, sizeof name, "%s", lf_pstore_desc(ps, i)->name);
    if (strncmp(name, "layers.", 7) != 0)
        return i;
    name[7] = (char)(name[7] ^ 1);
    const int at = lf_pstore_find(ps, name);
    return at >= 0 ? at : i;
}

int __wrap_lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                                const void *src, const int64_t range[2], lf_err *err)
{
    const bool moment = kind == LF_P_M || kind == LF_P_V;
    if (range[1] > range[0] && plan.what == NO_MOMENTS && moment)
        return 0;
    if (plan.what == NEIGHBOUR && rig_rank == 1)
        i = other_layer(ps, i);
    return __real_lf_pstore_write_part(ps, i, kind, dtype, src, range, err);
}

/* ---- the faults ---- */

#define P2                                                                                         \
    {                                                                                              \
        .ranks = 1, .pipeline = 2                                                                  \
    }
#define P2_OF(kind)                                                                                \
    {                                                                                              \
        .ranks = 1, .pipeline = 2, .schedule = (kind) + 1                                          \
    }
#define P2_CHUNKS                                                                                  \
    {                                                                                              \
        .ranks = 1, .pipeline = 2, .chunks = 2                                                     \
    }
#define FOUR "layers=4"
#define TIED "layers=4 tied_head=yes"
#define MESSAGE(fault, rank, what, nth)                                                            \
    {                                                                                              \
        fault, rank, what, LF_COMM_F32, nth, false                                                 \
    }

/* F3 to F15: what went wrong elsewhere, by the numbers of the project's list. */
static const struct fault faults[] = {
    {.name = "F3: ends of the axis do not add up the gradients of a tied embedding",
     .l = P2,
     .keys = TIED,
     .what = TIED_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_APART},
    {.name = "F3: they have other rows of it at the same places",
     .l = P2_CHUNKS,
     .keys = TIED,
     .what = TIED_ELSEWHERE,
     .by = RIG_SAW_GRAD | RIG_SAW_APART},
    {.name = "F3: ranks do not add up the gradients of tables that all layers of a stack share",
     .l = {.ranks = 1, .pipeline = 4},
     .stacks = true,
     .what = TABLES_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_APART},
    {.name = "F4: the norm counts a tied embedding on both ends",
     .l = P2,
     .keys = TIED,
     .what = TIED_COUNTED,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "F4: the norm omits the layers of the last rank",
     .l = P2,
     .what = STAGE_OMITTED,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "F4: every rank has the norm of its own layers",
     .l = P2,
     .what = NORMS_APART,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE | RIG_SAW_APART},
    {.name = "F10: sends are swapped; the walk",
     .l = P2_OF(LF_PIPE_GPIPE),
     .what = SENDS_SWAPPED,
     .by = RIG_SAW_RUN,
     .says = "pipeline schedule: rank 0"},
    {.name = "F10: sends are swapped; the run",
     .l = P2_OF(LF_PIPE_GPIPE),
     .what = UNWALKED + SENDS_SWAPPED,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F10: a rank leaves a send out",
     .l = P2,
     .call = MESSAGE(LOCAL_SKIP, 0, LF_COMM_SEND, 2),
     .by = RIG_SAW_RUN,
     .says = "waits in recv"},
    {.name = "F10: it leaves a receive out",
     .l = P2_CHUNKS,
     .keys = FOUR,
     .call = MESSAGE(LOCAL_SKIP, 1, LF_COMM_RECV, 4),
     .by = RIG_SAW_RUN},
    {.name = "F10: a rank does not wait for what it receives",
     .l = P2,
     .late = true,
     .call = MESSAGE(LOCAL_NO_WAIT, 1, LF_COMM_RECV, 2),
     .by = RIG_SAW_RUN,
     .says = "is not finite"},
    {.name = "F10: the last rank updates a tied embedding before it has the sum",
     .l = P2,
     .keys = TIED,
     .late = true,
     .what = TIED_UNWAITED,
     .by = RIG_SAW_RUN},
    {.name = "F10: a pass before the wait for what it reads; the walk",
     .l = P2,
     .late = true,
     .what = NO_WAIT,
     .by = RIG_SAW_RUN,
     .says = "before its input is there"},
    {.name = "F10: a pass before the wait for what it reads; the run",
     .l = P2,
     .late = true,
     .what = UNWALKED + NO_WAIT,
     .by = RIG_SAW_RUN,
     .says = "is not finite"},
    {.name = "F10: a pass writes to what is being sent; the walk",
     .l = P2,
     .late = true,
     .what = LATE_WAIT,
     .by = RIG_SAW_RUN,
     .says = "is still in"},
    {.name = "F10: a pass writes to what is being sent; the run",
     .l = P2,
     .late = true,
     .what = UNWALKED + LATE_WAIT,
     .by = RIG_SAW_RUN,
     .says = "what it reads was changed"},
    {.name = "F10: a receive into a buffer that is not read yet; the walk",
     .l = P2,
     .late = true,
     .what = EARLY_RECEIVE,
     .by = RIG_SAW_RUN,
     .says = "is still in"},
    {.name = "F10: a receive into a buffer that is not read yet; the run",
     .l = P2,
     .late = true,
     .what = UNWALKED + EARLY_RECEIVE,
     .by = RIG_SAW_RUN,
     .says = "is not finite"},
    {.name = "F13: the gradients of a micro-batch are added twice",
     .l = P2,
     .what = ADDED_TWICE,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_BITS},
    {.name = "F13: the same where the backward pass is split",
     .l = P2_OF(LF_PIPE_ZB_H1),
     .what = WEIGHTS_TWICE,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_BITS},
    {.name = "F13: two backward passes change places; the walk",
     .l = P2_OF(LF_PIPE_GPIPE),
     .what = ORDER_SWAPPED,
     .by = RIG_SAW_RUN,
     .says = "backward passes ascend"},
    {.name = "F13: two backward passes change places; the run",
     .l = P2_OF(LF_PIPE_GPIPE),
     .what = UNWALKED + ORDER_SWAPPED,
     .by = RIG_SAW_BITS},
    {.name = "F13: a chunk reads what the one before it on its rank has not yet made; the walk",
     .l = P2_OF(LF_PIPE_ZB_V),
     .keys = FOUR,
     .what = HANDED_LATE,
     .by = RIG_SAW_RUN,
     .says = "comes before that of chunk 0, which it reads"},
    {.name = "F13: a chunk reads what the one before it on its rank has not yet made; the run",
     .l = P2_OF(LF_PIPE_ZB_V),
     .keys = FOUR,
     .what = UNWALKED + HANDED_LATE,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_BITS},
    {.name = "F11: a gradient that is not finite on another rank than the one without layers",
     .l = {.ranks = 1, .pipeline = 3, .stages = "2,0,2"},
     .keys = FOUR,
     .infinite = true,
     .what = NORMS_APART,
     .by = RIG_SAW_RUN},
    {.name = "F15: a reader takes the layer beside its own",
     .l = {.ranks = 1, .pipeline = 2, .stages = "2,2"},
     .keys = FOUR,
     .what = NEIGHBOUR,
     .resumed = true,
     .by = RIG_SAW_LOSS | RIG_SAW_CHANGE},
    {.name = "F15: moments are not loaded",
     .l = P2,
     .what = NO_MOMENTS,
     .resumed = true,
     .by = RIG_SAW_CHANGE},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

/* ---- what a run refuses ---- */

static void test_samples(void)
{
    static const struct lf_train_guest guest;
    const struct lf_axes axes = {.pipeline = 2};
    const struct lf_train_who who = lf_axes_who(&axes, 0, 2);
    struct lf_train_cut cut;
    struct rig_case k;
    lf_err err = LF_ERR_INIT;
    rig_begin(&k);
    k.c.axes = axes;
    k.c.guest = &guest;
    const int rc = lf_train_cut_open(&cut, &k.c, &k.c.model, &who, &err);
    tap_ok(rc == LF_ENOTSUP && strstr(err.text, "samples during training (sample_interval)"),
           "samples during training are refused by name");
    lf_train_cut_close(&cut);
}

int main(void)
{
    for (size_t i = 0; i < FAULTS; i++)
        TAP(2, fault_test(&faults[i], (int)i));
    TAP(1, test_samples());
    return tap_done();
}
