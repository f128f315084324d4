/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that ranks of the context axis may have, planted one by one: each is found, by the checks
 * that its row names. What the check of a layout refuses when the plan is made is planted in
 * tests/unit/graph_context.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "tests/layout/fault.h"
#include "tests/tap/tap.h"

enum planted {
    SOUND,
    FROM_ZERO,    /* positions of a rank's rows begin at 0 */
    SHIFTED,      /* its targets are those of the row behind */
    LAST_DROPPED, /* the target of its last row, which stands on another rank, is dropped */
    LOCAL_MASK,   /* documents are taken as if a rank's rows were the first */
    APART_REDUCE, /* gradients are not summed over the ranks */
    SAME_HEADS,   /* dropout of attention draws as if a rank's heads were the first */
    SAME_SLOPES,  /* and ALiBi has their slopes */
    FIRST_SINKS,  /* and their sinks */
    OWN_BALANCE,  /* the balance of experts is that of a rank's rows */
    REPLICA_LOST, /* of ranks with the same head of keys one's gradient is dropped */
    OWN_CHOICES,  /* experts are made to know a rank's choices alone, before the check */
    OWN_ROOM,     /* experts have room for a rank's rows, whatever others send */
    UNDEALT,      /* and take rows that are dealt as if they were not */
    IN_ORDER      /* rows are taken to stand in the order of the ranks */
};

static struct {
    enum planted what;
    int empty; /* micro-batches of which a rank has no target */
    struct lf_exec_comm comm[LOCAL_RANKS];
} plan;

void fault_plant(const struct fault *f, bool planted)
{
    memset(&plan, 0, sizeof plan);
    plan.what = planted ? (enum planted)f->what : SOUND;
}

/* ---- in place of the engine's ---- */

int __real_lf_exec_write(lf_exec *ex, int chain, int slot, const char *name, const void *src,
                         size_t bytes, lf_err *err);
int __wrap_lf_exec_write(lf_exec *ex, int chain, int slot, const char *name, const void *src,
                         size_t bytes, lf_err *err);
int __real_lf_autodiff(lf_graph *g, lf_err *err);
int __wrap_lf_autodiff(lf_graph *g, lf_err *err);
int __real_lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err);
int __wrap_lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err);
void __real_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);

static int by_value(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Positions of the document that a rank's rows begin within. */
static void from_zero(int32_t *x, size_t n)
{
    const int32_t first = x[0];
    for (size_t i = 0; i < n && (i == 0 || x[i]); i++)
        x[i] -= first;
}

static void change(const lf_exec *ex, const char *name, int32_t *x, size_t n)
{
    const struct lf_layout *l = &ex->p->ps->layout;
    const bool behind = l->context_rank > 0;
    if (plan.what == FROM_ZERO && behind && strcmp(name, "positions") == 0)
        from_zero(x, n);
    if (plan.what == SHIFTED && behind && strcmp(name, "targets") == 0)
        memmove(x, x + 1, (n - 1) * sizeof *x);
    if (plan.what == IN_ORDER && behind && strcmp(name, LF_CONTEXT_BLOCKS) == 0)
        qsort(x, n, sizeof *x, by_value);
    if (plan.what == LAST_DROPPED && strcmp(name, "targets") == 0 && !behind)
        x[n - 1] = -1;
    for (size_t i = 0; plan.what == LOCAL_MASK && behind && i < n && !strcmp(name, "cu_seqlens");
         i++)
        x[i] = x[i] > 3 && i + 1 < n && x[i] < x[n - 1] ? x[i] - 3 : x[i];
}

static bool no_target(const int32_t *x, size_t n)
{
    bool none = true;
    for (size_t i = 0; i < n; i++)
        none = none && x[i] < 0;
    return none;
}

int __wrap_lf_exec_write(lf_exec *ex, int chain, int slot, const char *name, const void *src,
                         size_t bytes, lf_err *err)
{
    plan.empty += strcmp(name, "targets") == 0 && no_target(src, bytes / sizeof(int32_t));
    if (plan.what == SOUND || bytes % sizeof(int32_t))
        return __real_lf_exec_write(ex, chain, slot, name, src, bytes, err);
    int32_t *copy = malloc(bytes);
    if (!copy)
        tap_bail("out of memory");
    memcpy(copy, src, bytes);
    change(ex, name, copy, bytes / sizeof *copy);
    const int rc = __real_lf_exec_write(ex, chain, slot, name, copy, bytes, err);
    free(copy);
    return rc;
}

/* What a node of all rows has instead of its own. */
static int32_t own_of(const lf_graph *g, int32_t whole)
{
    const int32_t from = g->t[whole].producer;
    return from >= 0 && g->n[from].op == LF_OP_CP_WHOLE ? g->n[from].in[0] : whole;
}

/* The backward pass will do as the forward pass does. */
int __wrap_lf_autodiff(lf_graph *g, lf_err *err)
{
    for (size_t i = 0; i < g->n_n; i++) {
        struct lf_node *n = &g->n[i];
        if (plan.what == OWN_CHOICES && n->op == LF_OP_MOE_KEEP)
            n->in[KEEP_ALL] = n->in[KEEP_IDS];
        if (plan.what == SAME_HEADS && n->op == LF_OP_ATTN)
            n->a.head0 = 0;
        if (plan.what == FIRST_SINKS && n->op == LF_OP_ATTN)
            n->a.sink0 = 0;
        if (plan.what == SAME_SLOPES && n->op == LF_OP_ATTN && n->in[ATTN_ALIBI])
            g->t[n->in[ATTN_ALIBI]].col = 0;
    }
    return __real_lf_autodiff(g, err);
}

/* The check of the layout has been passed. */
int __wrap_lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err)
{
    for (size_t i = 0; i < g->n_fwd; i++) {
        struct lf_node *n = &g->n[i];
        for (int k = STATS_IDS; plan.what == OWN_BALANCE && n->op == LF_OP_MOE_STATS; k++) {
            n->in[k] = own_of(g, n->in[k]);
            if (k == STATS_ENTROPY)
                break;
        }
        if (plan.what == OWN_ROOM && n->op == LF_OP_MOE_KEEP)
            n->in[KEEP_ALL] = n->in[KEEP_BLOCKS] = 0;
        if (plan.what == UNDEALT && n->op == LF_OP_MOE_KEEP)
            n->in[KEEP_BLOCKS] = 0;
    }
    return __real_lf_precision(g, compute, err);
}

static int no_sum(void *user, float *data, size_t n, lf_err *err)
{
    (void)user, (void)data, (void)n, (void)err;
    return 0;
}

/* Part 1 of what a rank gets is lost where it is the gradient of keys. */
static int lossy_swap(void *user, void *out, const void *in, size_t bytes, lf_err *err)
{
    static __thread int calls;
    const int rc = plan.comm[rig_rank].context_swap(user, out, in, bytes, err);
    if (++calls % 8 == 7) /* q, k, v, o forwards; of o, then of q, k and v backwards */
        memset((char *)out + bytes, 0, bytes);
    return rc;
}

void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user)
{
    struct lf_exec_comm c = *comm;
    plan.comm[rig_rank] = c;
    if (plan.what == APART_REDUCE)
        c.reduce = no_sum;
    if (plan.what == REPLICA_LOST && c.context_swap)
        c.context_swap = lossy_swap;
    __real_lf_exec_set_comm(ex, &c, user);
}

/* ---- the faults ---- */

#define SWAP(fault, nth)                                                                           \
    {                                                                                              \
        fault, 1, LF_COMM_ALL_TO_ALL, LF_COMM_F32, nth, false                                      \
    }
#define C2                                                                                         \
    {                                                                                              \
        .ranks = 1, .context = 2                                                                   \
    }
#define C4                                                                                         \
    {                                                                                              \
        .ranks = 1, .context = 4                                                                   \
    }
#define G2                                                                                         \
    {                                                                                              \
        .ranks = 1, .context = 2, .kind = LF_CONTEXT_GATHER                                        \
    }
#define G4                                                                                         \
    {                                                                                              \
        .ranks = 1, .context = 4, .kind = LF_CONTEXT_GATHER                                        \
    }
#define C2D2                                                                                       \
    {                                                                                              \
        .ranks = 2, .zero = 1, .context = 2                                                        \
    }
#define EXPERTS "experts=4 experts_per_token=2 expert_ffn=64 router_aux=0.05"
#define DROPS   " capacity_factor=0.75"
/* By the numbers of the project's list. */
static const struct fault faults[] = {
    {.name = "F8: positions of a rank's rows begin at 0",
     .l = C2,
     .what = FROM_ZERO,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F8: a rank's targets are those of the row behind",
     .l = C2,
     .what = SHIFTED,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F8: the target of a rank's last row is dropped",
     .l = C4,
     .what = LAST_DROPPED,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F8: documents begin elsewhere for a rank's heads",
     .l = C2,
     .what = LOCAL_MASK,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F5: gradients are not summed over the ranks",
     .l = C2,
     .what = APART_REDUCE,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | APART | RIG_SAW_MOVED},
    {.name = "F5: losses are not",
     .l = C2,
     .call = SUM_F64(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_APART},
    {.name = "F9: dropout of attention draws as if a rank's heads were the first",
     .l = C2,
     .keys = "attn_prob_dropout=0.1",
     .what = SAME_HEADS,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F9: it draws without the rows of other ranks",
     .l = C2,
     .keys = "attn_prob_dropout=0.1",
     .call = GATHER(LOCAL_ALONE, 2), /* samples, then places in them */
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "ALiBi has the slopes of the first heads",
     .l = C2,
     .keys = "position=alibi",
     .what = SAME_SLOPES,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "attention has the sinks of the first heads",
     .l = C4,
     .keys = "attn_sinks=yes",
     .what = FIRST_SINKS, /* sinks begin as zeros */
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "F6: the balance of experts is that of a rank's rows",
     .l = C2,
     .keys = EXPERTS,
     .what = OWN_BALANCE,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F6: the experts of other ranks' rows are not known",
     .l = C2,
     .keys = EXPERTS,
     .call = GATHER(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "experts drop what is beyond their capacity of a rank's rows",
     .l = C2,
     .keys = EXPERTS DROPS,
     .what = OWN_ROOM,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "the check of the layout says so before",
     .l = C2,
     .keys = EXPERTS DROPS,
     .what = OWN_CHOICES,
     .by = RIG_SAW_RUN,
     .says = "moe_keep does not add up on the context axis"},
    {.name = "experts drop by choices of other ranks that never came",
     .l = C2,
     .keys = EXPERTS DROPS,
     .call = GATHER(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F2: a gradient of a head of keys that two ranks have is lost",
     .l = C4,
     .what = REPLICA_LOST,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "heads are not exchanged",
     .l = C2,
     .call = SWAP(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "nor is what goes back",
     .l = C2D2,
     .call = SWAP(LOCAL_ALONE, 5),
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "F8: of ranks that gather keys, one drops the target of its last row",
     .l = G4,
     .what = LAST_DROPPED,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F8: documents begin elsewhere for one",
     .l = G2,
     .what = LOCAL_MASK,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F8: one takes rows to stand in the order of the ranks",
     .l = G2,
     .what = IN_ORDER,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F5: their gradients are not summed",
     .l = G2,
     .what = APART_REDUCE,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | APART | RIG_SAW_MOVED},
    {.name = "F6: the balance of experts is that of their own rows",
     .l = G2,
     .keys = EXPERTS,
     .what = OWN_BALANCE,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "experts take the rows of ranks in the order of the ranks",
     .l = G2,
     .keys = EXPERTS DROPS,
     .what = UNDEALT,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "one does not get the keys of the other",
     .l = G2,
     .call = GATHER(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "nor what the other's queries add to their gradients",
     .l = G2,
     .call = SWAP(LOCAL_ALONE, 1),
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "one does not get the keys that its windows reach",
     .l = G2,
     .keys = "sliding_window=5",
     .call = SWAP(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "nor the other what is added to the gradients of these",
     .l = G2,
     .keys = "sliding_window=5",
     .call = {LOCAL_ALONE, 0, LF_COMM_ALL_TO_ALL, LF_COMM_F32, 4, false}, /* behind both layers */
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "F10: rank 1 leaves an exchange out",
     .l = C2,
     .call = SWAP(LOCAL_SKIP, 2),
     .by = RIG_SAW_RUN,
     .says = "rank 1"},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

/* F5: padding leaves the last rank without a target, and nothing is divided by how many it has. */
static void test_no_targets(void)
{
    struct rig_case k, alone;
    struct rig_seen one, s;
    lf_err err = LF_ERR_INIT;
    char text[800] = "";
    rig_begin(&k);
    k.c.packing = LF_PACK_BFD;
    alone = k;
    k.layout.context = 8;
    fault_plant(&faults[0], false);
    if (rig_run(&alone, &one, &err) != 0 || rig_run(&k, &s, &err) != 0)
        tap_bail("%s", err.text);
    const struct rig_bounds b = rig_bounds(&k);
    tap_ok(rig_compare(&one, &s, &b, text, sizeof text) == 0 && plan.empty > 0,
           "F5: of %d micro-batches a rank has no target", plan.empty);
    if (text[0])
        tap_diag("%s", text);
    rig_fini(&one);
    rig_fini(&s);
}

int main(void)
{
    TAP(1, test_no_targets());
    for (size_t i = 0; i < FAULTS; i++)
        TAP(2, fault_test(&faults[i], (int)i));
    return tap_done();
}
