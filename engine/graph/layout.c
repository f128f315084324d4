/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph over whole tensors to that of one rank of the tensor axis. Nodes are taken over in
 * their order. Their shape rules make local outputs of local inputs, and so check once more that
 * everything fits. What changes beside shapes is what counts heads or columns. On the context axis
 * graphs have a rank's rows already, and attention gets nodes around it (layout_context.c).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

/* Divided columns, in the order of the members of a group: of `all` columns a rank has `own`. */
struct piece {
    int64_t all, own;
};
struct pieces {
    const struct piece *p;
    size_t n;
};

struct local {
    lf_graph *from, *to;
    int32_t *map;           /* per tensor of from: the one of to; 0: none yet */
    int32_t *rows;          /* per input: this rank's rows of it; 0: none yet */
    struct pieces *columns; /* per tensor of from with divided columns, and of params with rows */
};

static int32_t map_tensor(struct local *l, int32_t t);

static struct piece *new_pieces(struct local *l, int32_t t, size_t n)
{
    struct piece *p = lf_arena_alloc(l->to->arena, n, sizeof *p, &l->to->err);
    l->columns[t] = (struct pieces){p, p ? n : 0};
    return p;
}

/* Of a group's members. */
static void param_pieces(struct local *l, int32_t t, const struct lf_pgroup *g)
{
    const lf_pstore *ps = l->from->ps;
    const bool matrix = g->ndim > 1, rows = g->place == LF_PL_ROWS && matrix;
    struct piece *p = new_pieces(l, t, (size_t)g->count);
    for (int32_t k = 0; p && k < g->count; k++) {
        const struct lf_param *q = &ps->p[g->first + k];
        const int dim = rows ? g->ndim - 2 : g->ndim - 1;
        p[k] = (struct piece){q->d.dims[dim], q->box.hi[dim] - q->box.lo[dim]};
    }
}

static int32_t map_param(struct local *l, int32_t t)
{
    const struct lf_tensor *x = &l->from->t[t];
    const struct lf_pgroup *g = &l->from->ps->g[x->group];
    const int32_t i = lf_tensor_new(l->to, (enum lf_dtype)x->dtype, LF_ROLE_PARAM, g->rows, g->cols,
                                    "%s", x->name);
    if (!i)
        return 0;
    l->to->t[i].group = x->group;
    l->to->t[i].fixed = true;
    if (g->place != LF_PL_SAME)
        param_pieces(l, t, g);
    return i;
}

/* Columns [col, col + cols) of a tensor in pieces; *first becomes the first piece, *at the first
 * local column. */
static int find_pieces(struct local *l, int32_t parent, int64_t col, int64_t cols, size_t *first,
                       int64_t *at, struct pieces *out)
{
    const struct pieces *of = &l->columns[parent];
    int64_t all = 0;
    *at = 0;
    for (*first = 0; *first < of->n && all < col; (*first)++) {
        all += of->p[*first].all;
        *at += of->p[*first].own;
    }
    size_t end = *first;
    int64_t sum = 0;
    while (end < of->n && sum < cols)
        sum += of->p[end++].all;
    *out = (struct pieces){of->p + *first, end - *first};
    return all == col && sum == cols
               ? 0
               : lf_graph_fail(l->to, LF_ENOTSUP,
                               "columns [%lld, +%lld) of %s are cut through the part of a rank",
                               (long long)col, (long long)cols, l->from->t[parent].name);
}

static int64_t own_columns(const struct pieces *p)
{
    int64_t n = 0;
    for (size_t k = 0; k < p->n; k++)
        n += p->p[k].own;
    return n;
}

static int32_t map_view(struct local *l, int32_t t)
{
    const struct lf_tensor *x = &l->from->t[t];
    const int32_t parent = map_tensor(l, x->parent);
    int64_t at = x->col, cols = x->cols;
    size_t first;
    if (parent && l->columns[x->parent].n) {
        if (find_pieces(l, x->parent, x->col, x->cols, &first, &at, &l->columns[t]))
            return 0;
        cols = own_columns(&l->columns[t]);
    }
    return lf_tensor_view(l->to, parent, at, cols);
}

/* A tensor whose parts nodes write: the width of a part is that of what is added to it, or copied
 * (adapter.c). */
static int32_t map_parts(struct local *l, int32_t t)
{
    const lf_graph *g = l->from;
    size_t n = 0, k = 0;
    int64_t cols = 0;
    for (size_t i = 1; i < g->n_t; i++)
        n += g->t[i].parent == t && g->t[i].part;
    struct piece *p = n ? new_pieces(l, t, n) : NULL;
    bool divided = false;
    for (size_t i = 1; p && i < g->n_t; i++) {
        if (g->t[i].parent != t || !g->t[i].part)
            continue;
        const struct lf_node *w = &g->n[g->t[i].producer];
        const int32_t old = w->op == LF_OP_LINEAR ? w->in[LINEAR_RES] : w->in[0],
                      here = map_tensor(l, old);
        p[k] = (struct piece){g->t[i].cols, l->to->t[here].cols};
        divided = divided || l->columns[old].n;
        cols += p[k++].own;
    }
    if (!divided)
        l->columns[t].n = 0;
    return cols ? lf_tensor_new(l->to, LF_F32, LF_ROLE_ACT, g->t[t].rows, cols, "%s", g->t[t].name)
                : 0;
}

/* How many heads of as many channels as before a rank has. */
static int32_t own_heads(const struct local *l, int32_t t, int32_t heads)
{
    const int64_t all = l->from->t[t].cols / heads;
    return l->columns[t].n ? (int32_t)(l->to->t[l->map[t]].cols / all) : heads;
}

/* What sequences leave for the mixer of tensor t. */
static int32_t new_slots(struct local *l, int32_t t, int64_t cols)
{
    const struct lf_tensor *x = &l->from->t[t];
    const int32_t to =
        lf_graph_source(l->to, LF_ROLE_STATE, x->name, (enum lf_dtype)x->dtype, x->rows, cols).id;
    l->to->t[to].pinned = x->pinned;
    return to;
}

/* A convolution leaves as much as it has channels. */
static int32_t map_conv_slots(struct local *l, int32_t t, int32_t of)
{
    const int64_t here = map_tensor(l, of) ? l->to->t[l->map[of]].cols : 0;
    return here ? new_slots(l, t, l->from->t[t].cols * here / l->from->t[of].cols) : 0;
}

/* What a scan leaves follows from its heads; key heads may stay whole where the others are
 * divided. */
static int32_t map_scan_slots(struct local *l, int32_t t, const struct lf_node *n)
{
    const int32_t q = n->in[SCAN_Q], v = n->in[SCAN_V];
    struct lf_attr own = n->a;
    if (!map_tensor(l, q) || !map_tensor(l, v))
        return 0;
    own.groups = own_heads(l, q, n->a.groups);
    own.heads = own_heads(l, v, n->a.heads);
    return new_slots(l, t, lf_scan_own_slot(l->from, n, &own));
}

/* Pages that this graph reads alone have the heads of its queries: there are as many of both. */
static int32_t map_read_cache(struct local *l, int32_t t, const struct lf_node *n)
{
    const struct lf_tensor *x = &l->from->t[t];
    const int32_t q = n->in[PAGED_Q], here = map_tensor(l, q);
    if (!here || n->a.groups != n->a.heads || l->from->t[q].cols != x->cols)
        return 0;
    l->columns[t] = l->columns[q];
    return lf_graph_source(l->to, LF_ROLE_STATE, x->name, (enum lf_dtype)x->dtype, x->rows,
                           l->to->t[here].cols)
        .id;
}

/* Pages of keys and values have the heads of what is written to them. */
static int32_t map_cache(struct local *l, int32_t t)
{
    const lf_graph *g = l->from;
    const struct lf_tensor *x = &g->t[t];
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        if (n->op == LF_OP_CONV && n->in[CONV_STATE] == t)
            return map_conv_slots(l, t, n->in[CONV_X]);
        if (n->op == LF_OP_SCAN && n->in[SCAN_STATE] == t)
            return map_scan_slots(l, t, n);
        if (n->op != LF_OP_KV_WRITE)
            continue;
        if (g->t[n->in[KVW_KP]].parent == t) /* one row of both, which every rank keeps whole */
            return lf_graph_source(l->to, LF_ROLE_STATE, x->name, (enum lf_dtype)x->dtype, x->rows,
                                   x->cols)
                .id;
        if (n->in[KVW_KP] != t && n->in[KVW_VP] != t)
            continue;
        const int32_t of = n->in[n->in[KVW_KP] == t ? KVW_K : KVW_V], here = map_tensor(l, of);
        if (!here)
            return 0;
        l->columns[t] = l->columns[of];
        return lf_graph_source(l->to, LF_ROLE_STATE, x->name, (enum lf_dtype)x->dtype, x->rows,
                               l->to->t[here].cols)
            .id;
    }
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        const int32_t here =
            n->op == LF_OP_ATTN_PAGED && (n->in[PAGED_KP] == t || n->in[PAGED_VP] == t)
                ? map_read_cache(l, t, n)
                : 0;
        if (here)
            return here;
    }
    lf_graph_fail(l->to, LF_ENOTSUP,
                  "state %s has no local shape in a layout that divides matrices", x->name);
    return 0;
}

static int32_t make_tensor(struct local *l, int32_t t)
{
    const struct lf_tensor *x = &l->from->t[t];
    if (x->parent)
        return map_view(l, t);
    switch (x->role) {
    case LF_ROLE_PARAM:
        return map_param(l, t);
    case LF_ROLE_ACT:
        return map_parts(l, t);
    case LF_ROLE_STATE:
        return map_cache(l, t);
    default: {
        const int64_t parts =
            x->cut && l->from->ps->layout.sequence ? l->from->ps->layout.tensor : 1;
        const int32_t i =
            lf_tensor_new(l->to, (enum lf_dtype)x->dtype, (enum lf_tensor_role)x->role,
                          x->rows / parts, x->cols, "%s", x->name);
        if (x->rows % parts)
            lf_graph_fail(l->to, LF_EINVAL, "the rows of %s do not divide among the ranks (tensor)",
                          x->name);
        if (i) {
            l->to->t[i].fixed = x->fixed;
            l->to->t[i].cut = x->cut;
            l->to->t[i].whole = x->whole;
            l->to->t[i].fill = x->fill;
            l->to->t[i].ctx = x->ctx;
        }
        return i;
    }
    }
}

static int32_t map_tensor(struct local *l, int32_t t)
{
    if (t && !l->map[t] && !l->to->err.rc)
        l->map[t] = make_tensor(l, t);
    return l->map[t];
}

/* ---- rows ---- */

static bool by_place(const lf_graph *g, int32_t t, enum lf_place place)
{
    return g->t[lf_root_of(g, t)].place[LF_AXIS_TENSOR] == place;
}

static bool by_rows(const lf_graph *g, int32_t t)
{
    return by_place(g, t, LF_PL_ROWS);
}

/* The two operands of a node that are of rows; NULL: it has none. */
static const int8_t *row_slots(const struct lf_node *n)
{
    static const int8_t drop[] = {DROP_SAMPLE, DROP_POS}, add[] = {0, 1},
                        embed[] = {EMBED_TOKEN, EMBED_POS};
    return n->op == LF_OP_DROPOUT ? drop
           : n->op == LF_OP_ADD   ? add
           : n->op == LF_OP_EMBED ? embed
                                  : NULL;
}

/* What is whole on each rank, of a node whose value has some rows: this rank's rows of it. */
static void own_rows(struct local *l, const struct lf_node *n, int32_t in[])
{
    const int8_t *slot = row_slots(n);
    if (!slot || !by_rows(l->from, n->out[0]))
        return;
    for (int k = 0; k < 2; k++) {
        const int32_t t = n->in[slot[k]];
        if (!t || !lf_place_spreads(l->from, t))
            continue;
        if (!l->rows[t]) {
            const int32_t i = lf_node_new(l->to, LF_OP_TP_ROWS, &in[slot[k]], 1, NULL);
            l->rows[t] = i < 0 ? 0 : l->to->n[i].out[0];
        }
        in[slot[k]] = l->rows[t];
    }
}

/* ---- attributes ---- */

static int refuse_cut(struct local *l, const struct lf_node *n, int32_t t, int32_t heads)
{
    const int64_t all = l->from->t[t].cols / heads, own = l->to->t[l->map[t]].cols;
    return !l->columns[t].n || (own % all == 0 && own)
               ? 0
               : lf_graph_fail(l->to, LF_ENOTSUP,
                               "%s reads %s: a rank has %lld of %lld columns, "
                               "which is no whole number of heads",
                               lf_op_table[n->op].name, l->from->t[t].name, (long long)own,
                               (long long)(all * heads));
}

/* The input that says where rows of the context axis are; 0: there is none. */
static int32_t row_blocks(struct local *l)
{
    for (size_t i = 1; i < l->from->n_t; i++)
        if (l->from->t[i].role == LF_ROLE_INPUT &&
            strcmp(l->from->t[i].name, LF_CONTEXT_BLOCKS) == 0)
            return map_tensor(l, (int32_t)i);
    return 0;
}

/* Over keys of documents, or of pages. */
static int local_attention(struct local *l, const struct lf_node *n, int32_t in[],
                           struct lf_attr *a)
{
    const bool paged = n->op == LF_OP_ATTN_PAGED;
    const int32_t q = n->in[paged ? PAGED_Q : ATTN_Q], k = n->in[paged ? PAGED_KP : ATTN_K],
                  v = n->in[paged ? PAGED_VP : ATTN_V];
    const int alibi = paged ? PAGED_ALIBI : ATTN_ALIBI, all = a->heads;
    if (refuse_cut(l, n, q, a->heads) || refuse_cut(l, n, k, a->groups) ||
        refuse_cut(l, n, v, a->groups))
        return l->to->err.rc;
    a->heads = own_heads(l, q, a->heads);
    a->groups = own_heads(l, k, a->groups);
    if (a->heads != all)
        a->head0 = l->from->ps->layout.tensor_rank * a->heads;
    if (!paged && !a->whole && l->from->ps->layout.context > 1 &&
        lf_context_enter(l->to, in, a, row_blocks(l)) == 0)
        a->head0 += a->sink0;
    if (n->in[alibi] && a->heads != all)
        in[alibi] = lf_tensor_view(l->to, in[alibi], a->head0, a->heads);
    return l->to->err.rc;
}

/* Heads of a scan; a constant decay is that of all. */
static int local_scan(struct local *l, const struct lf_node *n, int32_t in[], struct lf_attr *a)
{
    const int32_t q = n->in[SCAN_Q], v = n->in[SCAN_V], all = a->heads;
    const struct lf_tensor *g = &l->from->t[n->in[SCAN_G]];
    if (refuse_cut(l, n, q, a->groups) || refuse_cut(l, n, v, a->heads))
        return l->to->err.rc;
    a->groups = own_heads(l, q, a->groups);
    a->heads = own_heads(l, v, a->heads);
    if (a->heads != all && g->role == LF_ROLE_CONST) {
        const int64_t cols = g->cols / all * a->heads;
        in[SCAN_G] =
            lf_tensor_view(l->to, in[SCAN_G], l->from->ps->layout.tensor_rank * cols, cols);
    }
    return 0;
}

/* Every rank but the last has as many columns. */
static int local_join(struct local *l, int32_t x, struct lf_attr *a)
{
    const struct lf_layout *of = &l->from->ps->layout;
    const int64_t all = l->from->t[x].cols, own = l->to->t[l->map[x]].cols,
                  each = lf_vocabulary_rows(all, of->tensor);
    if (own != (of->tensor_rank < of->tensor - 1 ? each : all - each * (of->tensor - 1)))
        return lf_graph_fail(l->to, LF_ENOTSUP, "the columns of %s are not those of a vocabulary",
                             l->from->t[x].name);
    a->v_all = all;
    a->cols = (int32_t)each;
    return 0;
}

/* The first local row of a member of a weight that begins at row `row`. */
static int32_t own_row(const struct local *l, int32_t w, int32_t row)
{
    const struct pieces *p = &l->columns[w];
    int64_t all = 0, own = 0;
    for (size_t k = 0; k < p->n && all < row; k++) {
        all += p->p[k].all;
        own += p->p[k].own;
    }
    return p->n ? (int32_t)own : row;
}

/* Which rows of the vocabulary a weight has here. It is a parameter, or made of one. */
static void vocabulary(const struct local *l, int32_t w, struct lf_attr *a)
{
    const lf_graph *g = l->from;
    if (w && g->t[w].role == LF_ROLE_ACT)
        w = g->n[g->t[w].producer].in[0];
    if (!w || g->ps->g[g->t[w].group].place != LF_PL_ROWS)
        return;
    a->v0 = g->ps->p[g->ps->g[g->t[w].group].first].box.lo[0];
    if (a->v_all < g->t[w].rows) /* an embedding of more tokens than it has rows */
        a->v_all = g->t[w].rows;
}

/* Does a node make a partial sum to which another rank adds the bias? */
static bool elsewhere(const struct local *l, const struct lf_node *n)
{
    return by_place(l->from, n->out[0], LF_PL_PARTIAL) && l->from->ps->layout.tensor_rank > 0;
}

/* Changes the attributes, and inputs, of a node whose inputs are mapped. */
static int local_attributes(struct local *l, const struct lf_node *n, int32_t in[],
                            struct lf_attr *a)
{
    const int32_t x = n->in[0];
    if (n->op == LF_OP_NORM && n->in[NORM_TOTAL]) /* a part of one whole row */
        return 0;
    switch (n->op) {
    case LF_OP_NORM:
    case LF_OP_ROPE:
    case LF_OP_HEADS_JOIN:
    case LF_OP_SCAN_GATE:
        if (refuse_cut(l, n, x, a->heads))
            return l->to->err.rc;
        a->heads = own_heads(l, x, a->heads);
        return 0;
    case LF_OP_COL_GATE:
        if (a->heads && refuse_cut(l, n, x, a->heads))
            return l->to->err.rc;
        a->heads = a->heads ? own_heads(l, x, a->heads) : 0;
        return 0;
    case LF_OP_HEADS_LINEAR:
        if (refuse_cut(l, n, x, a->heads))
            return l->to->err.rc;
        a->heads = own_heads(l, x, a->heads);
        a->pos_offset = own_row(l, n->in[HEADL_W], a->pos_offset);
        return 0;
    case LF_OP_ATTN:
    case LF_OP_ATTN_PAGED:
        return local_attention(l, n, in, a);
    case LF_OP_SCAN:
        return local_scan(l, n, in, a);
    case LF_OP_MOE_STATS:
        return l->from->ps->layout.context > 1 ? lf_context_stats(l->to, in, a, row_blocks(l)) : 0;
    case LF_OP_MOE_KEEP:
        return l->from->ps->layout.context > 1 ? lf_context_keep(l->to, in, row_blocks(l)) : 0;
    case LF_OP_KV_WRITE:
        if (refuse_cut(l, n, x, a->groups))
            return l->to->err.rc;
        a->groups = own_heads(l, x, a->groups);
        return 0;
    case LF_OP_TP_JOIN:
        return local_join(l, x, a);
    case LF_OP_DROPOUT:
        if (l->columns[x].n > 1)
            return lf_graph_fail(l->to, LF_ENOTSUP, "dropout of %s, which has divided members",
                                 l->from->t[x].name);
        if (l->columns[x].n) {
            a->cols = (int32_t)l->columns[x].p->all;
            a->col0 = (int32_t)(l->from->ps->layout.tensor_rank * l->columns[x].p->own);
        }
        return 0;
    case LF_OP_TP_OWN:
        a->sequence = true;
        return 0;
    case LF_OP_DORA_NORM:
        a->pos_offset = own_row(l, n->in[DNORM_W], a->pos_offset);
        return 0;
    case LF_OP_DORA:
        a->no_bias = elsewhere(l, n);
        if (n->in[DORA_BIAS])
            a->pos_offset = own_row(l, n->in[DORA_BIAS], a->pos_offset);
        return 0;
    case LF_OP_EMBED:
        vocabulary(l, n->in[EMBED_WTE], a);
        a->no_bias = elsewhere(l, n);
        return 0;
    case LF_OP_XENT:
    case LF_OP_LOGP: {
        const int64_t real = a->v_real;
        vocabulary(l, n->in[XENT_W], a);
        if (!a->v_all)
            return 0;
        a->v_all = real;
        a->v_real = real - a->v0 < 0 ? 0 : real - a->v0;
        if (a->v_real > l->to->t[in[XENT_W]].rows)
            a->v_real = l->to->t[in[XENT_W]].rows;
        return 0;
    }
    case LF_OP_LINEAR:
    case LF_OP_MOE_LINEAR:
        a->no_bias = elsewhere(l, n);
        return 0;
    default:
        return 0;
    }
}

/* ---- nodes ---- */

/* The divided columns of an output, or the rows of a weight. */
static void out_pieces(struct local *l, const struct lf_node *n, int32_t out)
{
    const lf_graph *g = l->from;
    if (n->op == LF_OP_TP_OWN)
        param_pieces(l, out, &g->ps->g[n->a.at]);
    if (!by_place(g, out, LF_PL_COLS) || l->columns[out].n)
        return;
    const bool product = n->op == LF_OP_LINEAR || n->op == LF_OP_MOE_LINEAR;
    const int slot = product                ? LINEAR_W
                     : n->op == LF_OP_EMBED ? EMBED_WPE
                     : n->op == LF_OP_SCAN  ? SCAN_V
                     : n->op == LF_OP_SCAN_GATE && out != n->out[SGATE_G] && n->in[SGATE_B]
                         ? SGATE_B
                         : 0;
    l->columns[out] = l->columns[n->in[slot]];
}

static void keep_flags(struct local *l, int32_t from, int32_t to)
{
    const struct lf_tensor *x = &l->from->t[from];
    struct lf_tensor *y = &l->to->t[to];
    y->pinned = y->pinned || x->pinned;
    y->is_output = x->is_output;
    y->cut = x->cut;
    y->dense_only = x->dense_only;
    y->part = x->part;
    y->out_name = x->out_name ? lf_arena_strdup(l->to->arena, x->out_name, &l->to->err) : NULL;
}

/* A node whose output is there already. */
static int32_t copy_part(struct local *l, const struct lf_node *n, const int32_t in[],
                         const struct lf_attr *a)
{
    const int32_t out = map_tensor(l, n->out[0]),
                  i = out ? lf_node_raw(l->to, (enum lf_op)n->op, l->to->block) : -1;
    if (i < 0)
        return -1;
    memcpy(l->to->n[i].in, in, sizeof l->to->n[i].in);
    l->to->n[i].a = *a;
    l->to->n[i].out[0] = out;
    l->to->t[out].producer = i;
    return i;
}

static int refuse_output(struct local *l, int32_t t)
{
    const int place = l->from->t[lf_root_of(l->from, t)].place[LF_AXIS_TENSOR];
    return !l->from->t[t].is_output || place <= LF_PL_COPY ||
                   (l->from->t[t].cut && place == LF_PL_ROWS)
               ? 0
               : lf_graph_fail(l->to, LF_ENOTSUP,
                               "output %s is %s on the tensor axis: no rank has it whole",
                               l->from->t[t].out_name, lf_place_name((enum lf_place)place));
}

/* What a node made, as the nodes behind it read it. */
static int32_t own_result(struct local *l, const struct lf_node *n, int32_t out,
                          const struct lf_attr *a)
{
    return n->op == LF_OP_ATTN && a->sinks ? lf_context_leave(l->to, out, a->sinks) : out;
}

static int copy_node(struct local *l, const struct lf_node *n)
{
    int32_t in[LF_MAX_IN];
    struct lf_attr a = n->a;
    for (int k = 0; k < LF_MAX_IN; k++)
        in[k] = map_tensor(l, n->in[k]);
    l->to->block = n->block;
    own_rows(l, n, in);
    if (l->to->err.rc || local_attributes(l, n, in, &a))
        return l->to->err.rc;
    const bool part = l->from->t[n->out[0]].part;
    const enum lf_op op =
        n->op == LF_OP_ATTN && in[ATTN_BLOCKS] ? LF_OP_CP_ATTN : (enum lf_op)n->op;
    const int32_t i = part ? copy_part(l, n, in, &a) : lf_node_new(l->to, op, in, LF_MAX_IN, &a);
    for (int k = 0; k < LF_MAX_OUT && i >= 0; k++) {
        if (!n->out[k] || !l->to->n[i].out[k]) /* another node makes it */
            continue;
        l->map[n->out[k]] = l->to->n[i].out[k];
        if (k == 0)
            l->map[n->out[k]] = own_result(l, n, l->to->n[i].out[k], &a);
        if (refuse_output(l, n->out[k]))
            return l->to->err.rc;
        out_pieces(l, n, n->out[k]);
        keep_flags(l, n->out[k], l->map[n->out[k]]);
    }
    if (n->op == LF_OP_XENT)
        l->to->xent = i;
    return l->to->err.rc;
}

static bool of_parts(const lf_graph *g, int32_t t)
{
    return g->t[t].producer >= 0 && g->n[g->t[t].producer].op == LF_OP_NORM_PART;
}

/* With sequence the stream has rows: what enters and leaves it gathers and scatters them. A value
 * of which every rank has all rows, such as the weights of experts, enters as it is. Lengths of
 * rows of a weight are one row, which leaves as it is, and so do sums of parts of rows, of which
 * every rank has all rows. */
static void set_sequence(struct local *l, struct lf_node *n)
{
    const bool on = l->from->ps->layout.sequence;
    if (n->op == LF_OP_TP_LEAVE)
        n->a.sequence =
            on && !n->a.whole && l->from->t[n->in[0]].rows > 1 && !of_parts(l->from, n->in[0]);
    if (n->op == LF_OP_TP_ENTER)
        n->a.sequence = on && by_rows(l->from, n->in[0]);
}

static int copy_nodes(struct local *l)
{
    lf_graph *g = l->from;
    int rc = 0;
    if (g->ps->layout.tensor > 1)
        lf_place_sources(g, LF_AXIS_TENSOR);
    for (size_t i = 0; i < g->n_n && rc == 0; i++) {
        set_sequence(l, &g->n[i]);
        if (g->ps->layout.tensor > 1)
            rc = lf_place_node(g, &g->n[i], LF_AXIS_TENSOR);
        if (rc == 0)
            rc = copy_node(l, &g->n[i]);
    }
    for (size_t i = 0; i < g->n_seed && rc == 0; i++) {
        rc = lf_grow(&l->to->seed, &l->to->cap_seed, l->to->n_seed, sizeof *l->to->seed,
                     &l->to->err);
        if (rc == 0)
            l->to->seed[l->to->n_seed++] =
                (struct lf_seed){map_tensor(l, g->seed[i].value), map_tensor(l, g->seed[i].grad)};
    }
    for (size_t i = 1; i < g->n_t && rc == 0; i++) /* whoever writes an input need not know */
        if (g->t[i].role == LF_ROLE_INPUT && !g->t[i].parent)
            rc = map_tensor(l, (int32_t)i) ? 0 : l->to->err.rc;
    for (size_t i = 0; i < g->n_cut && rc == 0; i++) {
        const char *name = lf_arena_strdup(l->to->arena, g->cut[i].grad_name, &l->to->err);
        rc = lf_grow(&l->to->cut, &l->to->cap_cut, l->to->n_cut, sizeof *l->to->cut, &l->to->err);
        if (rc == 0)
            l->to->cut[l->to->n_cut++] = (struct lf_cut){map_tensor(l, g->cut[i].value), name};
    }
    l->to->moe_total = map_tensor(l, g->moe_total);
    if (g->moe_total_name)
        l->to->moe_total_name = lf_arena_strdup(l->to->arena, g->moe_total_name, &l->to->err);
    l->to->block = -1;
    return rc;
}

int lf_layout_localise(lf_graph *g, lf_err *err)
{
    struct local l = {.from = g, .to = lf_graph_create(g->ps, g->name, err)};
    int rc = l.to ? 0 : LF_ENOMEM;
    l.map = lf_calloc(g->n_t, sizeof *l.map, err);
    l.rows = lf_calloc(g->n_t, sizeof *l.rows, err);
    l.columns = lf_calloc(g->n_t, sizeof *l.columns, err);
    if (rc == 0)
        rc = l.map && l.rows && l.columns ? copy_nodes(&l) : LF_ENOMEM;
    free(l.map);
    free(l.rows);
    free(l.columns);
    if (rc == 0) { /* the contents change places, and what was global goes */
        const lf_graph whole = *g;
        *g = *l.to;
        *l.to = whole;
    } else if (lf_graph_check(g, err) == 0 && l.to) {
        lf_graph_check(l.to, err);
    }
    lf_graph_destroy(l.to);
    return rc;
}
