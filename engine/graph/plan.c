/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan object: takes graphs through the passes, collects what they need of the store, of
 * constants and states, and counts bytes. Placement proper is in place.c and plan_place.c, printing
 * in plan_text.c.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/experts.h"
#include "engine/graph/priv.h"
#include "kernels/cuda/queue.h"

size_t lf_tensor_bytes(const struct lf_tensor *t)
{
    return (size_t)t->rows * (size_t)t->cols * lf_dtype_size((enum lf_dtype)t->dtype);
}

static void forget_needs(lf_pstore *ps)
{
    for (size_t i = 0; i < ps->n_g; i++) {
        memset(ps->g[i].need, 0, sizeof ps->g[i].need);
        memset(ps->g[i].host, 0, sizeof ps->g[i].host);
        memset(ps->g[i].sum, 0, sizeof ps->g[i].sum);
        ps->g[i].need_pack = false;
    }
}

/* 8-bit products: where there are tensor cores for them, and scales of blocks where cuBLASLt has
 * them. The CPU computes what a GPU would. */
static int check_fp8(const struct lf_plan_opts *o, lf_err *err)
{
    const int sm = o->target->sm;
    if (!o->fp8)
        return 0;
    if (o->compute != LF_BF16)
        return lf_fail(err, LF_EINVAL, "plan: fp8 stands beside compute type bf16");
    if (o->mode != LF_FAST)
        return lf_fail(err, LF_ENOTSUP,
                       "precision fp8 has no invariant mode: its scales depend on all rows; take "
                       "numeric = fast or precision = bf16");
    if (sm && sm < 89)
        return lf_fail(err, LF_ENOTSUP,
                       "precision fp8: %s has no tensor cores for it, GPUs from sm_89 on have "
                       "(L40S, H100, H200); bf16 runs everywhere",
                       o->target->name);
    if (sm && sm != 90 && o->fp8 == LF_FP8_BLOCKS)
        return lf_fail(err, LF_ENOTSUP,
                       "fp8_scaling = block: cuBLASLt has it on sm_90 (H100, H200) alone, not on "
                       "%s; take fp8_scaling = tensor",
                       o->target->name);
    return 0;
}

lf_plan *lf_plan_create(lf_pstore *ps, const struct lf_plan_opts *opts, lf_err *err)
{
    if (ps->back) {
        lf_fail(err, LF_EBUSY, "plan: an executor holds the parameter store");
        return NULL;
    }
    lf_plan *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return NULL;
    forget_needs(ps);
    p->ps = ps;
    p->with = (struct lf_k_ranks){.rank = ps->layout.tensor_rank, .ranks = ps->layout.tensor};
    p->o = *opts;
    if (!p->o.target)
        p->o.target = lf_target_host();
    if (p->o.threads < 1 ||
        (p->o.compute != LF_F32 && p->o.compute != LF_BF16 && p->o.compute != LF_F16)) {
        lf_fail(err, LF_EINVAL,
                "plan: threads must be at least 1 and the compute type f32, bf16 or fp16");
        goto out;
    }
    if (p->o.compute == LF_F16 && !p->o.target->sm) {
        lf_fail(err, LF_ENOTSUP,
                "precision fp16: %s has no kernels for it, GPUs have (device = cuda); bf16 runs "
                "everywhere",
                p->o.target->name);
        goto out;
    }
    if (check_fp8(&p->o, err))
        goto out;
    ps->copy_type = p->o.compute == LF_F16 ? LF_F16 : LF_BF16;
    ps->moment_type = LF_F32;
    ps->fp8_scaling = p->o.fp8 == LF_FP8_BLOCKS ? LF_FP8_BLK128 : LF_FP8_TENSOR;
    p->arena = lf_arena_create(err);
    if (!p->arena)
        goto out;
    p->k = p->o.target->sm ? &lf_cuda_kernels : lf_cpu_kernels(p->o.target->isa);
    p->work_exact = p->k != NULL;
    /* this processor lacks the target's instructions: the portable table gives the sizes */
    if (!p->k)
        p->k = lf_cpu_kernels(LF_ISA_PLAIN);
    if (!p->k) {
        lf_fail(err, LF_ENOTSUP, "plan: no CPU kernels are built in");
        goto out;
    }
    return p;
out:
    lf_plan_destroy(p);
    return NULL;
}

static void chain_fini(struct lf_chain *c)
{
    lf_graph_destroy(c->g);
    free(c->work_off);
    free(c->work_bytes);
    free(c->first_writer);
    free(c->window);
    free(c->event);
    free(c->region);
}

void lf_plan_destroy(lf_plan *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_c; i++)
        chain_fini(&p->c[i]);
    free(p->c);
    free(p->tab);
    free(p->bucket);
    free(p->gather);
    free(p->unit);
    lf_arena_destroy(p->arena);
    free(p);
}

int32_t lf_plan_table(const lf_plan *p, const char *name)
{
    for (size_t i = 0; i < p->n_tab; i++)
        if (strcmp(p->tab[i].name, name) == 0)
            return (int32_t)i;
    return -1;
}

/* Constants and states are shared by name over all graphs of the plan. */
static int adopt_tables(lf_plan *p, lf_graph *g, lf_err *err)
{
    for (size_t i = 1; i < g->n_t; i++) {
        struct lf_tensor *t = &g->t[i];
        if ((t->role != LF_ROLE_CONST && t->role != LF_ROLE_STATE) || t->parent)
            continue;
        int32_t k = lf_plan_table(p, t->name);
        if (k >= 0) {
            const struct lf_table *o = &p->tab[k];
            if (o->rows != t->rows || o->cols != t->cols || o->dtype != t->dtype ||
                o->state != (t->role == LF_ROLE_STATE))
                return lf_fail(err, LF_EINVAL,
                               "graph %s: %s has another shape or type than in an earlier graph",
                               g->name, t->name);
        } else {
            int rc = lf_grow(&p->tab, &p->cap_tab, p->n_tab, sizeof *p->tab, err);
            if (rc != 0)
                return rc;
            k = (int32_t)p->n_tab++;
            p->tab[k] = (struct lf_table){.name = lf_arena_strdup(p->arena, t->name, err),
                                          .dtype = t->dtype,
                                          .state = t->role == LF_ROLE_STATE,
                                          .rows = t->rows,
                                          .cols = t->cols,
                                          .bytes = lf_tensor_bytes(t),
                                          .fill = t->fill,
                                          .ctx = t->ctx};
            if (!p->tab[k].name)
                return LF_ENOMEM;
        }
        t->table = k;
    }
    return 0;
}

int lf_plan_state(lf_plan *p, const char *name, size_t bytes, lf_err *err)
{
    if (p->finished || bytes == 0 || lf_plan_table(p, name) >= 0)
        return lf_fail(err, LF_EINVAL, "plan: state %s of %zu bytes: %s", name, bytes,
                       p->finished ? "the plan is finished"
                       : bytes     ? "there is one"
                                   : "nothing to keep");
    int rc = lf_grow(&p->tab, &p->cap_tab, p->n_tab, sizeof *p->tab, err);
    if (rc != 0)
        return rc;
    struct lf_table *t = &p->tab[p->n_tab++];
    *t = (struct lf_table){.name = lf_arena_strdup(p->arena, name, err),
                           .dtype = LF_U8,
                           .state = true,
                           .rows = 1,
                           .cols = (int64_t)bytes,
                           .bytes = bytes};
    return t->name ? 0 : LF_ENOMEM;
}

const struct lf_kernels *lf_plan_kernels(const lf_plan *p)
{
    return p->k;
}

/* Mark what of the store the chain's nodes really touch. */
static void mark_store(lf_plan *p, const struct lf_chain *c)
{
    const lf_graph *g = c->g;
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        for (int k = 0; k < LF_MAX_IN + LF_MAX_OUT; k++) {
            const struct lf_tensor *t = &g->t[k < LF_MAX_IN ? n->in[k] : n->out[k - LF_MAX_IN]];
            if (t->role == LF_ROLE_PARAM || t->role == LF_ROLE_GRAD)
                p->ps->g[t->group].need[t->pkind] = true;
        }
        if (!c->o.packed || (n->op != LF_OP_LINEAR && n->op != LF_OP_XENT && n->op != LF_OP_LOGP) ||
            g->t[n->in[1]].role != LF_ROLE_PARAM)
            continue;
        struct lf_pgroup *pg = &p->ps->g[g->t[n->in[1]].group];
        pg->need_pack = true;
        pg->pack_type = (uint8_t)p->o.compute;
        pg->pack_bytes = p->o.target->packed_bytes(pg->rows, pg->cols, p->o.compute);
    }
}

/* The first node of a chain that writes a group's gradient overwrites it in the first micro-batch;
 * the rest add. */
static int mark_writers(struct lf_chain *c, size_t n_groups, lf_err *err)
{
    const lf_graph *g = c->g;
    bool *seen = lf_calloc(n_groups + 1, 1, err);
    c->first_writer = lf_calloc(g->n_n + 1, sizeof *c->first_writer, err);
    int rc = seen && c->first_writer ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < g->n_n && rc == 0; i++) {
        int fresh = -1;
        for (int k = 0; k < LF_MAX_OUT; k++) {
            const struct lf_tensor *t = &g->t[g->n[i].out[k]];
            if (!g->n[i].out[k] || t->role != LF_ROLE_GRAD)
                continue;
            int mine = !seen[t->group];
            if (fresh >= 0 && fresh != mine)
                rc = lf_fail(err, LF_ENOTSUP,
                             "graph %s: %s shares one of its two parameters with an earlier node, "
                             "the other not",
                             g->name, lf_op_table[g->n[i].op].name);
            fresh = mine;
        }
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (g->n[i].out[k] && g->t[g->n[i].out[k]].role == LF_ROLE_GRAD)
                seen[g->t[g->n[i].out[k]].group] = true;
        c->first_writer[i] = fresh == 1;
    }
    free(seen);
    return rc;
}

static int check_groups(const lf_pstore *ps, lf_err *err)
{
    for (size_t i = 0; i < ps->n_p; i++)
        if (ps->p[i].d.frozen != ps->g[ps->p[i].group].frozen)
            return lf_fail(err, LF_EINVAL, "parameter %s is frozen, but group %s is not as a whole",
                           ps->p[i].d.name, ps->g[ps->p[i].group].name);
    return 0;
}

static int run_passes(lf_plan *p, struct lf_chain *c, lf_err *err)
{
    lf_graph *g = c->g;
    int rc = 0;
    if (p->ps->layout.tensor > 1 || p->ps->layout.context > 1)
        rc = lf_layout_localise(g, err);
    g->n_fwd = g->n_n;
    if (rc == 0 && c->o.train && !c->o.frozen)
        rc = lf_autodiff(g, err);
    if (rc == 0)
        rc = lf_layout_check(g, err);
    if (rc == 0)
        rc = lf_precision(g, p->o.compute, err);
    if (rc == 0)
        rc = lf_fp8_pass(g, c->o.no_fp8 ? LF_FP8_OFF : p->o.fp8, err);
    if (rc == 0)
        rc = lf_fuse(g, p->o.target->fuse, err);
    if (rc == 0)
        rc = lf_recompute(g, c->o.recompute, err);
    if (rc == 0) {
        lf_prune(g);
        rc = lf_graph_check(g, err);
    }
    g->n_bwd = g->n_n;
    if (rc == 0 && c->o.split)
        rc = lf_split(g, err);
    if (rc == 0 && p->ps->layout.expert > 1)
        rc = lf_late(g, err);
    if (rc == 0 && !p->o.no_reuse)
        rc = lf_alias(g, err);
    if (rc != 0)
        return rc;
    lf_liveness(g);
    return lf_plan_regions(p, c, err);
}

/* What CPUs have kernels for and GPUs have not, though the op has one there. */
static int check_attention(const lf_plan *p, const lf_graph *g, lf_err *err)
{
    for (size_t i = 0; i < g->n_n && p->o.target->sm; i++) {
        const struct lf_node *n = &g->n[i];
        const bool apart = n->op == LF_OP_ATTN && n->in[ATTN_APART],
                   bias = (n->op == LF_OP_ATTN && n->in[ATTN_BIAS]) ||
                          (n->op == LF_OP_ATTN_PAGED && n->in[PAGED_BIAS]);
        if (apart || bias)
            return lf_fail(err, LF_ENOTSUP,
                           "graph %s: %s has no kernel for attention %s, CPUs have (device = cpu)",
                           g->name, p->o.target->name,
                           bias ? "with a table of distances ([model] position = relative, "
                                  "vision.shifted)"
                                : "to another text (cross attention, [model] encoder_layers or "
                                  "dual.read = attention)");
    }
    return 0;
}

int lf_plan_add(lf_plan *p, lf_graph *g, const struct lf_chain_opts *opts, lf_err *err)
{
    struct lf_chain c = {.o = *opts};
    int rc = lf_graph_check(g, err);
    if (rc == 0)
        rc = check_groups(p->ps, err);
    if (rc == 0)
        rc = check_attention(p, g, err);
    if (rc != 0)
        return rc;
    if (p->finished || g->ps != p->ps || opts->slots < 0 || g->block >= 0 || g->n_n == 0)
        return lf_fail(
            err, LF_EINVAL,
            "graph %s: plan finished, another store, an open block, bad slots, or nothing in it",
            g->name ? g->name : "(given to a plan already)");
    if (c.o.packed && c.o.train)
        return lf_fail(err, LF_EINVAL,
                       "graph %s: panels are for inference, weights change in training", g->name);
    rc = lf_plan_check_chunk(g, opts, err);
    if (rc != 0)
        return rc;
    if (!p->o.target->packed_bytes)
        c.o.packed = false;
    if (c.o.slots == 0)
        c.o.slots = 1;
    if (c.o.eras == 0)
        c.o.eras = UINT32_MAX;
    c.g = lf_calloc(1, sizeof *c.g, err);
    if (!c.g)
        return LF_ENOMEM;
    *c.g = *g; /* the content moves; what remains is an empty shell that destroy accepts */
    memset(g, 0, sizeof *g);
    rc = run_passes(p, &c, err);
    if (rc == 0)
        rc = adopt_tables(p, c.g, err);
    if (rc == 0)
        rc = mark_writers(&c, p->ps->n_g, err);
    if (rc == 0)
        rc = lf_grow(&p->c, &p->cap_c, p->n_c, sizeof *p->c, err);
    if (rc != 0) {
        chain_fini(&c);
        return rc;
    }
    mark_store(p, &c);
    p->c[p->n_c] = c;
    return (int)p->n_c++;
}

/* Random rounding draws eight elements at once, which must be neighbours in the whole tensor. */
static int check_runs(const lf_pstore *ps, lf_err *err)
{
    for (size_t i = 0; i < ps->n_p; i++) {
        struct lf_box_runs r;
        lf_box_runs(&ps->p[i], &r);
        if (!ps->p[i].d.frozen && (r.base % 8 || r.run % 8 || r.period % 8))
            return lf_fail(err, LF_ENOTSUP,
                           "parameter %s: ranks divide it between elements that are rounded at "
                           "random together; choose sizes that are multiples of 8 times tensor",
                           ps->p[i].d.name);
    }
    return 0;
}

int lf_adamw_opts_check(const struct lf_adamw_opts *o, enum lf_dtype compute, lf_err *err)
{
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->eps >= 0 &&
          o->weight_decay >= 0))
        return lf_fail(err, LF_EINVAL,
                       "adamw: betas must be in [0, 1), eps and weight decay not negative");
    if ((o->moments != LF_F32 && o->moments != LF_BF16) ||
        (o->masters != LF_F32 && o->masters != LF_BF16))
        return lf_fail(err, LF_EINVAL, "adamw: moments and masters are f32 or bf16");
    if (o->masters == LF_BF16 && compute != LF_BF16)
        return lf_fail(
            err, LF_EINVAL,
            "masters = bf16 needs precision = bf16: with %s nothing holds the weights in bf16",
            lf_compute_name(compute));
    if (!(o->offload >= 0 && o->offload <= 1))
        return lf_fail(err, LF_EINVAL, "optimizer_offload is a share between 0 and 1");
    return 0;
}

int lf_plan_optimizer(lf_plan *p, const struct lf_adamw_opts *o, lf_err *err)
{
    if (p->has_opt || p->finished)
        return lf_fail(err, LF_EINVAL,
                       "plan: a second optimizer, or one after the plan was finished");
    int rc = lf_adamw_opts_check(o, p->o.compute, err);
    if (rc != 0)
        return rc;
    if (o->offload > 0 && !p->o.target->sm)
        return lf_fail(err, LF_EINVAL,
                       "optimizer_offload = %g: on a CPU the optimizer's state is in the host's "
                       "memory anyway; leave it out",
                       o->offload);
    rc = o->stochastic && (o->moments == LF_BF16 || o->masters == LF_BF16) ? check_runs(p->ps, err)
                                                                           : 0;
    if (rc != 0)
        return rc;
    p->has_opt = true;
    p->adamw = *o;
    p->ps->moment_type = o->moments;
    return 0;
}

/* Whose moments, and masters that no graph reads, lie in the host's memory: groups in order of
 * declaration, each that still fits into the share. */
static void choose_offloaded(lf_plan *p)
{
    double room = 0;
    for (size_t i = 0; i < p->ps->n_g; i++)
        room += p->ps->g[i].need[LF_P_M] ? (double)(p->ps->g[i].rows * p->ps->g[i].cols) : 0;
    room *= p->has_opt ? p->adamw.offload : 0;
    for (size_t i = 0; i < p->ps->n_g; i++) {
        struct lf_pgroup *g = &p->ps->g[i];
        const double n = (double)(g->rows * g->cols);
        if (!g->need[LF_P_M] || n > room)
            continue;
        room -= n;
        g->host[LF_P_M] = g->host[LF_P_V] = true;
        g->host[LF_P_EMA] = g->need[LF_P_EMA];
        g->host[LF_P_MASTER] = !g->master_read;
    }
}

/* What lies elsewhere has no values here that a graph could read. */
static int check_elsewhere(const lf_pstore *ps, lf_err *err)
{
    for (size_t i = 0; i < ps->n_g; i++)
        for (int k = 0; k < LF_P_ALL && ps->g[i].elsewhere; k++)
            if (ps->g[i].need[k] || ps->g[i].need_pack)
                return lf_fail(err, LF_EINVAL, "plan: a graph reads %s, which is not in memory",
                               ps->g[i].name);
    return 0;
}

static void settle_store(lf_plan *p)
{
    lf_pstore *ps = p->ps;
    const bool narrow = p->has_opt && p->adamw.masters == LF_BF16; /* the copies are the weights */
    for (size_t i = 0; i < ps->n_g; i++) {
        struct lf_pgroup *g = &ps->g[i];
        bool trained = p->has_opt && !g->frozen;
        memset(g->part, 0, sizeof g->part);
        memset(g->window, 0, sizeof g->window);
        g->unit = -1;
        g->own0 = 0;
        g->own1 = g->rows * g->cols;
        if ((g->need[LF_P_Q] || g->need[LF_P_QT]) &&
            (narrow || (!trained && !p->o.keep_master))) /* they are made from something */
            g->need[LF_P_COPY] = true;
        g->master_read =
            g->need[LF_P_MASTER] || !g->need[LF_P_COPY] || g->need[LF_P_Q] || g->need[LF_P_QT];
        if (trained)
            g->need[LF_P_GRAD] = true;
        if (trained && !g->balanced)
            g->need[LF_P_M] = g->need[LF_P_V] = true;
        g->need[LF_P_EMA] = g->need[LF_P_M] && p->adamw.average;
        if (!g->elsewhere && (!g->need[LF_P_COPY] || (!narrow && (trained || p->o.keep_master))))
            g->need[LF_P_MASTER] = true;
        if (trained)
            *(g->balanced ? &p->n_balanced : &p->n_opt_tensors) += (size_t)g->count;
    }
    choose_offloaded(p);
    lf_pstore_layout(ps, p->o.target->align);
}

/* Parts that are longer are summed in pieces. */
enum { SCRATCH_FLOATS = 8 << 20 };

static size_t lay_scratch(lf_plan *p, size_t at)
{
    const int same = lf_plan_sum_ranks(p, p->ps->layout.expert > 1);
    const size_t others = (size_t)(same > p->ranks.ranks ? same : p->ranks.ranks) - 1,
                 part = lf_plan_largest_part(p), most = SCRATCH_FLOATS / others,
                 al = p->o.target->align;
    p->scratch_off = at;
    p->sum_stride = lf_align_up((part < most ? part : most) * sizeof(float), al) / sizeof(float);
    return at + others * p->sum_stride * sizeof(float);
}

static void lay_inputs(lf_plan *p)
{
    const size_t al = p->o.target->align;
    size_t at = 0;
    p->rec_off = at;
    at += lf_align_up(sizeof(struct lf_step_record), al);
    p->opt_tab_off = at;
    at += lf_align_up((p->n_opt_tensors + p->n_balanced) * sizeof(struct lf_opt_tensor), al);
    p->own_tab_off = p->opt_tab_off;
    const bool model =
        (p->ps->layout.tensor > 1 || p->ranks.pipeline > 1 || p->ps->layout.expert > 1) &&
        p->has_opt;
    if (p->sharded || model) {
        p->own_tab_off = at;
        at += lf_align_up(p->n_opt_tensors * sizeof(struct lf_opt_tensor), al);
    }
    if ((lf_plan_sums_parts(p) && p->has_opt) || model) {
        p->sums_off = at;
        p->n_sums = (size_t)lf_plan_norm_blocks(p);
        if (!p->n_sums) /* layers of other ranks alone */
            p->n_sums = 1;
        at += lf_align_up(p->n_sums * sizeof(double), al);
    }
    if (p->n_sums && p->sharded && p->o.target->sm)
        at = lay_scratch(p, at);
    for (size_t i = 0; i < p->n_tab; i++) {
        struct lf_table *t = &p->tab[i];
        size_t *where = t->state ? &p->state_bytes : &at;
        t->off = *where;
        *where += lf_align_up(t->bytes, al);
    }
    p->const_bytes = at;
    for (size_t i = 0; i < p->n_c; i++) {
        struct lf_chain *c = &p->c[i];
        c->input_off = at;
        for (size_t k = 1; k < c->g->n_t; k++) {
            struct lf_tensor *t = &c->g->t[k];
            if (t->role != LF_ROLE_INPUT || t->parent)
                continue;
            t->off = c->input_bytes;
            c->input_bytes += lf_align_up(lf_tensor_bytes(t), al);
        }
        at += c->input_bytes * (size_t)c->o.slots;
    }
    p->input_bytes = at;
}

static int optimizer_work(lf_plan *p, lf_err *err)
{
    if (!p->has_opt)
        return 0;
    if (!p->n_opt_tensors && !p->ps->part)
        return lf_fail(err, LF_EINVAL, "plan: an optimizer, but every parameter is frozen");
    struct lf_opt_tensor *t = lf_calloc(p->n_opt_tensors, sizeof *t, err);
    if (!t)
        return LF_ENOMEM;
    size_t w = 0;
    for (size_t i = 0; i < p->ps->n_p; i++)
        if (!p->ps->p[i].d.frozen && !(p->ps->p[i].d.balance_rate > 0))
            t[w++].n = p->ps->p[i].n;
    struct lf_k_grad_norm a = {.n_tensors = (int64_t)w, .t = t, .n_sums = lf_plan_norm_blocks(p)};
    p->opt_work = lf_align_up(lf_kernel_table[LF_KID_grad_norm].work(p->k, &a, p->o.threads),
                              p->o.target->align);
    free(t);
    for (size_t i = 0; i < p->ps->n_p; i++)
        if (p->ps->p[i].box.replicas > 1 && p->opt_work < LF_TENSOR_SCRATCH * sizeof(float))
            p->opt_work = LF_TENSOR_SCRATCH * sizeof(float);
    return 0;
}

/* What making the 8-bit copies of weights needs. */
static void refresh_work(lf_plan *p)
{
    for (size_t i = 0; i < p->ps->n_g; i++) {
        struct lf_k_quantise a;
        if (!lf_store_quantise(p->ps, &p->ps->g[i], &a))
            continue;
        const size_t n = lf_align_up(lf_kernel_table[LF_KID_quantise].work(p->k, &a, p->o.threads),
                                     p->o.target->align);
        p->refresh_work = n > p->refresh_work ? n : p->refresh_work;
    }
}

void lf_plan_count_bytes(lf_plan *p)
{
    struct lf_plan_bytes *b = &p->bytes;
    const lf_pstore *ps = p->ps;
    *b = (struct lf_plan_bytes){
        .params = ps->bytes[LF_P_MASTER] + ps->bytes[LF_P_COPY] + ps->pack_bytes,
        .grads = ps->bytes[LF_P_GRAD],
        .optimizer = ps->bytes[LF_P_M] + ps->bytes[LF_P_V] + ps->bytes[LF_P_EMA],
        .inputs = p->input_bytes,
        .state = p->state_bytes,
        .arena = p->arena_bytes,
        .offloaded = lf_pstore_host_bytes(ps)};
    for (int k = LF_P_Q; k < LF_P_ALL; k++)
        b->params += ps->bytes[k];
    for (size_t i = 0; i < p->n_c; i++) { /* by the chain that sets the arena's height */
        const struct lf_chain *c = &p->c[i];
        size_t saved, live;
        lf_plan_live(p, c, &saved, &live);
        b->largest_live = live > b->largest_live ? live : b->largest_live;
        b->saved = saved > b->saved ? saved : b->saved;
        b->workspace = c->work_max > b->workspace ? c->work_max : b->workspace;
    }
    if (p->opt_work > b->workspace)
        b->workspace = p->opt_work;
    if (p->refresh_work > b->workspace)
        b->workspace = p->refresh_work;
    if (b->workspace >
        b->arena - b->saved) /* the largest workspace and the most saved bytes need not meet */
        b->workspace = b->arena - b->saved;
    b->transient = b->arena - b->saved - b->workspace;
    b->total = b->params + b->grads + b->optimizer + b->inputs + b->state + b->arena;
}

int lf_plan_finish(lf_plan *p, lf_err *err)
{
    if (p->finished)
        return lf_fail(err, LF_EINVAL, "plan: finished already");
    if (p->ps->back)
        return lf_fail(err, LF_EBUSY, "plan: the store is bound to an executor");
    int rc = lf_plan_chunks(p, err);
    if (rc == 0)
        rc = check_elsewhere(p->ps, err);
    if (rc != 0)
        return rc;
    settle_store(p);
    const bool late = p->ranks.zero >= 2; /* buckets are what parts leave of the gradients */
    rc = late ? 0 : lf_plan_buckets(p, err);
    if (rc == 0)
        rc = lf_plan_shard(p, err);
    if (rc == 0 && late)
        rc = lf_plan_buckets(p, err);
    if (rc != 0)
        return rc;
    lay_inputs(p);
    refresh_work(p);
    rc = optimizer_work(p, err);
    for (size_t i = 0; i < p->n_c && rc == 0; i++) {
        rc = lf_plan_workspaces(p, &p->c[i], err);
        if (rc == 0)
            rc = lf_plan_place_chain(p, &p->c[i], err);
    }
    if (rc == 0)
        rc = lf_plan_place_arena(p, err);
    if (rc != 0)
        return rc;
    lf_plan_count_bytes(p);
    p->finished = true;
    return 0;
}

int lf_plan_bytes(const lf_plan *p, struct lf_plan_bytes *out)
{
    if (!p->finished)
        return LF_EINVAL;
    *out = p->bytes;
    return 0;
}
