/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding: addresses for every tensor, argument structs for every (slot, variant, node), the
 * optimizer's table, constants. All allocation of an executor happens here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"

struct where {
    const lf_exec *ex;
    const struct lf_chain *c;
    int slot;
    size_t node;
};

void *lf_exec_addr(const lf_exec *ex, const struct lf_chain *c, int slot, int32_t t)
{
    if (!t)
        return NULL;
    const lf_plan *p = ex->p;
    const struct lf_tensor *x = &c->g->t[t], *r = &c->g->t[x->root];
    size_t within = (size_t)x->root_col * lf_dtype_size((enum lf_dtype)x->dtype);
    switch (r->role) {
    case LF_ROLE_INPUT:
        return ex->inputs + c->input_off + (size_t)slot * c->input_bytes + r->off + within;
    case LF_ROLE_CONST:
        return ex->inputs + p->tab[r->table].off + within;
    case LF_ROLE_STATE:
        return ex->state + p->tab[r->table].off + within;
    case LF_ROLE_PARAM:
    case LF_ROLE_GRAD:
        return (char *)lf_pgroup_data(p->ps, &p->ps->g[r->group], r->pkind) + within;
    default:
        return ex->arena + c->arena_off + r->off +
               (r->saved && c->o.slots > 1 ? (size_t)slot * c->saved_bytes : 0) + within;
    }
}

static void *addr_cb(const struct lf_bind *b, int32_t t)
{
    const struct where *w = b->user;
    void *at = w->c->n_windows ? lf_exec_window_addr(w->ex, w->c, t, w->node)
               : w->c->o.whole ? lf_exec_whole_addr(w->ex, w->c, t)
                               : NULL;
    return at ? at : lf_exec_addr(w->ex, w->c, w->slot, t);
}

static const void *packed_cb(const struct lf_bind *b, int32_t param)
{
    const struct where *w = b->user;
    const lf_pstore *ps = w->ex->p->ps;
    if (b->g->t[param].role != LF_ROLE_PARAM) /* computed: no panels */
        return NULL;
    const struct lf_pgroup *g = &ps->g[b->g->t[param].group];
    return g->need_pack ? ps->pack + g->pack_off : NULL;
}

/* Fill one call: emit, point it at its workspace, let the kernel check what it will get. */
int lf_exec_fill_call(lf_exec *ex, void *args, const struct lf_bind *b, const struct lf_chain *c,
                      size_t i, lf_err *err)
{
    const struct lf_node *n = &c->g->n[i];
    const struct lf_op_row *row = &lf_op_table[n->op];
    const struct lf_kernel_row *kr = &lf_kernel_table[row->kernel];
    char text[600];
    int rc = row->emit(b, n, args);
    size_t need = rc != 0 ? 0 : kr->work(ex->b->kernels, args, ex->b->threads);
    if (rc == 0 && need > c->work_bytes[i])
        return lf_fail(err, LF_EINVAL,
                       "graph %s: %s needs %zu bytes of workspace with %d threads of %s, planned "
                       "were %zu: plan "
                       "for this backend",
                       c->g->name, lf_node_text(c->g, n, text, sizeof text), need, ex->b->threads,
                       ex->b->kernels->family, c->work_bytes[i]);
    lf_kernel_set_work(row->kernel, args,
                       c->work_bytes[i] ? ex->arena + c->arena_off + c->work_off[i] : NULL,
                       c->work_bytes[i]);
    if (rc != 0 || kr->check(ex->b->kernels, args) != LF_K_OK)
        return lf_fail(err, LF_EINVAL, "graph %s: kernel %s of %s refuses %s", c->g->name, kr->name,
                       ex->b->kernels->family, lf_node_text(c->g, n, text, sizeof text));
    return 0;
}

bool lf_exec_writes_window(const lf_exec *ex, const struct lf_chain *c, size_t node)
{
    for (int k = 0; k < LF_MAX_OUT && c->n_windows; k++)
        if (c->g->n[node].out[k] && c->g->t[c->g->n[node].out[k]].role == LF_ROLE_GRAD)
            return lf_exec_window_addr(ex, c, c->g->n[node].out[k], node) != NULL;
    return false;
}

static struct lf_bind bind_of(lf_exec *ex, const struct lf_chain *c, struct where *w)
{
    return (struct lf_bind){.g = c->g,
                            .numeric = ex->p->o.mode,
                            .ptr = addr_cb,
                            .packed = c->o.packed ? packed_cb : NULL,
                            .rec = ex->rec,
                            .exchange = &ex->exchange,
                            .with = &ex->with,
                            .user = w};
}

int lf_exec_fill_within(lf_exec *ex, void *args, const struct lf_chain *c,
                        const struct lf_exec_within *n, lf_err *err)
{
    struct where w = {.ex = ex, .c = c, .slot = n->slot, .node = n->at};
    struct lf_bind b = bind_of(ex, c, &w);
    b.acc = n->add || !c->first_writer[n->node];
    return lf_exec_fill_call(ex, args, &b, c, n->node, err);
}

/* fn(ex, call, bind of it, chain, node) for every call of a chain, in their order; stops when one
 * does not return 0. */
int lf_exec_each_call(lf_exec *ex, size_t ci, int64_t rows_all, int64_t rows_live,
                      lf_exec_call_fn fn, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[ci];
    struct lf_bound *bc = &ex->chain[ci];
    struct where w = {.ex = ex, .c = c};
    struct lf_bind b = bind_of(ex, c, &w);
    struct lf_call *call = bc->calls;
    b.rows_all = rows_all;
    b.rows_live = rows_live;
    for (w.slot = 0; w.slot < c->o.slots; w.slot++)
        for (int v = 0; v < bc->variants; v++)
            for (size_t i = 0; i < c->g->n_n; i++, call++) {
                /* what was summed before a micro-batch is not in its windows */
                b.acc = (v == LF_ACCUM && !lf_exec_writes_window(ex, c, i)) || !c->first_writer[i];
                w.node = i;
                int rc = fn(ex, call, &b, c, i, err);
                if (rc != 0)
                    return rc;
            }
    return 0;
}

static int bind_call(lf_exec *ex, struct lf_call *call, const struct lf_bind *b,
                     const struct lf_chain *c, size_t i, lf_err *err)
{
    const int kernel = lf_op_table[c->g->n[i].op].kernel;
    void *args = lf_arena_alloc(ex->args, 1, lf_kernel_table[kernel].args_bytes, err);
    *call = (struct lf_call){kernel, args};
    return args ? lf_exec_fill_call(ex, args, b, c, i, err) : LF_ENOMEM;
}

static int bind_chain(lf_exec *ex, size_t ci, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[ci];
    struct lf_bound *bc = &ex->chain[ci];
    const size_t n = c->g->n_n;
    bc->variants = c->o.train ? 2 : 1;
    bc->calls = lf_calloc(n * (size_t)bc->variants * (size_t)c->o.slots, sizeof *bc->calls, err);
    bc->captured = lf_calloc(LF_CAPTURED * (size_t)bc->variants * (size_t)c->o.slots,
                             sizeof *bc->captured, err);
    if (!bc->calls || !bc->captured || lf_exec_sum_bind(ex, ci, err) ||
        lf_exec_window_bind(ex, ci, err) || lf_exec_pieces_bind(ex, ci, err))
        return LF_ENOMEM;
    return lf_exec_each_call(ex, ci, 0, 0, bind_call, err);
}

/* Element `first` of a kind of a parameter; of a kind in parts memory begins with the first one of
 * this rank. */
static void *element(const lf_pstore *ps, const struct lf_param *q, enum lf_pkind kind,
                     int64_t first)
{
    char *at = lf_pstore_data(ps, q, kind);
    return !at || ps->g[q->group].part[kind]
               ? at
               : at + (size_t)first * lf_dtype_size(lf_pstore_type(ps, kind));
}

/* Elements [first, first + n) of a parameter. */
static struct lf_opt_tensor opt_tensor(const lf_plan *p, const struct lf_param *q, int64_t first,
                                       int64_t n)
{
    const lf_pstore *ps = p->ps;
    const enum lf_pkind weights = lf_pstore_weights(ps, (int)(q - ps->p));
    struct lf_box_runs runs;
    lf_box_runs(q, &runs);
    return (struct lf_opt_tensor){
        .base = runs.base,
        .run = runs.run,
        .period = runs.period,
        .n = n,
        .first = first,
        .master = element(ps, q, weights, first),
        .m = element(ps, q, LF_P_M, first),
        .v = element(ps, q, LF_P_V, first),
        .grad = element(ps, q, LF_P_GRAD, first),
        .ema = element(ps, q, LF_P_EMA, first),
        .copy = weights == LF_P_COPY ? NULL : element(ps, q, LF_P_COPY, first),
        .copy_type = (uint8_t)ps->copy_type,
        .master_type = (uint8_t)lf_pstore_type(ps, weights),
        .moment_type = (uint8_t)ps->moment_type,
        .site = ~lf_name_site(q->d.name), /* that of its initial values is the name's */
        .lr_scale = q->d.balance_rate > 0 ? q->d.balance_rate : q->d.lr_scale,
        .weight_decay = q->d.decay ? p->adamw.weight_decay : 0.0f};
}

/* The optimizer's table: what AdamW updates, then what is balanced. */
static int fill_opt_table(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    const size_t all = p->n_opt_tensors + p->n_balanced;
    size_t w = 0, b = p->n_opt_tensors;
    ex->opt_host = lf_calloc(all + p->n_opt_tensors, sizeof *ex->opt_host, err);
    if (!ex->opt_host)
        return LF_ENOMEM;
    ex->own_host = ex->opt_host;
    ex->n_own = p->n_opt_tensors;
    for (size_t i = 0; i < p->ps->n_p; i++) {
        const struct lf_param *q = &p->ps->p[i];
        if (!q->d.frozen)
            ex->opt_host[q->d.balance_rate > 0 ? b++ : w++] = opt_tensor(p, q, 0, q->n);
    }
    return ex->b->ops->copy_in(ex->b, ex->inputs + p->opt_tab_off, ex->opt_host,
                               all * sizeof *ex->opt_host, err);
}

/* The tensors of this rank's parts that are counted in its part of the norm, or the others. */
static void add_own(lf_exec *ex, bool in_norm)
{
    const lf_plan *p = ex->p;
    int64_t block = 0, first, n;
    for (size_t i = 0; i < p->ps->n_p; i++) {
        const struct lf_param *q = &p->ps->p[i];
        if (q->d.frozen || q->d.balance_rate > 0)
            continue;
        const int64_t blocks = (lf_box_most(p->ps, q) + LF_NORM_BLOCK - 1) / LF_NORM_BLOCK,
                      boxes = lf_box_count(p->ps, q), box = lf_box_number(p->ps, q);
        lf_param_own(p->ps, q, &first, &n);
        if (n && lf_plan_counts(p, q) == in_norm) {
            struct lf_opt_tensor *t = &ex->own_host[ex->n_own++];
            *t = opt_tensor(p, q, first, n);
            t->block = block + box * blocks + first / LF_NORM_BLOCK;
        }
        block += boxes * blocks;
    }
}

/* Where ranks divide the norm: the table of this rank's parts. */
static int fill_own_table(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    if (p->own_tab_off == p->opt_tab_off)
        return 0;
    ex->own_host = ex->opt_host + p->n_opt_tensors + p->n_balanced;
    ex->n_own = 0;
    add_own(ex, true);
    ex->n_counted = ex->n_own;
    add_own(ex, false);
    return ex->b->ops->copy_in(ex->b, ex->inputs + p->own_tab_off, ex->own_host,
                               ex->n_own * sizeof *ex->own_host, err);
}

static int add_refresh(lf_exec *ex, struct lf_call *call, int kernel, const void *args,
                       const char *name, lf_err *err)
{
    const struct lf_kernel_row *kr = &lf_kernel_table[kernel];
    void *copy = lf_arena_alloc(ex->args, 1, kr->args_bytes, err);
    if (!copy)
        return LF_ENOMEM;
    memcpy(copy, args, kr->args_bytes);
    *call = (struct lf_call){kernel, copy};
    if (kr->check(ex->b->kernels, copy) != LF_K_OK)
        return lf_fail(err, LF_EINVAL, "refresh of %s: kernel %s of %s refuses it", name, kr->name,
                       ex->b->kernels->family);
    return 0;
}

/* The call that makes the 8-bit copies of group g; in *call, and its arguments are the executor's.
 * 1: it has some. */
static int bind_quantise(lf_exec *ex, struct lf_call *call, const struct lf_pgroup *g, lf_err *err)
{
    struct lf_k_quantise a;
    if (!lf_store_quantise(ex->p->ps, g, &a))
        return 0;
    a.work = ex->p->refresh_work ? ex->arena : NULL;
    a.work_bytes = ex->p->refresh_work;
    int rc = add_refresh(ex, call, LF_KID_quantise, &a, g->name, err);
    return rc != 0 ? rc : 1;
}

static int bind_optimizer(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    if (!p->has_opt)
        return 0;
    int rc = fill_opt_table(ex, err);
    if (rc == 0)
        rc = fill_own_table(ex, err);
    struct lf_bind b = {.rec = ex->rec,
                        .opt_tensors = (void *)(ex->inputs + p->opt_tab_off),
                        .n_opt_tensors = (int64_t)p->n_opt_tensors,
                        .n_balanced = (int64_t)p->n_balanced,
                        .own_tensors = (void *)(ex->inputs + p->own_tab_off),
                        .n_own_tensors = (int64_t)ex->n_own,
                        .n_counted = (int64_t)ex->n_counted,
                        .sums = p->n_sums ? (void *)(ex->inputs + p->sums_off) : NULL,
                        /* one more than there are blocks where all layers are other ranks' */
                        .n_sums = p->n_sums ? (int64_t)p->n_sums : lf_plan_norm_blocks(p),
                        .adamw = &p->adamw};
    /* The first two norms are the two calls of one where it is summed in parts. */
    const enum lf_op all[] = {LF_OP_GRAD_NORM, LF_OP_GRAD_NORM, LF_OP_ADAMW, LF_OP_MOE_BALANCE};
    const enum lf_op *ops = p->n_sums ? all : all + 1;
    ex->n_opt = (p->n_balanced ? 3 : 2) + (p->n_sums > 0);
    ex->opt = lf_calloc(ex->n_opt + p->ps->n_g, sizeof *ex->opt, err);
    if (!ex->opt)
        return LF_ENOMEM;
    for (size_t k = 0; k < ex->n_opt && rc == 0; k++) {
        const struct lf_node n = {.op = (uint8_t)ops[k]};
        const struct lf_kernel_row *kr = &lf_kernel_table[lf_op_table[ops[k]].kernel];
        char *args = lf_arena_alloc(ex->args, 1, kr->args_bytes, err);
        if (!args)
            return LF_ENOMEM;
        lf_op_table[ops[k]].emit(&b, &n, args);
        if (p->n_sums && k == 0)
            ((struct lf_k_grad_norm *)(void *)args)->parts = true;
        lf_kernel_set_work(lf_op_table[ops[k]].kernel, args, k == 0 ? ex->arena : NULL,
                           k == 0 ? p->opt_work : 0);
        if (kr->check(ex->b->kernels, args) != LF_K_OK)
            rc = lf_fail(err, LF_EINVAL, "optimizer: kernel %s of %s refuses its arguments",
                         kr->name, ex->b->kernels->family);
        ex->opt[k] = (struct lf_call){lf_op_table[ops[k]].kernel, args};
    }
    ex->n_update = ex->n_opt;
    for (size_t i = 0; i < p->ps->n_g && rc >= 0; i++) {
        rc = p->ps->g[i].frozen ? 0 : bind_quantise(ex, &ex->opt[ex->n_opt], &p->ps->g[i], err);
        ex->n_opt += rc > 0;
    }
    return rc < 0 ? rc : 0;
}

static int bind_refresh(lf_exec *ex, lf_err *err)
{
    const lf_pstore *ps = ex->p->ps;
    ex->copies = lf_calloc(2 * ps->n_g + 1, sizeof *ex->copies, err);
    ex->packs = lf_calloc(ps->n_g + 1, sizeof *ex->packs, err);
    int rc = ex->copies && ex->packs ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < ps->n_g && rc == 0; i++) {
        const struct lf_pgroup *g = &ps->g[i];
        char *master = lf_pgroup_data(ps, g, LF_P_MASTER), *copy = lf_pgroup_data(ps, g, LF_P_COPY);
        const int64_t from = g->part[LF_P_MASTER] && !g->part[LF_P_COPY] ? g->own0 : 0,
                      n = g->part[LF_P_MASTER] ? g->own1 - g->own0 : g->rows * g->cols;
        if (master && copy && n) { /* what other ranks have the masters of was written as it is */
            const struct lf_k_axpby a = {.n = n,
                                         .a = master,
                                         .y = copy + (size_t)from * lf_dtype_size(ps->copy_type),
                                         .alpha = 1.0f,
                                         .a_type = LF_F32,
                                         .b_type = LF_F32,
                                         .y_type = (uint8_t)ps->copy_type};
            rc = add_refresh(ex, &ex->copies[ex->n_copies++], LF_KID_axpby, &a, g->name, err);
        }
        if (rc == 0 && (rc = bind_quantise(ex, &ex->copies[ex->n_copies], g, err)) > 0) {
            ex->n_copies++;
            rc = 0;
        }
        if (g->need_pack && rc == 0) {
            const struct lf_k_gemm_pack a = {.n = g->rows,
                                             .k = g->cols,
                                             .b = copy ? copy : master,
                                             .ldb = g->cols,
                                             .tb = true,
                                             .src_type = copy ? (uint8_t)ps->copy_type : LF_F32,
                                             .ab_type = g->pack_type,
                                             .packed = ps->pack + g->pack_off,
                                             .packed_bytes = g->pack_bytes};
            rc = add_refresh(ex, &ex->packs[ex->n_packs++], LF_KID_gemm_pack, &a, g->name, err);
        }
    }
    return rc;
}

static int fill_constants(lf_exec *ex, lf_err *err)
{
    for (size_t i = 0; i < ex->p->n_tab; i++) {
        const struct lf_table *t = &ex->p->tab[i];
        if (t->state)
            continue;
        void *host = lf_calloc(1, t->bytes, err);
        if (!host)
            return LF_ENOMEM;
        t->fill(host, t->ctx);
        int rc = ex->b->ops->copy_in(ex->b, ex->inputs + t->off, host, t->bytes, err);
        if (rc == 0)
            rc = ex->b->ops->sync(ex->b, err);
        free(host);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int lf_exec_bind(lf_exec *ex, lf_err *err)
{
    lf_plan *p = ex->p;
    ex->with.rank = p->ps->layout.tensor_rank;
    ex->with.ranks = p->ps->layout.tensor;
    if (p->ps->back)
        return lf_fail(err, LF_EBUSY, "the parameter store is bound to an executor already");
    /* One block: rounding up to huge pages costs once, and the process grows by what the plan
     * said. */
    ex->memory = ex->b->ops->alloc(ex->b, p->bytes.total, err);
    if (p->bytes.offloaded && ex->memory) {
        if (!ex->b->ops->alloc_host)
            return lf_fail(err, LF_ENOTSUP, "executor: %s has no memory of its own to offload from",
                           ex->b->ops->name);
        ex->host_memory = ex->b->ops->alloc_host(ex->b, p->bytes.offloaded, err);
    }
    if (!ex->memory || (p->bytes.offloaded && !ex->host_memory))
        return LF_ENOMEM;
    int rc = lf_pstore_bind(p->ps, ex->b, ex->memory, ex->host_memory, err);
    ex->bound_store = true;
    ex->inputs = ex->memory + lf_pstore_bytes(p->ps);
    ex->state = ex->inputs + p->input_bytes;
    ex->arena = ex->state + p->state_bytes;
    ex->rec = (struct lf_step_record *)(void *)(ex->inputs + p->rec_off);
    for (size_t i = 0; i < p->n_c && rc == 0; i++)
        rc = bind_chain(ex, i, err);
    if (rc == 0)
        rc = lf_exec_experts_bind(ex, err);
    if (rc == 0)
        rc = bind_optimizer(ex, err);
    if (rc == 0)
        rc = bind_refresh(ex, err);
    return rc != 0 ? rc : fill_constants(ex, err);
}
