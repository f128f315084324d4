/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement of a chain: workspaces are asked of the kernels, tensors and workspaces become
 * intervals over the chain's nodes, forward then backward, and get offsets. With one slot, saved
 * and transient tensors share one area, since the backward follows its forward at once. With
 * several, and in chunks of a cut model, what is saved lies apart, once per slot, and all slots
 * share the transients; so do all chunks that are there together. Windows of divided weights and
 * gradients (plan_window.c) are transients.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/graph/experts.h"
#include "engine/graph/priv.h"

const char *lf_node_text(const lf_graph *g, const struct lf_node *n, char *buf, size_t cap)
{
    size_t len = (size_t)snprintf(buf, cap, "%s (", lf_op_table[n->op].name);
    for (int k = 0; k < LF_MAX_IN + LF_MAX_OUT && len < cap; k++) {
        int32_t t = k < LF_MAX_IN ? n->in[k] : n->out[k - LF_MAX_IN];
        if (k == LF_MAX_IN)
            len += (size_t)snprintf(buf + len, cap - len, ") ->");
        if (t && len < cap)
            len += (size_t)snprintf(buf + len, cap - len, " %s [%lld, %lld]", g->t[t].name,
                                    (long long)g->t[t].rows, (long long)g->t[t].cols);
    }
    return buf;
}

/* Any address: kernels' check and work functions look at presence, never behind it. */
static void *stand_in(const struct lf_bind *b, int32_t t)
{
    (void)b;
    return t ? (void *)(uintptr_t)4096 : NULL;
}

static const void *packed_stand_in(const struct lf_bind *b, int32_t param)
{
    const lf_plan *p = b->user;
    if (b->g->t[param].role != LF_ROLE_PARAM)
        return NULL;
    return p->ps->g[b->g->t[param].group].need_pack ? (const void *)(uintptr_t)4096 : NULL;
}

struct lf_bind lf_plan_shapes(const lf_plan *p, const struct lf_chain *c)
{
    struct lf_bind b = {.g = c->g,
                        .numeric = p->o.mode,
                        .ptr = stand_in,
                        .rec = (void *)(uintptr_t)4096,
                        .with = &p->with,
                        .adamw = &p->adamw};
    memcpy(&b.user, &p, sizeof p); /* handed back as const by packed_stand_in */
    if (c->o.packed)
        b.packed = packed_stand_in;
    return b;
}

int lf_plan_workspaces(lf_plan *p, struct lf_chain *c, lf_err *err)
{
    struct lf_bind b = lf_plan_shapes(p, c);
    union {
        struct lf_k_attn_bwd largest;
        char bytes[1024];
    } args;
    char text[600], need[32], most[32];
    c->work_off = lf_calloc(c->g->n_n + 1, sizeof *c->work_off, err);
    c->work_bytes = lf_calloc(c->g->n_n + 1, sizeof *c->work_bytes, err);
    if (!c->work_off || !c->work_bytes)
        return LF_ENOMEM;
    for (size_t i = 0; i < c->g->n_n; i++) {
        const struct lf_node *n = &c->g->n[i];
        const struct lf_op_row *row = &lf_op_table[n->op];
        const struct lf_kernel_row *kr = &lf_kernel_table[row->kernel];
        memset(&args, 0, sizeof args);
        if (kr->args_bytes > sizeof args)
            LF_BUG("arguments of %s are larger than planned for", kr->name);
        if (row->emit(&b, n, &args))
            return lf_fail(err, LF_EINVAL, "graph %s: operands of %s do not fit its kernel",
                           c->g->name, lf_node_text(c->g, n, text, sizeof text));
        c->work_bytes[i] = lf_align_up(kr->work(p->k, &args, p->o.threads), p->o.target->align);
        if (c->work_bytes[i] > p->o.target->max_workspace)
            return lf_fail(err, LF_EINVAL,
                           "too many tokens at once: an operation of graph %s needs %s of "
                           "workspace, target %s allows %s; take a smaller micro_batch "
                           "(micro_tokens, step_rows), seq_length or max_patches; it is %s",
                           c->g->name, lf_fmt_bytes(need, sizeof need, c->work_bytes[i]),
                           p->o.target->name,
                           lf_fmt_bytes(most, sizeof most, p->o.target->max_workspace),
                           lf_node_text(c->g, n, text, sizeof text));
        lf_kernel_set_work(row->kernel, &args, c->work_bytes[i] ? (void *)(uintptr_t)4096 : NULL,
                           c->work_bytes[i]);
        if (kr->check(p->k, &args) != LF_K_OK)
            return lf_fail(err, LF_ENOTSUP, "graph %s: kernel %s of %s refuses %s", c->g->name,
                           kr->name, p->k->family, lf_node_text(c->g, n, text, sizeof text));
        c->work_max = c->work_bytes[i] > c->work_max ? c->work_bytes[i] : c->work_max;
    }
    for (size_t k = 0; k < c->n_regions; k++) {
        struct lf_region *r = &c->region[k];
        r->work_bytes = 0;
        for (int32_t i = r->again; i >= 0 && i <= r->again_last; i++)
            r->work_bytes = c->work_bytes[i] > r->work_bytes ? c->work_bytes[i] : r->work_bytes;
    }
    return 0;
}

struct area { /* one list of intervals and where each came from */
    struct lf_interval *iv;
    /* > 0 tensor, or from n_t on window, behind these region; <= 0 workspace of node -tensor */
    int32_t *tensor;
    size_t n;
};

static int area_init(struct area *a, size_t cap, lf_err *err)
{
    a->iv = lf_calloc(cap, sizeof *a->iv, err);
    a->tensor = lf_calloc(cap, sizeof *a->tensor, err);
    return a->iv && a->tensor ? 0 : LF_ENOMEM;
}

static void area_fini(struct area *a)
{
    free(a->iv);
    free(a->tensor);
}

static void area_add(struct area *a, int32_t id, int32_t first, int32_t last, size_t bytes)
{
    a->tensor[a->n] = id;
    a->iv[a->n++] = (struct lf_interval){.first = first, .last = last, .bytes = bytes};
}

static int area_place(struct area *a, bool no_reuse, size_t *height, size_t *lower, lf_err *err)
{
    int rc = lf_place_intervals(a->iv, a->n, height, lower, err);
    if (rc != 0 || !no_reuse)
        return rc;
    *height = 0;
    for (size_t i = 0; i < a->n; i++) {
        a->iv[i].off = *height;
        *height += a->iv[i].bytes;
    }
    return 0;
}

/* What is live across a boundary between segments. */
static size_t live_across(const struct area *a, const lf_graph *g, size_t border)
{
    size_t sum = 0;
    for (size_t i = 0; i < a->n; i++)
        if (a->tensor[i] > 0 && a->tensor[i] < (int32_t)g->n_t && (size_t)a->iv[i].first < border &&
            (size_t)a->iv[i].last >= border)
            sum += a->iv[i].bytes;
    return sum;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void store_offsets(struct lf_chain *c, const struct area *a, size_t base)
{
    const int32_t n_t = (int32_t)c->g->n_t, regions = n_t + (int32_t)c->n_windows;
    for (size_t i = 0; i < a->n; i++)
        if (a->tensor[i] >= regions)
            c->region[a->tensor[i] - regions].work_off = base + a->iv[i].off;
        else if (a->tensor[i] >= n_t)
            c->window[a->tensor[i] - n_t].off = base + a->iv[i].off;
        else if (a->tensor[i] > 0)
            c->g->t[a->tensor[i]].off = base + a->iv[i].off;
        else
            c->work_off[-a->tensor[i]] = base + a->iv[i].off;
}

int lf_plan_place_chain(lf_plan *p, struct lf_chain *c, lf_err *err)
{
    const lf_graph *g = c->g;
    const size_t al = p->o.target->align, slots = (size_t)c->o.slots;
    const bool apart = lf_chain_apart(c);
    struct area saved = {0}, rest = {0};
    size_t h_saved = 0, h_rest = 0, low_saved = 0, low_rest = 0;
    int rc = area_init(&saved, g->n_t, err);
    if (rc == 0)
        rc = area_init(&rest, g->n_t + g->n_n + c->n_windows + c->n_regions, err);
    if (rc != 0)
        goto out;
    for (size_t t = 1; t < g->n_t; t++) {
        const struct lf_tensor *x = &g->t[t];
        if (x->root != (int32_t)t || x->role != LF_ROLE_ACT || x->first < 0)
            continue;
        area_add(apart && x->saved ? &saved : &rest, (int32_t)t, x->first, x->last,
                 lf_align_up(lf_tensor_bytes(x), al));
    }
    for (size_t i = 0; i < g->n_n; i++)
        if (c->work_bytes[i])
            area_add(&rest, -(int32_t)i, (int32_t)i, lf_late_until(c, (int32_t)i),
                     c->work_bytes[i]);
    for (size_t i = 0; i < c->n_windows; i++) {
        const struct lf_window *w = &c->window[i];
        area_add(&rest, (int32_t)(g->n_t + i), w->begin, w->end > w->last ? w->end - 1 : w->last,
                 p->unit[w->unit].bytes[w->kind]);
    }
    for (size_t i = 0; i < c->n_regions; i++)
        if (c->region[i].work_bytes)
            area_add(&rest, (int32_t)(g->n_t + c->n_windows + i), c->region[i].first,
                     c->region[i].last, c->region[i].work_bytes);
    rc = area_place(&saved, p->o.no_reuse, &h_saved, &low_saved, err);
    if (rc == 0)
        rc = area_place(&rest, p->o.no_reuse, &h_rest, &low_rest, err);
    if (rc != 0)
        goto out;
    c->saved_bytes = h_saved;
    c->arena_bytes = h_saved * slots + h_rest;
    c->live_max = low_saved * slots + low_rest;
    c->rest_off = h_saved * slots;
    c->rest_bytes = h_rest;
    c->rest_live = apart ? low_rest : 0;
    c->saved_live = apart
                        ? h_saved * slots
                        : larger(live_across(&rest, g, g->n_fwd), live_across(&rest, g, g->n_bwd));
    store_offsets(c, &saved, 0);
    store_offsets(c, &rest, h_saved * slots);
out:
    area_fini(&saved);
    area_fini(&rest);
    return rc;
}

/* What is there at the same time in one place of the arena: a chain, or all chunks of the same
 * eras, one behind the other, and then their transients. */
struct block {
    uint32_t eras;
    size_t off, bytes, rest; /* rest: of the transients that chunks share */
};

/* Moves a block past bytes [off, off + bytes) of other eras, if it meets them in time and place. */
static bool push(const lf_plan *p, struct block *b, uint32_t eras, size_t off, size_t bytes)
{
    if (!((b->eras & eras) || p->o.no_reuse) || b->off >= off + bytes || off >= b->off + b->bytes)
        return false;
    b->off = off + bytes;
    return true;
}

static bool together(const lf_plan *p, const struct lf_chain *a, const struct lf_chain *b)
{
    return a == b || (!p->o.no_reuse && lf_chains_share(a, b));
}

/* The first chain that shares the transients of chain i; i itself where there is none before. */
static size_t first_of(const lf_plan *p, size_t i)
{
    size_t j = 0;
    while (j < i && !together(p, &p->c[j], &p->c[i]))
        j++;
    return j;
}

static struct block block_of(const lf_plan *p, size_t first)
{
    const struct lf_chain *c = &p->c[first];
    struct block b = {.eras = c->o.eras, .bytes = c->arena_bytes};
    if (!c->o.chunk)
        return b;
    b.bytes = 0;
    for (size_t i = first; i < p->n_c; i++)
        if (together(p, c, &p->c[i])) {
            b.bytes += p->c[i].saved_bytes * (size_t)p->c[i].o.slots;
            b.rest = larger(b.rest, p->c[i].rest_bytes);
        }
    b.bytes += b.rest;
    return b;
}

/* The transients of a chunk lie where those of all lie. */
static void move_rest(struct lf_chain *c, size_t to)
{
    const size_t from = c->rest_off;
    for (size_t t = 1; t < c->g->n_t; t++) {
        struct lf_tensor *x = &c->g->t[t];
        if (x->root == (int32_t)t && x->role == LF_ROLE_ACT && x->first >= 0 && !x->saved)
            x->off = x->off - from + to;
    }
    for (size_t i = 0; i < c->g->n_n; i++)
        if (c->work_bytes[i])
            c->work_off[i] = c->work_off[i] - from + to;
    for (size_t i = 0; i < c->n_regions; i++)
        c->region[i].work_off = c->region[i].work_off - from + to;
    c->rest_off = to;
}

/* The chains of a block get their places in it. */
static void lay_block(lf_plan *p, size_t first, const struct block *b)
{
    size_t at = b->off;
    p->c[first].arena_off = at;
    for (size_t i = first; i < p->n_c && p->c[first].o.chunk; i++) {
        struct lf_chain *c = &p->c[i];
        if (!together(p, &p->c[first], c))
            continue;
        c->arena_off = at;
        at += c->saved_bytes * (size_t)c->o.slots;
        move_rest(c, b->off + b->bytes - b->rest - c->arena_off);
    }
}

/* Blocks that may be alive together get places of their own; the others share. The optimizer runs
 * between chains. What chains with `whole` read comes first. */
int lf_plan_place_arena(lf_plan *p, lf_err *err)
{
    size_t top =
        larger(larger(p->opt_work, p->refresh_work), larger(p->whole_bytes, p->start_bytes));
    struct block *blocks = lf_calloc(p->n_c + 1, sizeof *blocks, err);
    if (!blocks)
        return LF_ENOMEM;
    for (size_t i = 0; i < p->n_c; i++) {
        struct block *b = &blocks[i];
        bool moved = first_of(p, i) == i;
        if (!moved)
            continue;
        *b = block_of(p, i);
        while (moved) { /* few chains: push up past each that it meets */
            moved = push(p, b, p->whole_eras, 0, p->whole_bytes);
            for (size_t j = 0; j < i; j++)
                moved = push(p, b, blocks[j].eras, blocks[j].off, blocks[j].bytes) || moved;
        }
        lay_block(p, i, b);
        top = larger(top, b->off + b->bytes);
    }
    free(blocks);
    p->arena_bytes = top;
    return 0;
}
