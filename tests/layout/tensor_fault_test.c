/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that ranks of the tensor axis may have, planted one by one: each is found, by the checks
 * that its row names. What the check of a layout refuses when the plan is made is planted in
 * tests/unit/graph_layout (sums that are left out of a graph, values that are added to a partial
 * sum); here the plan is as it should be, or that check has been passed already.
 */
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/graph/exec_priv.h"
#include "tests/layout/fault.h"
#include "tests/tap/tap.h"

enum planted {
    SOUND,
    NORMS_APART,     /* gradients of norms stay those of a rank's rows */
    HEADS_APART,     /* gradients of norms of heads stay those of a rank's heads */
    LORA_APART,      /* those of what an adapter's ranks all have */
    LENGTHS_APART,   /* lengths of rows of an adapted weight are those of a rank's columns */
    SQUARES_APART,   /* squares of a norm over all heads are those of a rank's heads */
    START_APART,     /* magnitudes begin as these lengths */
    OWN_FIRST,       /* every rank takes the rows of a fused adapter that are rank 0's */
    ROUTER_SUMMED,   /* those of routers, which every rank has of all rows, are */
    KEYS_APART,      /* copies of heads of keys and values have gradients of their own */
    KEYS_COUNTED,    /* each copy of them counts in the norm */
    WHOLE_COUNTED,   /* what every rank has counts as often */
    BOX_OMITTED,     /* boxes of other ranks than the first do not count */
    SAME_COLUMNS,    /* dropout of divided columns draws as if they were the first */
    SAME_HEADS,      /* dropout of attention draws as if a rank's heads were the first */
    BIAS_INSIDE,     /* every rank adds the bias to its product of rows */
    RESIDUAL_INSIDE, /* every rank adds the residual to it */
    ROUNDED          /* addends are rounded to bf16 before the ranks add them up */
};

static struct {
    enum planted what;
    struct lf_exec_comm comm[LOCAL_RANKS];
} plan;

void fault_plant(const struct fault *f, bool planted)
{
    memset(&plan, 0, sizeof plan);
    plan.what = planted ? (enum planted)f->what : SOUND;
}

/* ---- in place of the engine's ---- */

int __real_lf_exec_sum_tensor(const lf_exec *ex, lf_err *err);
int __wrap_lf_exec_sum_tensor(const lf_exec *ex, lf_err *err);
bool __real_lf_box_owner(const lf_pstore *ps, const struct lf_param *p);
bool __wrap_lf_box_owner(const lf_pstore *ps, const struct lf_param *p);
int __real_lf_autodiff(lf_graph *g, lf_err *err);
int __wrap_lf_autodiff(lf_graph *g, lf_err *err);
int __real_lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err);
int __wrap_lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err);
int __real_lf_adapter_measure(lf_pstore *ps, const struct lf_padapter *a, const char *w,
                              enum lf_dtype type, struct lf_exchange *with, lf_err *err);
int __wrap_lf_adapter_measure(lf_pstore *ps, const struct lf_padapter *a, const char *w,
                              enum lf_dtype type, struct lf_exchange *with, lf_err *err);
void __real_lf_box_rows(const lf_pstore *ps, const struct lf_pgroup *g, int32_t k, int64_t *first,
                        int64_t *n);
void __wrap_lf_box_rows(const lf_pstore *ps, const struct lf_pgroup *g, int32_t k, int64_t *first,
                        int64_t *n);
void __real_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);

/* Is the gradient of this group one that the fault leaves out of the sums? */
static bool left_out(const char *name)
{
    switch (plan.what) {
    case NORMS_APART:
        return strstr(name, "_norm.weight") && !strstr(name, "q_norm") && !strstr(name, "k_norm");
    case HEADS_APART:
        return strstr(name, "q_norm") || strstr(name, "k_norm");
    case LORA_APART:
        return strstr(name, "lora_");
    default:
        return false;
    }
}

/* One that the fault sums beside them? */
static bool put_in(const char *name)
{
    return plan.what == ROUTER_SUMMED && strstr(name, "moe.router.weight");
}

/* What is left out is as it was again before anything else reads it. */
int __wrap_lf_exec_sum_tensor(const lf_exec *ex, lf_err *err)
{
    lf_pstore *ps = ex->p->ps;
    bool sum[256] = {false};
    int replicas[512];
    for (size_t i = 0; i < ps->n_g; i++) {
        sum[i] = ps->g[i].sum[LF_AXIS_TENSOR];
        ps->g[i].sum[LF_AXIS_TENSOR] =
            (sum[i] && !left_out(ps->g[i].name)) || put_in(ps->g[i].name);
    }
    for (size_t i = 0; i < ps->n_p; i++) {
        replicas[i] = ps->p[i].box.replicas;
        ps->p[i].box.replicas = plan.what == KEYS_APART ? 1 : replicas[i];
    }
    const int rc = __real_lf_exec_sum_tensor(ex, err);
    for (size_t i = 0; i < ps->n_g; i++)
        ps->g[i].sum[LF_AXIS_TENSOR] = sum[i];
    for (size_t i = 0; i < ps->n_p; i++)
        ps->p[i].box.replicas = replicas[i];
    return rc;
}

bool __wrap_lf_box_owner(const lf_pstore *ps, const struct lf_param *p)
{
    const bool whole = lf_box_count(ps, p) == 1, owner = __real_lf_box_owner(ps, p);
    switch (plan.what) {
    case KEYS_COUNTED:
        return owner || p->box.replicas > 1;
    case WHOLE_COUNTED:
        return owner || whole;
    case BOX_OMITTED:
        return owner && (whole || ps->layout.tensor_rank == 0);
    default:
        return owner;
    }
}

static int no_sum(void *user, float *data, size_t n, lf_err *err)
{
    (void)user, (void)data, (void)n, (void)err;
    return 0;
}

int __wrap_lf_adapter_measure(lf_pstore *ps, const struct lf_padapter *a, const char *w,
                              enum lf_dtype type, struct lf_exchange *with, lf_err *err)
{
    struct lf_exchange apart = *with;
    apart.sum = no_sum;
    return __real_lf_adapter_measure(ps, a, w, type, plan.what == START_APART ? &apart : with, err);
}

void __wrap_lf_box_rows(const lf_pstore *ps, const struct lf_pgroup *g, int32_t k, int64_t *first,
                        int64_t *n)
{
    __real_lf_box_rows(ps, g, k, first, n);
    if (plan.what == OWN_FIRST)
        *first -= ps->p[g->first + k].box.lo[0];
}

/* The graph has local shapes; its backward pass will do as the forward pass does. */
int __wrap_lf_autodiff(lf_graph *g, lf_err *err)
{
    for (size_t i = 0; i < g->n_n; i++) {
        struct lf_node *n = &g->n[i];
        if (plan.what == SAME_COLUMNS && n->op == LF_OP_DROPOUT)
            n->a.col0 = 0;
        if (plan.what == SAME_HEADS && n->op == LF_OP_ATTN)
            n->a.head0 = 0;
        if (plan.what == BIAS_INSIDE && n->op == LF_OP_LINEAR)
            n->a.no_bias = false;
    }
    return __real_lf_autodiff(g, err);
}

/* The residual that is added behind the sum of a product. */
static int32_t residual_of(const lf_graph *g, int32_t sum)
{
    for (size_t i = 0; i < g->n_fwd; i++)
        for (int k = 0; k < 2 && g->n[i].op == LF_OP_ADD; k++)
            if (g->n[i].in[k] == sum)
                return g->n[i].in[1 - k];
    return 0;
}

/* Is it the sum of what such an op gives? */
static bool sums_of(const lf_graph *g, const struct lf_node *n, enum lf_op op)
{
    const int32_t from = n->op == LF_OP_TP_LEAVE ? g->t[n->in[0]].producer : -1;
    return from >= 0 && g->n[from].op == op;
}

/* The check of the layout has been passed. */
int __wrap_lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err)
{
    for (size_t i = 0; i < g->n_fwd && plan.what == RESIDUAL_INSIDE; i++) {
        struct lf_node *product = NULL;
        for (size_t k = 0; k < i && g->n[i].op == LF_OP_TP_LEAVE; k++)
            if (g->n[k].op == LF_OP_LINEAR && g->n[k].out[LINEAR_Y] == g->n[i].in[0])
                product = &g->n[k];
        if (product)
            product->in[LINEAR_RES] = residual_of(g, g->n[i].out[0]);
    }
    const enum lf_op apart = plan.what == LENGTHS_APART   ? LF_OP_DORA_NORM
                             : plan.what == SQUARES_APART ? LF_OP_NORM_PART
                                                          : LF_OP_NONE;
    for (size_t i = 0; i < g->n_n; i++)
        if (apart && sums_of(g, &g->n[i], apart))
            g->n[i].op = LF_OP_COPY;
    return __real_lf_precision(g, compute, err);
}

static int rounded_sum(void *user, float *data, size_t n, lf_err *err)
{
    for (size_t i = 0; i < n; i++)
        data[i] = lf_f32_of_bf16(lf_bf16_of(data[i]));
    return plan.comm[rig_rank].tensor_sum(user, data, n, err);
}

void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user)
{
    struct lf_exec_comm c = *comm;
    plan.comm[rig_rank] = c;
    if (plan.what == ROUNDED && c.tensor_sum)
        c.tensor_sum = rounded_sum;
    __real_lf_exec_set_comm(ex, &c, user);
}

/* ---- the faults ---- */

#define T2                                                                                         \
    {                                                                                              \
        .ranks = 1, .tensor = 2                                                                    \
    }
#define T4                                                                                         \
    {                                                                                              \
        .ranks = 1, .tensor = 4                                                                    \
    }
#define T2ROWSD2                                                                                   \
    {                                                                                              \
        .ranks = 2, .zero = 3, .tensor = 2, .sequence = true                                       \
    }
#define T2ROWS                                                                                     \
    {                                                                                              \
        .ranks = 1, .tensor = 2, .sequence = true                                                  \
    }
#define T4D2                                                                                       \
    {                                                                                              \
        .ranks = 2, .zero = 2, .tensor = 4                                                         \
    }
#define T2D2                                                                                       \
    {                                                                                              \
        .ranks = 2, .zero = 1, .tensor = 2                                                         \
    }

#define EXPERTS "experts=4 experts_per_token=2 expert_ffn=64 router_aux=0.05"

/* F1 to F14: what went wrong elsewhere, by the numbers of the project's list. */
static const struct fault faults[] = {
    {.name = "F1: gradients of norms are not summed over the ranks",
     .l = T2ROWS,
     .what = NORMS_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_APART | RIG_SAW_MOVED},
    {.name = "F1: the same where a rank has a part of each gradient",
     .l = T2ROWSD2,
     .what = NORMS_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_APART | RIG_SAW_MOVED},
    {.name = "F1: those of norms of heads are not",
     .l = T2D2,
     .keys = "qk_norm=yes",
     .what = HEADS_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_APART | RIG_SAW_MOVED},
    {.name = "F1b: those of an adapter's matrices that all ranks have are not",
     .l = T2,
     .adapted = true,
     .what = LORA_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_APART | RIG_SAW_MOVED},
    {.name = "F1b: those of an adapter with magnitudes, for a group as a whole, are not",
     .l = T2D2,
     .dora = true,
     .what = LORA_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_APART | RIG_SAW_MOVED},
    {.name = "F4: what of it every rank has counts as often",
     .l = T2,
     .dora = true,
     .what = WHOLE_COUNTED,
     .by = RIG_SAW_NORM},
    {.name = "F9: dropout before it draws as if a rank's columns were the first",
     .l = T2ROWS,
     .dora = true,
     .what = SAME_COLUMNS,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F10: rank 1 leaves a sum of lengths out",
     .l = T2,
     .dora = true,
     .call = SUM_F32(LOCAL_SKIP, 2), /* the first is that of the embedding */
     .by = RIG_SAW_RUN,
     .says = "others are in all_reduce (sum) of 64 f32"},
    {.name = "lengths of rows are those of a rank's columns",
     .l = T2ROWS,
     .dora = true,
     .what = LENGTHS_APART,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "a norm over all heads has a rank's heads alone",
     .l = T2ROWS,
     .keys = "qk_norm=yes qk_norm_all_heads=yes",
     .what = SQUARES_APART,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "magnitudes begin as these lengths",
     .l = T2,
     .dora = true,
     .what = START_APART,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD | RIG_SAW_APART},
    {.name = "every rank takes rank 0's rows of a group's adapter",
     .l = T4,
     .dora = true,
     .what = OWN_FIRST,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F6: gradients of routers count once for each rank of all rows",
     .l = T2ROWS,
     .keys = EXPERTS,
     .what = ROUTER_SUMMED,
     .by = RIG_SAW_GRAD | RIG_SAW_MOVED},
    {.name = "F6: a router reads the rows of its own rank alone",
     .l = T2ROWS,
     .keys = EXPERTS,
     .call = GATHER(LOCAL_ALONE, 2), /* the first is that of attention */
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F2: copies of keys and values have gradients of their own",
     .l = T4,
     .what = KEYS_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_APART | RIG_SAW_MOVED},
    {.name = "F2: the same where a rank has a part of each copy",
     .l = T4D2,
     .what = KEYS_APART,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | RIG_SAW_APART | RIG_SAW_MOVED},
    {.name = "F2: each copy of keys and values counts in the norm",
     .l = T4,
     .what = KEYS_COUNTED,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "F4: what every rank has counts in the norm as often",
     .l = T2,
     .what = WHOLE_COUNTED,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "F4: the norm omits the boxes of rank 1",
     .l = T2,
     .what = BOX_OMITTED,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "F4: every rank has the norm of its own part",
     .l = T2,
     .call = SUM_F64(LOCAL_ALONE, 2), /* the first is that of losses */
     .by = RIG_SAW_NORM | RIG_SAW_APART},
    {.name = "F9: dropout of divided columns draws as if they were the first",
     .l = T2,
     .adapted = true,
     .what = SAME_COLUMNS,
     .by = RIG_SAW_CHANGE},
    {.name = "F9: dropout of attention draws as if a rank's heads were the first",
     .l = T2,
     .keys = "attn_prob_dropout=0.1",
     .what = SAME_HEADS,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F12: every rank adds the bias to its product of rows",
     .l = T2,
     .keys = "out_bias=yes mlp_bias=yes",
     .what = BIAS_INSIDE, /* biases begin as zeros */
     .by = RIG_SAW_LOSS | RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "F12: every rank adds the residual to its product of rows",
     .l = T2,
     .what = RESIDUAL_INSIDE,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "F14: addends are rounded to bf16 before a sum",
     .l = T2,
     .what = ROUNDED,
     .by = RIG_SAW_GRAD},
    {.name = "a sum of activations is left out",
     .l = T2,
     .call = SUM_F32(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD | RIG_SAW_APART},
    {.name = "it is done twice",
     .l = T2,
     .call = SUM_F32(LOCAL_TWICE, 2),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "rows are not gathered",
     .l = T2ROWS,
     .call = GATHER(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "rank 1 leaves a sum of rows out",
     .l = T2ROWS,
     .call = SCATTER(LOCAL_SKIP, 2),
     .by = RIG_SAW_RUN,
     .says = "rank 1 begins all_gather"},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

/* Refused when the plan is made; planted in tests/unit/graph_layout. */
static const char *const elsewhere[] = {
    "a product of columns that nothing enters", "a norm of a partial sum",
    "F12: what every rank has, added to a partial sum",
    "F1: a gradient that is not summed over the ranks, in the graph",
    "a parameter before and behind a sum, half of whose gradient would count twice"};

int main(void)
{
    for (size_t i = 0; i < FAULTS; i++)
        TAP(2, fault_test(&faults[i], (int)i));
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        tap_diag("refused by the check of a layout: %s", elsewhere[i]);
    return tap_done();
}
