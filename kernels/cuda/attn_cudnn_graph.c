/* SPDX-License-Identifier: Apache-2.0
 *
 * The graphs of attention that cuDNN gets, and its plan for one. cuDNN knows attention by the
 * pattern of its operations: product, scale, masks, softmax in pieces, product; backward likewise,
 * from the log-sum-exp that the forward saved. Documents are a batch of `longest` rows each with
 * lengths; where each begins is told by ragged offsets, so packed rows are read and written as they
 * lie.
 *
 * Repeatable bits: the backward's dQ is the product of dS with all keys of a row. The library then
 * keeps dS in its workspace (docs * heads * longest^2 * 2 bytes) and sums in order. Were dQ given
 * as sums of parts in f32, it would add them as they come, and version 9.19 does not even note that
 * as NONDETERMINISTIC; the note is looked at all the same.
 */
#include <string.h>

#include "kernels/cuda/attn_args.h"
#include "kernels/cuda/attn_cudnn.h"
#include "kernels/cuda/attn_ragged.h"

enum {
    SPREAD =
        /* the bound on documents may promise so many times the rows; more would be empty blocks and
         * workspace */
    16,
    WORK_MIB = 2048, /* dS of larger backward passes is not kept */
    FIXED_KIB = 64,
    PER_DOC = 512,
    FIRST_VIRTUAL = 100,
    CONFIGS = 8,
    LONGEST_PATTERN = 48
};

/* ---- which shapes ---- */

/* What forward and backward have in common. */
struct common {
    int64_t rows, heads, groups, d, d_value, docs, longest;
    const void *prefix, *runs, *alibi;
    float softcap, dropped;
    int32_t window;
    bool causal;
    uint8_t type, mode;
};

static bool fits(const struct common *c, struct lf_dnn_shape *out)
{
    const int64_t longest = c->longest > 0 && c->longest < c->rows ? c->longest : c->rows;
    *out = (struct lf_dnn_shape){.docs = c->docs,
                                 .longest = longest,
                                 .rows = c->rows,
                                 .heads = c->heads,
                                 .groups = c->groups,
                                 .d = c->d,
                                 .type = c->type == LF_BF16 ? LF_DNN_BF16 : LF_DNN_F16,
                                 .window = c->window < longest ? c->window : 0};
    if (c->window < 0 && -(int64_t)c->window >= longest)
        out->window = 0; /* all of it is one chunk */
    out->ld[LF_DNN_ID_LSE] = 1;
    return c->mode == LF_FAST && (c->type == LF_BF16 || c->type == LF_F16) && c->causal &&
           !c->prefix && !c->runs && !c->alibi && c->softcap == 0.0f && c->dropped == 0.0f &&
           c->d % 8 == 0 && c->d_value == c->d && c->docs > 0 && longest > 1 &&
           out->window >= 0 && /* there is no mask of chunks */
           (double)c->docs * (double)longest <= (double)SPREAD * (double)c->rows;
}

static bool vectors(const struct lf_dnn_shape *s)
{
    for (int i = LF_DNN_ID_Q; i <= LF_DNN_ROLES; i++)
        if (i != LF_DNN_ID_LSE && s->ld[i] % 8)
            return false;
    return true;
}

bool lf_cudnn_fits_fwd(const struct lf_k_attn_fwd *a, struct lf_dnn_shape *out)
{
    const struct common c = {.rows = a->rows,
                             .heads = a->heads,
                             .groups = a->groups,
                             .d = a->d,
                             .d_value = a->d_value,
                             .docs = a->n_docs,
                             .longest = a->max_doc,
                             .prefix = a->prefix,
                             .runs = a->runs,
                             .alibi = a->alibi,
                             .softcap = a->softcap,
                             .dropped = a->drop.p,
                             .window = a->window,
                             .causal = a->causal,
                             .type = a->x_type,
                             .mode = a->mode};
    const bool ok = fits(&c, out);
    out->ld[LF_DNN_ID_Q] = a->ldq;
    out->ld[LF_DNN_ID_K] = a->ldk;
    out->ld[LF_DNN_ID_V] = a->ldv;
    out->ld[LF_DNN_ID_O] = a->ldo;
    return ok && a->lse && !a->sinks && vectors(out); /* the backward has them in o and lse */
}

bool lf_cudnn_fits_bwd(const struct lf_k_attn_bwd *a, struct lf_dnn_shape *out)
{
    const struct common c = {.rows = a->rows,
                             .heads = a->heads,
                             .groups = a->groups,
                             .d = a->d,
                             .d_value = a->d_value,
                             .docs = a->n_docs,
                             .longest = a->max_doc,
                             .prefix = a->prefix,
                             .runs = a->runs,
                             .alibi = a->alibi,
                             .softcap = a->softcap,
                             .dropped = a->drop.p,
                             .window = a->window,
                             .causal = a->causal,
                             .type = a->x_type,
                             .mode = a->mode};
    const bool ok = fits(&c, out);
    const int64_t ld[] = {a->ldq, a->ldk, a->ldv, a->ldo, 1, a->lddo, a->lddq, a->lddk, a->lddv};
    out->backward = 1;
    memcpy(out->ld + LF_DNN_ID_Q, ld, sizeof ld);
    const double ds =
        (double)out->docs * (double)out->heads * (double)out->longest * (double)(2 * out->longest);
    return ok && vectors(out) && ds < (double)((int64_t)WORK_MIB << 20) &&
           lf_dnn_plan_bytes(out) <= (size_t)WORK_MIB << 20;
}

size_t lf_dnn_own_bytes(const struct lf_dnn_shape *s)
{
    const int64_t roles = s->backward ? LF_DNN_ROLES : LF_DNN_ID_LSE,
                  delta = s->backward ? 4 * s->heads * s->rows + 15 : 0;
    return (size_t)((8 * roles * lf_ragged_pitch(s->docs) + 4 * s->docs + delta + 255) / 256 * 256);
}

/* As seen of version 9.19; a plan that takes more is not used. */
size_t lf_dnn_plan_bytes(const struct lf_dnn_shape *s)
{
    const int64_t padded = (s->longest + 63) / 64 * 64,
                  fixed = ((int64_t)FIXED_KIB << 10) + PER_DOC * s->docs;
    const int64_t ds = 2 * s->docs * s->heads * padded * padded,
                  full = 4 * s->docs * s->heads * s->longest * s->d;
    return (size_t)(fixed + (s->backward ? ds + (s->heads != s->groups ? full : 0) : 0));
}

/* ---- descriptors ---- */

/* A graph that is being made. After a failure every call is void and gives NULL. */
struct graph {
    const struct lf_dnn *lib;
    const struct lf_dnn_shape *s;
    struct lf_dnn_plan *p;
    void *op[LONGEST_PATTERN], *off[LF_DNN_ROLES + 1];
    int64_t n_op, next;
    int rc;
};

static void *make(struct graph *g, int type)
{
    if (!g->rc && g->p->n == LF_DNN_DESCRIPTORS)
        g->rc = -1;
    if (!g->rc)
        g->rc = g->lib->BackendCreateDescriptor(type, &g->p->made[g->p->n]);
    return g->rc ? NULL : g->p->made[g->p->n++];
}

static void set(struct graph *g, void *d, int name, int type, int64_t n, const void *value)
{
    if (!g->rc)
        g->rc = g->lib->BackendSetAttribute(d, name, type, n, value);
}
static void set_enum(struct graph *g, void *d, int name, int type, int value)
{
    set(g, d, name, type, 1, &value);
}
static void set_desc(struct graph *g, void *d, int name, void *value)
{
    if (value)
        set(g, d, name, LF_DNN_T_DESC, 1, &value);
}
static void *finish(struct graph *g, void *d)
{
    if (!g->rc)
        g->rc = g->lib->BackendFinalize(d);
    return d;
}

static void done(struct graph *g, void *op)
{
    finish(g, op);
    if (!g->rc && g->n_op == LONGEST_PATTERN)
        g->rc = -1;
    if (!g->rc)
        g->op[g->n_op++] = op;
}

enum form { VIRTUAL, STORED, SCALAR };
/* id 0: the next free one. */
static void *tensor(struct graph *g, int id, enum form form, int type, const int64_t dim[4],
                    const int64_t stride[4], void *ragged)
{
    void *t = make(g, LF_DNN_TENSOR);
    const int64_t number = id ? id : g->next++, align = 16;
    const bool yes = true;
    set(g, t, LF_DNN_TENSOR_ID, LF_DNN_T_INT64, 1, &number);
    set_enum(g, t, LF_DNN_TENSOR_TYPE, LF_DNN_T_DATA_TYPE, type);
    set(g, t, LF_DNN_TENSOR_ALIGN, LF_DNN_T_INT64, 1, &align);
    set(g, t, LF_DNN_TENSOR_DIMS, LF_DNN_T_INT64, 4, dim);
    set(g, t, LF_DNN_TENSOR_STRIDES, LF_DNN_T_INT64, 4, stride);
    if (form != STORED)
        set(g, t, form == VIRTUAL ? LF_DNN_TENSOR_VIRTUAL : LF_DNN_TENSOR_BY_VALUE, LF_DNN_T_BOOL,
            1, &yes);
    set_desc(g, t, LF_DNN_TENSOR_RAGGED, ragged);
    if (id)
        g->p->used[id] = 1;
    return finish(g, t);
}

static void *vector(struct graph *g, int id, int type, int64_t n)
{
    return tensor(g, id, STORED, type, (int64_t[]){n, 1, 1, 1}, (int64_t[]){1, 1, 1, 1}, NULL);
}
static void *scalar(struct graph *g, int id)
{
    return tensor(g, id, SCALAR, LF_DNN_F32, (int64_t[]){1, 1, 1, 1}, (int64_t[]){1, 1, 1, 1},
                  NULL);
}
/* The library's word for where documents begin in the tensor of a role. */
static void *offsets(struct graph *g, int role)
{
    if (!g->off[role])
        g->off[role] = vector(g, LF_DNN_ID_OFF + role, LF_DNN_I64, g->s->docs + 1);
    return g->off[role];
}

/* Rows of `heads` heads as they lie; across: the two last dimensions change places. */
static void *rows(struct graph *g, int role, int64_t heads, bool across)
{
    const struct lf_dnn_shape *s = g->s;
    const int64_t ld = s->ld[role], S = s->longest, D = s->d;
    return tensor(g, role, STORED, (int)s->type,
                  (int64_t[]){s->docs, heads, across ? D : S, across ? S : D},
                  (int64_t[]){S * ld, D, across ? 1 : ld, across ? ld : 1}, offsets(g, role));
}
/* f32 [heads, rows]. */
static void *per_row(struct graph *g, int id)
{
    const struct lf_dnn_shape *s = g->s;
    return tensor(g, id, STORED, LF_DNN_F32, (int64_t[]){s->docs, s->heads, s->longest, 1},
                  (int64_t[]){s->longest, s->rows, 1, 1}, offsets(g, LF_DNN_ID_LSE));
}

/* Intermediate results: [docs, heads, S, S], the same across, [docs, heads, S, 1], [docs, heads, S,
 * D]. */
static void *scores(struct graph *g, int type)
{
    const int64_t B = g->s->docs, H = g->s->heads, S = g->s->longest;
    return tensor(g, 0, VIRTUAL, type, (int64_t[]){B, H, S, S}, (int64_t[]){H * S * S, S * S, S, 1},
                  NULL);
}
static void *across(struct graph *g)
{
    const int64_t B = g->s->docs, H = g->s->heads, S = g->s->longest;
    return tensor(g, 0, VIRTUAL, (int)g->s->type, (int64_t[]){B, H, S, S},
                  (int64_t[]){H * S * S, S * S, 1, S}, NULL);
}
static void *column(struct graph *g)
{
    const int64_t B = g->s->docs, H = g->s->heads, S = g->s->longest;
    return tensor(g, 0, VIRTUAL, LF_DNN_F32, (int64_t[]){B, H, S, 1}, (int64_t[]){H * S, S, 1, 1},
                  NULL);
}
static void *headed(struct graph *g, int type)
{
    const int64_t B = g->s->docs, H = g->s->heads, S = g->s->longest, D = g->s->d;
    return tensor(g, 0, VIRTUAL, type, (int64_t[]){B, H, S, D}, (int64_t[]){H * S * D, S * D, D, 1},
                  NULL);
}

/* ---- operations; each gives its result ---- */

struct pointwise {
    int mode, prec;
    void *x, *b, *t, *y;
    int64_t axis;
};
static void *pointwise(struct graph *g, const struct pointwise *w)
{
    void *d = make(g, LF_DNN_POINTWISE), *op;
    set_enum(g, d, LF_DNN_POINTWISE_MODE, LF_DNN_T_POINTWISE, w->mode);
    set_enum(g, d, LF_DNN_POINTWISE_PREC, LF_DNN_T_DATA_TYPE, w->prec);
    if (w->mode == LF_DNN_INDEX)
        set(g, d, LF_DNN_POINTWISE_AXIS, LF_DNN_T_INT64, 1, &w->axis);
    finish(g, d);
    op = make(g, LF_DNN_OP_POINTWISE);
    set_desc(g, op, LF_DNN_OPP_DESC, d);
    set_desc(g, op, LF_DNN_OPP_X, w->x);
    set_desc(g, op, LF_DNN_OPP_B, w->b);
    set_desc(g, op, LF_DNN_OPP_T, w->t);
    set_desc(g, op, LF_DNN_OPP_Y, w->y);
    done(g, op);
    return w->y;
}
static void *two(struct graph *g, int mode, void *x, void *b, void *y)
{
    return pointwise(g,
                     &(struct pointwise){.mode = mode, .prec = LF_DNN_F32, .x = x, .b = b, .y = y});
}
static void *logical(struct graph *g, int mode, void *x, void *b)
{
    return pointwise(
        g, &(struct pointwise){
               .mode = mode, .prec = LF_DNN_BOOL, .x = x, .b = b, .y = scores(g, LF_DNN_BOOL)});
}
static void *index_of(struct graph *g, void *x, int64_t axis, int prec)
{
    return pointwise(
        g,
        &(struct pointwise){
            .mode = LF_DNN_INDEX, .prec = prec, .x = x, .y = scores(g, LF_DNN_I32), .axis = axis});
}
/* x where mask, else the scalar. */
static void *keep(struct graph *g, void *x, void *mask, int id)
{
    return pointwise(g, &(struct pointwise){.mode = LF_DNN_SELECT,
                                            .prec = LF_DNN_F32,
                                            .x = x,
                                            .b = scalar(g, id),
                                            .t = mask,
                                            .y = scores(g, LF_DNN_F32)});
}

/* y = a b; rows, columns, inner: lengths that say how much of it there is, or NULL. */
static void *product(struct graph *g, void *a, void *b, void *y, void *m, void *n, void *k,
                     bool padded)
{
    void *d = make(g, LF_DNN_MATMUL), *op;
    const double zero = 0;
    set_enum(g, d, LF_DNN_MATMUL_PREC, LF_DNN_T_DATA_TYPE, LF_DNN_F32);
    if (padded)
        set(g, d, LF_DNN_MATMUL_PADDING, LF_DNN_T_DOUBLE, 1, &zero);
    finish(g, d);
    op = make(g, LF_DNN_OP_MATMUL);
    set_desc(g, op, LF_DNN_OPM_DESC, d);
    set_desc(g, op, LF_DNN_OPM_A, a);
    set_desc(g, op, LF_DNN_OPM_B, b);
    set_desc(g, op, LF_DNN_OPM_C, y);
    set_desc(g, op, LF_DNN_OPM_M, m);
    set_desc(g, op, LF_DNN_OPM_N, n);
    set_desc(g, op, LF_DNN_OPM_K, k);
    done(g, op);
    return y;
}

/* Over the dimensions that y has not. */
static void *reduce(struct graph *g, int mode, void *x, void *y)
{
    void *d = make(g, LF_DNN_REDUCTION), *op;
    set_enum(g, d, LF_DNN_REDUCTION_MODE, LF_DNN_T_REDUCTION, mode);
    set_enum(g, d, LF_DNN_REDUCTION_PREC, LF_DNN_T_DATA_TYPE, LF_DNN_F32);
    finish(g, d);
    op = make(g, LF_DNN_OP_REDUCTION);
    set_desc(g, op, LF_DNN_OPR_DESC, d);
    set_desc(g, op, LF_DNN_OPR_X, x);
    set_desc(g, op, LF_DNN_OPR_Y, y);
    done(g, op);
    return y;
}

static void *reshape(struct graph *g, void *x, void *y)
{
    void *op = make(g, LF_DNN_OP_RESHAPE);
    set_desc(g, op, LF_DNN_RESHAPE_X, x);
    set_desc(g, op, LF_DNN_RESHAPE_Y, y);
    done(g, op);
    return y;
}

/* ---- attention ---- */

/* Keys and queries within their documents. */
static void *mask_padding(struct graph *g, void *x, void *len_q, void *len_kv)
{
    void *row = index_of(g, x, 2, LF_DNN_I32), *col = index_of(g, x, 3, LF_DNN_I32);
    void *in_q = logical(g, LF_DNN_LT, row, len_q), *in_kv = logical(g, LF_DNN_LT, col, len_kv);
    return keep(g, x, logical(g, LF_DNN_AND, in_q, in_kv), LF_DNN_ID_NONE_PADDED);
}
/* key <= query and, with a window, key + window > query. */
static void *mask_causal(struct graph *g, void *x)
{
    void *row = index_of(g, x, 2, LF_DNN_F32), *col = index_of(g, x, 3, LF_DNN_F32);
    x = keep(g, x, logical(g, LF_DNN_GE, row, col), LF_DNN_ID_NONE_LATER);
    if (!g->s->window)
        return x;
    row = index_of(g, x, 2, LF_DNN_F32);
    col = index_of(g, x, 3, LF_DNN_F32);
    col = two(g, LF_DNN_ADD, col, scalar(g, LF_DNN_ID_WINDOW), scores(g, LF_DNN_F32));
    return keep(g, x, logical(g, LF_DNN_GT, col, row), LF_DNN_ID_NONE_EARLIER);
}

static void forward(struct graph *g)
{
    const struct lf_dnn_shape *s = g->s;
    void *q = rows(g, LF_DNN_ID_Q, s->heads, false), *k = rows(g, LF_DNN_ID_K, s->groups, true);
    void *v = rows(g, LF_DNN_ID_V, s->groups, false), *o = rows(g, LF_DNN_ID_O, s->heads, false);
    void *lse = per_row(g, LF_DNN_ID_LSE);
    void *len_q = vector(g, LF_DNN_ID_LEN_Q, LF_DNN_I32, s->docs),
         *len_kv = vector(g, LF_DNN_ID_LEN_KV, LF_DNN_I32, s->docs);
    void *x = product(g, q, k, scores(g, LF_DNN_F32), len_q, len_kv, NULL, true);
    x = two(g, LF_DNN_MUL, x, scalar(g, LF_DNN_ID_SCALE), scores(g, LF_DNN_F32));
    x = mask_causal(g, mask_padding(g, x, len_q, len_kv));
    void *most = reduce(g, LF_DNN_MAX, x, column(g));
    void *e = two(g, LF_DNN_EXP, two(g, LF_DNN_SUB, x, most, scores(g, LF_DNN_F32)), NULL,
                  scores(g, LF_DNN_F32));
    void *sum = reduce(g, LF_DNN_SUM, e, column(g));
    two(g, LF_DNN_ADD, most, two(g, LF_DNN_LOG, sum, NULL, column(g)), lse);
    product(g, two(g, LF_DNN_DIV, e, sum, scores(g, (int)s->type)), v, o, len_q, NULL, len_kv,
            false);
}

/* A gradient of keys or values: p^T x, summed over the query heads of a group. */
static void to_groups(struct graph *g, void *p, void *x, int role, void *len_q, void *len_kv)
{
    void *y = rows(g, role, g->s->groups, false);
    p = reshape(g, p, across(g));
    if (g->s->heads == g->s->groups)
        product(g, p, x, y, len_kv, NULL, len_q, false);
    else
        reduce(g, LF_DNN_SUM,
               product(g, p, x, headed(g, (int)g->s->type), len_kv, NULL, len_q, false), y);
}

static void backward(struct graph *g)
{
    const struct lf_dnn_shape *s = g->s;
    void *q = rows(g, LF_DNN_ID_Q, s->heads, false), *k = rows(g, LF_DNN_ID_K, s->groups, true);
    void *v = rows(g, LF_DNN_ID_V, s->groups, true), *o = rows(g, LF_DNN_ID_O, s->heads, false);
    void *d_o = rows(g, LF_DNN_ID_DO, s->heads, false), *lse = per_row(g, LF_DNN_ID_LSE),
         *delta = per_row(g, LF_DNN_ID_DELTA);
    void *len_q = vector(g, LF_DNN_ID_LEN_Q, LF_DNN_I32, s->docs),
         *len_kv = vector(g, LF_DNN_ID_LEN_KV, LF_DNN_I32, s->docs);
    void *scale = scalar(g, LF_DNN_ID_SCALE);
    void *x = reduce(g, LF_DNN_SUM, two(g, LF_DNN_MUL, d_o, o, headed(g, LF_DNN_F32)), column(g));
    two(g, LF_DNN_MUL, x, scalar(g, LF_DNN_ID_ONE), delta);
    x = product(g, q, k, scores(g, LF_DNN_F32), len_q, len_kv, NULL, false);
    x = mask_padding(g, two(g, LF_DNN_MUL, x, scale, scores(g, LF_DNN_F32)), len_q, len_kv);
    x = mask_causal(g, two(g, LF_DNN_SUB, x, lse, scores(g, LF_DNN_F32)));
    void *p = two(g, LF_DNN_EXP, x, NULL, scores(g, LF_DNN_F32));
    to_groups(g, p, d_o, LF_DNN_ID_DV, len_q, len_kv);
    x = product(g, d_o, v, scores(g, LF_DNN_F32), len_q, len_kv, NULL, false);
    x = two(g, LF_DNN_SUB, x, delta, scores(g, LF_DNN_F32));
    x = two(g, LF_DNN_MUL, x, p, scores(g, LF_DNN_F32));
    x = two(g, LF_DNN_MUL, x, scale, scores(g, LF_DNN_F32));
    to_groups(g, x, q, LF_DNN_ID_DK, len_q, len_kv);
    const int64_t S = s->longest, ld = s->ld[LF_DNN_ID_K];
    void *keys = tensor(g, 0, VIRTUAL, (int)s->type, (int64_t[]){s->docs, s->groups, S, s->d},
                        (int64_t[]){S * ld, s->d, ld, 1}, offsets(g, LF_DNN_ID_K));
    product(g, x, reshape(g, k, keys), rows(g, LF_DNN_ID_DQ, s->heads, false), len_q, NULL, len_kv,
            false);
}

/* ---- plans ---- */

static bool repeats(struct graph *g, void *config)
{
    void *engine = make(g, LF_DNN_ENGINE);
    int note[LF_DNN_NOTES];
    int64_t n = 0;
    if (g->rc ||
        g->lib->BackendGetAttribute(config, LF_DNN_CONFIG_ENGINE, LF_DNN_T_DESC, 1, &n, &engine) ||
        n != 1 ||
        g->lib->BackendGetAttribute(engine, LF_DNN_ENGINE_NOTE, LF_DNN_T_NOTE, LF_DNN_NOTES, &n,
                                    note))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (note[i] == LF_DNN_NONDETERMINISTIC)
            return false;
    return true;
}

/* A finished plan of one configuration, or NULL. */
static void *plan_of(struct graph *g, void *config, void *handle, void *device, size_t most)
{
    void *plan = make(g, LF_DNN_PLAN);
    int64_t n = 0, work = 0;
    if (handle)
        set(g, plan, LF_DNN_PLAN_HANDLE, LF_DNN_T_HANDLE, 1, &handle);
    set_desc(g, plan, LF_DNN_PLAN_DEVICE, device);
    set_desc(g, plan, LF_DNN_PLAN_CONFIG, config);
    finish(g, plan);
    const bool ok =
        !g->rc &&
        !g->lib->BackendGetAttribute(plan, LF_DNN_PLAN_WORKSPACE, LF_DNN_T_INT64, 1, &n, &work) &&
        work >= 0 && (size_t)work <= most;
    g->rc = 0; /* the next configuration may do */
    g->p->work = work;
    return ok ? plan : NULL;
}

static void *choose(struct graph *g, void *graph, int mode, void *handle, void *device, size_t most)
{
    void *h = make(g, LF_DNN_HEURISTIC), *config[CONFIGS], *plan = NULL;
    int64_t n = 0;
    set_desc(g, h, LF_DNN_HEURISTIC_GRAPH, graph);
    set_enum(g, h, LF_DNN_HEURISTIC_MODE, LF_DNN_T_HEURISTIC, mode);
    set_desc(g, h, LF_DNN_HEURISTIC_DEVICE, device);
    finish(g, h);
    for (int i = 0; i < CONFIGS; i++)
        config[i] = make(g, LF_DNN_CONFIG);
    if (g->rc || g->lib->BackendGetAttribute(h, LF_DNN_HEURISTIC_RESULTS, LF_DNN_T_DESC, CONFIGS,
                                             &n, config))
        n = 0;
    g->rc = 0;
    for (int64_t i = 0; i < n && i < CONFIGS && !plan; i++)
        if (repeats(g, config[i]))
            plan = plan_of(g, config[i], handle, device, most);
    return plan;
}

void lf_dnn_plan_make(const struct lf_dnn *lib, void *handle, void *device,
                      const struct lf_dnn_shape *s, size_t most, struct lf_dnn_plan *out)
{
    *out = (struct lf_dnn_plan){0};
    struct graph g = {.lib = lib, .s = s, .p = out, .next = FIRST_VIRTUAL};
    if (s->backward)
        backward(&g);
    else
        forward(&g);
    void *graph = make(&g, LF_DNN_GRAPH);
    if (handle)
        set(&g, graph, LF_DNN_GRAPH_HANDLE, LF_DNN_T_HANDLE, 1, &handle);
    set(&g, graph, LF_DNN_GRAPH_OPS, LF_DNN_T_DESC, g.n_op, g.op);
    finish(&g, graph);
    if (!g.rc)
        out->plan = choose(&g, graph, LF_DNN_HEUR_A, handle, device, most);
    if (!g.rc && !out->plan)
        out->plan = choose(&g, graph, LF_DNN_HEUR_FALLBACK, handle, device, most);
}

void lf_dnn_plan_free(const struct lf_dnn *lib, struct lf_dnn_plan *p)
{
    while (p->n > 0)
        lib->BackendDestroyDescriptor(p->made[--p->n]);
    p->plan = NULL;
}
