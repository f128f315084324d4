/* SPDX-License-Identifier: Apache-2.0
 *
 * What each op makes of the places of its operands (layout.h). A combination that has no rule is an
 * error: it would give a value that no rank can use, or a gradient that nothing sums.
 *
 * Gradients have the place that is dual to their value's: SAME of SAME and PARTIAL, PARTIAL of
 * COPY, ROWS of ROWS and COLS of COLS.
 */
#include <stdio.h>

#include "engine/graph/priv.h"

enum { BAD = -1, NONE = -2 }; /* no rule; no operand */

const char *lf_place_name(enum lf_place place)
{
    static const char *const names[] = {"same", "copy", "rows", "columns", "partial", "experts"};
    return (unsigned)place <= LF_PL_EXPERTS ? names[place] : "?";
}

const char *lf_axis_name(enum lf_axis axis)
{
    static const char *const names[] = {"data", "tensor", "context", "expert"};
    return (unsigned)axis < LF_AXES ? names[axis] : "?";
}

struct node {
    const lf_graph *g;
    const struct lf_node *n;
    enum lf_axis axis;
};

static int at(const struct node *v, int slot)
{
    const int32_t t = v->n->in[slot];
    return t ? v->g->t[lf_root_of(v->g, t)].place[v->axis] : NONE;
}

static bool whole(int place)
{
    return place == LF_PL_SAME || place == LF_PL_COPY;
}

/* Of two operands that are used element by element. */
static int both(int a, int b)
{
    return a == NONE ? b : b == NONE || a == b ? a : BAD;
}

/* An axis whose ranks have micro-batches of their own: documents are whole. */
static bool of_batches(const struct node *v)
{
    return v->axis == LF_AXIS_DATA || v->axis == LF_AXIS_EXPERT;
}

static int nonlinear(int place)
{
    return place == LF_PL_PARTIAL ? BAD : place;
}

/* A value of every row that another one of the row weighs, such as a gate: both by rows, or whole.
 * A partial sum takes a factor that is whole on every rank, and whose gradient is partial. */
static int weighed(int x, int weight)
{
    if (x == LF_PL_PARTIAL)
        return weight == LF_PL_COPY || weight == NONE ? x : BAD;
    return both(x, weight);
}

/* A product of gradient and value, element by element. */
static int backward(int dy, int value)
{
    if (value == NONE || whole(value))
        return dy;
    return dy == value ? dy : BAD;
}

/* dy of whatever place, and x, in a sum over rows: the gradient of a matrix [out, in]. */
static int weight_gradient(int dy, int x)
{
    if (dy == LF_PL_ROWS)
        return x == LF_PL_ROWS ? LF_PL_PARTIAL : BAD;
    if (dy == LF_PL_COLS)
        return whole(x) ? LF_PL_ROWS : BAD;
    if (dy == LF_PL_PARTIAL)
        return whole(x) ? dy : BAD;
    if (dy != LF_PL_SAME)
        return BAD;
    return whole(x) ? dy : x == LF_PL_COLS || x == LF_PL_PARTIAL ? x : BAD;
}

/* A sum over rows. Of vectors rows and columns are one: a part of their elements. */
static int over_rows(int dy)
{
    return dy == LF_PL_ROWS ? LF_PL_PARTIAL : dy == LF_PL_COLS ? LF_PL_ROWS : dy;
}

/* A sum over rows and over the heads of a row. */
static int over_heads(int dy)
{
    return dy == LF_PL_ROWS || dy == LF_PL_COLS ? LF_PL_PARTIAL : dy;
}

/* y = x w^T. */
static int product(int x, int w)
{
    if (w == LF_PL_ROWS)
        return x == LF_PL_COPY ? LF_PL_COLS : BAD;
    if (w == LF_PL_COLS)
        return x == LF_PL_COLS ? LF_PL_PARTIAL : BAD;
    return w == LF_PL_SAME && x != LF_PL_COLS ? x : BAD;
}

/* dx = dy w. */
static int input_gradient(int dy, int w)
{
    if (w == LF_PL_ROWS)
        return dy == LF_PL_COLS ? LF_PL_PARTIAL : BAD;
    if (w == LF_PL_COLS)
        return dy == LF_PL_SAME ? LF_PL_COLS : BAD;
    return w == LF_PL_SAME && dy != LF_PL_COLS && dy != LF_PL_COPY ? dy : BAD;
}

static int linear(const struct node *v)
{
    const int y = product(at(v, LINEAR_X), at(v, LINEAR_W)), bias = at(v, LINEAR_BIAS);
    if (bias != NONE && bias != (y == LF_PL_COLS ? LF_PL_ROWS : LF_PL_SAME))
        return BAD;
    return both(y, at(v, LINEAR_RES));
}

/* Parameters of channels go with the columns that they weigh. */
static bool of_columns(const struct node *v, int slot, int x)
{
    const int p = at(v, slot);
    return p == NONE || p == (x == LF_PL_COLS ? LF_PL_ROWS : LF_PL_SAME);
}

static int norm(const struct node *v)
{
    const int x = both(at(v, NORM_X), at(v, NORM_DELTA)), w = at(v, NORM_W),
              total = both(at(v, NORM_TOTAL), at(v, NORM_TOTAL_X));
    if (total != NONE && v->axis == LF_AXIS_TENSOR) /* of all ranks; each has its columns */
        return x == LF_PL_COLS && w == LF_PL_ROWS && of_columns(v, NORM_B, x) && total == LF_PL_SAME
                   ? x
                   : BAD;
    if (v->n->a.each)
        return of_columns(v, NORM_W, x) && of_columns(v, NORM_B, x) ? nonlinear(x) : BAD;
    return w == LF_PL_SAME || w == NONE ? nonlinear(both(x, total)) : BAD;
}

/* Sums over the columns of a row. */
static int over_columns(const struct node *v, int x)
{
    return v->axis != LF_AXIS_TENSOR ? x : x == LF_PL_COLS ? LF_PL_PARTIAL : BAD;
}

/* Sums of x, or of squares about a mean that is the same on all ranks. */
static int norm_part(const struct node *v)
{
    const int total = at(v, 1);
    if (v->axis == LF_AXIS_TENSOR && total > LF_PL_SAME)
        return BAD;
    return v->axis == LF_AXIS_TENSOR ? over_columns(v, at(v, 0)) : both(at(v, 0), total);
}

static int norm_dots(const struct node *v, int out)
{
    const int x = backward(at(v, DOTS_DY), at(v, DOTS_X));
    return out == 0 ? over_columns(v, x) : over_rows(x);
}

/* Positions alone are added to a stream that has rows where the layout divides them. A table of
 * numbers by distance has a column for each head, and a rank those of its heads. */
static int embedding(const struct node *v)
{
    const int wte = at(v, EMBED_WTE), wpe = at(v, EMBED_WPE), token = at(v, EMBED_TOKEN);
    if (wpe == LF_PL_COLS)
        return wte == NONE && token == LF_PL_SAME ? wpe : BAD;
    if (wpe > LF_PL_SAME)
        return BAD;
    if (wte == NONE && v->axis == LF_AXIS_TENSOR && v->g->ps->layout.sequence)
        return LF_PL_ROWS;
    if (wte == LF_PL_ROWS) /* rows of other ranks are zeros here */
        return token == LF_PL_SAME ? LF_PL_PARTIAL : BAD;
    return wte > LF_PL_SAME ? BAD : token;
}

/* Of a divided vocabulary, each rank adds to its own rows. */
static int embedding_bwd(const struct node *v, int out)
{
    const struct lf_tensor *t = &v->g->t[v->n->out[out]];
    const int dy = at(v, EMBB_DY);
    const bool divided = v->axis == LF_AXIS_TENSOR && v->g->ps->g[t->group].place == LF_PL_ROWS;
    if (dy == LF_PL_COLS) /* a matrix, whose columns are those of dy */
        return dy;
    return !divided ? over_rows(dy) : dy == LF_PL_SAME ? LF_PL_ROWS : BAD;
}

/* Do ranks of the tensor axis divide experts, and not what is in them? */
static bool folded(const struct node *v)
{
    return v->axis == LF_AXIS_TENSOR && v->g->ps->layout.folded;
}

/* Rows go to experts that ranks divide, and gradients too: folded each rank's of what all have. */
static int to_experts(const struct node *v, int slot)
{
    if (folded(v))
        return whole(at(v, slot)) ? LF_PL_ROWS : BAD;
    return v->axis != LF_AXIS_EXPERT   ? at(v, slot)
           : at(v, slot) == LF_PL_ROWS ? LF_PL_EXPERTS
                                       : BAD;
}

static int from_experts(const struct node *v)
{
    const int x = at(v, RETURN_X);
    if (folded(v)) /* with zeros for the rows of the others */
        return x == LF_PL_ROWS ? LF_PL_PARTIAL : BAD;
    return v->axis != LF_AXIS_EXPERT ? x : x == LF_PL_EXPERTS ? LF_PL_ROWS : BAD;
}

/* Products of experts: everything is of a rank's own. The gradients of their weights are, too. */
static bool own_experts(const struct node *v, int x, int w, int offsets)
{
    return at(v, x) == LF_PL_EXPERTS && (w < 0 || at(v, w) == LF_PL_EXPERTS) &&
           at(v, offsets) == LF_PL_EXPERTS;
}

/* Biases of experts, [E, N], go with the columns of what they are added to. */
static int moe_linear(const struct node *v)
{
    if (v->axis == LF_AXIS_EXPERT)
        return own_experts(v, MOEL_X, MOEL_W, MOEL_OFFSETS) &&
                       (at(v, MOEL_BIAS) == NONE || at(v, MOEL_BIAS) == LF_PL_EXPERTS)
                   ? LF_PL_EXPERTS
                   : BAD;
    const int y = product(at(v, MOEL_X), at(v, MOEL_W)), bias = at(v, MOEL_BIAS);
    return bias != NONE && bias != (y == LF_PL_COLS ? LF_PL_COLS : LF_PL_SAME) ? BAD : y;
}

/* Their gradient is a matrix, whose columns are those of dy. */
static int moe_colsum(const struct node *v)
{
    const int dy = at(v, MOECS_DY);
    if (v->axis == LF_AXIS_EXPERT)
        return own_experts(v, MOECS_DY, -1, MOECS_OFFSETS) ? LF_PL_EXPERTS : BAD;
    return dy == LF_PL_ROWS ? LF_PL_PARTIAL : dy;
}

/* What is added to scores by distance: whole where ranks have documents of their own, and else the
 * columns of the heads that are here. */
static bool bias_fits(const struct node *v, int x)
{
    const int bias = at(v, ATTN_BIAS);
    return bias == NONE ||
           (v->axis == LF_AXIS_TENSOR && x == LF_PL_COLS ? bias == LF_PL_COLS
                                                         : bias == LF_PL_SAME && of_batches(v));
}

/* Documents are whole on an axis of data; rows of one may not be spread. Sinks go with heads, but
 * on the context axis every rank has all of them, and reads its own. */
static int attention(const struct node *v)
{
    const int x = both(at(v, ATTN_Q), both(at(v, ATTN_K), at(v, ATTN_V)));
    const bool sinks = v->axis == LF_AXIS_CONTEXT || of_columns(v, ATTN_SINKS, x);
    return !sinks || !bias_fits(v, x) || (x == LF_PL_ROWS && !of_batches(v)) ? BAD : nonlinear(x);
}

/* Of a rank's queries over keys of all ranks, or of some heads of the queries of several. */
static int attention_spread(const struct node *v)
{
    const int x = both(at(v, ATTN_Q), both(at(v, ATTN_K), at(v, ATTN_V))),
              want = lf_context_parts(&v->g->ps->layout).heads > 1 ? LF_PL_COLS : LF_PL_ROWS;
    return v->axis != LF_AXIS_CONTEXT ? attention(v) : x == want ? x : BAD;
}

static int attention_bwd(const struct node *v, int out)
{
    const int dx =
        backward(at(v, ATTNB_DO), both(at(v, ATTNB_Q), both(at(v, ATTNB_K), at(v, ATTNB_V))));
    if (out == ATTNB_DBIAS) /* [distances, heads] */
        return dx == LF_PL_COLS ? dx : over_rows(dx);
    return dx;
}

static int head(const struct node *v)
{
    const int x = at(v, XENT_X), bias = at(v, XENT_BIAS);
    if (at(v, XENT_W) == LF_PL_ROWS) /* ranks exchange what they know of each row */
        return x == LF_PL_COPY && (bias == NONE || bias == LF_PL_ROWS) ? LF_PL_SAME : BAD;
    return at(v, XENT_W) != LF_PL_SAME || at(v, XENT_BIAS) > LF_PL_SAME || x == LF_PL_COLS
               ? BAD
               : nonlinear(x);
}

/* Of a divided vocabulary dx is this rank's addend, dw and db are of its rows. */
static int divided_head(int out, int dx)
{
    return out == dx ? LF_PL_PARTIAL : LF_PL_ROWS;
}

static int head_bwd(const struct node *v, int out)
{
    const int dy = both(at(v, LOGPB_DLOGP), at(v, LOGPB_DENTROPY));
    if (at(v, LOGP_W) == LF_PL_ROWS)
        return dy == LF_PL_SAME && head(v) == LF_PL_SAME ? divided_head(out, LOGPB_DX) : BAD;
    const int dx = backward(dy, at(v, LOGP_X));
    return out == LOGPB_DX ? dx : over_rows(dx);
}

/* Experts take rows of all ranks, and the loss of the balance counts all of them: every rank of the
 * tensor axis chooses for all rows. */
static int route(const struct node *v)
{
    const int logits = at(v, ROUTE_LOGITS);
    return v->axis == LF_AXIS_TENSOR && logits == LF_PL_ROWS ? BAD : nonlinear(logits);
}

static int route_bwd(const struct node *v)
{
    const int dw = at(v, ROUTEB_DWEIGHTS), load = at(v, ROUTEB_LOAD);
    const int32_t t = lf_root_of(v->g, v->n->in[ROUTEB_LOAD]);
    const bool comes = v->g->t[t].role == LF_ROLE_INPUT; /* from a graph that was checked, too */
    if (v->axis == LF_AXIS_CONTEXT && load != NONE && load != LF_PL_SAME && !comes) /* all rows */
        return BAD;
    if (dw == LF_PL_PARTIAL && load != NONE) /* the loss of the balance is the same on all */
        return BAD;
    return backward(dw == NONE ? load : dw, at(v, ROUTEB_SCORES));
}

/* Which rows of a micro-batch an expert takes depends on the choices of all of them. */
static int keep(const struct node *v)
{
    const int ids = at(v, KEEP_IDS), all = at(v, KEEP_ALL);
    return v->axis == LF_AXIS_CONTEXT && ids == LF_PL_ROWS && all != LF_PL_SAME ? BAD : ids;
}

/* dy x of a row: the gradient of what weighs it. */
static int weight_of_row(int dy, int x)
{
    return x == LF_PL_PARTIAL ? (dy == LF_PL_SAME ? x : BAD) : backward(dy, x);
}

static int combine_bwd(const struct node *v, int out)
{
    const int dy = at(v, COMBB_DY), x = at(v, COMBB_X);
    return out == 0 ? backward(dy, at(v, COMBB_WEIGHTS)) : weight_of_row(dy, x);
}

/* Heads and what they share: columns and a copy, or both of one place. */
static int heads_join(const struct node *v)
{
    const int x = at(v, JOIN_X), z = at(v, JOIN_Z);
    return x == LF_PL_COLS ? (z == LF_PL_COPY ? x : BAD) : both(x, z);
}

/* Heads go with the rows of the weight that are theirs. */
static int heads_linear(const struct node *v)
{
    const int x = at(v, HEADL_X), w = at(v, HEADL_W);
    return w == (x == LF_PL_COLS ? LF_PL_ROWS : LF_PL_SAME) ? x : BAD;
}

/* What all heads share has the sum of those that are here. */
static int heads_split(const struct node *v, int out)
{
    const int dy = at(v, 0);
    return out == JOIN_Z && dy == LF_PL_COLS ? LF_PL_PARTIAL : dy;
}

static int row_gate_bwd(const struct node *v, int out)
{
    const int dy = at(v, GATEB_DY), x = at(v, GATEB_X);
    return out == 0 ? backward(dy, at(v, GATEB_GATE)) : weight_of_row(dy, x);
}

static int norm_bwd(const struct node *v, int out)
{
    const int dx = backward(at(v, NORMB_DY), at(v, NORMB_X));
    if (out != NORMB_DX)
        return v->n->a.each ? over_rows(dx) : over_heads(dx);
    return both(dx, at(v, NORMB_DRES));
}

/* Lengths of rows of w + B A. Where columns of w and A are spread, a rank has a part of each row,
 * and the squares of lengths add up. */
static int dora_norm(const struct node *v)
{
    const int w = at(v, DNORM_W), a = at(v, DNORM_A), b = at(v, DNORM_B);
    if (w == LF_PL_COLS)
        return a == w && b == LF_PL_SAME && v->n->a.squares ? LF_PL_PARTIAL : BAD;
    return a != LF_PL_SAME || w != b ? BAD : w == LF_PL_ROWS ? LF_PL_COLS : w;
}

/* Linear in all products, so that partial sums give one. */
static int dora(const struct node *v)
{
    const int base = both(at(v, DORA_BASE), at(v, DORA_LORA)), m = at(v, DORA_M),
              norm = at(v, DORA_NORM), bias = at(v, DORA_BIAS);
    const int want = base == LF_PL_COLS ? LF_PL_ROWS : LF_PL_SAME;
    if ((m != NONE && m != want) || (bias != NONE && bias != want) ||
        (norm != NONE && norm != (base == LF_PL_COLS ? base : LF_PL_SAME)))
        return BAD;
    return both(base, at(v, DORA_REST));
}

static int dora_bwd(const struct node *v, int out)
{
    const int dy = at(v, DORAB_DY), base = at(v, DORAB_BASE);
    if (out == DORAB_DX)
        return base == LF_PL_PARTIAL ? dy : backward(dy, base);
    return over_rows(weight_of_row(dy, base));
}

/* What every rank has whole, and the rows or elements of it that are a rank's. */
static int own(const struct node *v)
{
    const int x = at(v, 0);
    if (v->axis != LF_AXIS_TENSOR)
        return x;
    return x == LF_PL_SAME && v->g->ps->g[v->n->a.at].place == LF_PL_ROWS ? LF_PL_ROWS : BAD;
}

static int own_bwd(const struct node *v)
{
    const int dy = at(v, 0);
    return v->axis != LF_AXIS_TENSOR ? dy : dy == LF_PL_ROWS ? LF_PL_PARTIAL : BAD;
}

static int loss(const struct node *v, int out)
{
    const int x = head(v);
    if (x == LF_PL_SAME && at(v, XENT_W) == LF_PL_ROWS)
        return out >= XENT_DX && out <= XENT_DB ? divided_head(out, XENT_DX) : x;
    if (out == XENT_DW || out == XENT_DB)
        return over_rows(x);
    return out == XENT_DX && x == LF_PL_COPY ? BAD : x;
}

/* Every rank gets what it enters with. */
static int enter(const struct node *v)
{
    const int x = at(v, 0);
    if (v->axis != LF_AXIS_TENSOR)
        return x;
    if (x != (v->n->a.sequence ? LF_PL_ROWS : LF_PL_SAME))
        return BAD;
    return v->n->a.inverse ? LF_PL_SAME : LF_PL_COPY;
}

static int leave(const struct node *v)
{
    const int x = at(v, 0);
    if (v->axis != LF_AXIS_TENSOR)
        return x;
    return x != LF_PL_PARTIAL ? BAD : v->n->a.sequence ? LF_PL_ROWS : LF_PL_SAME;
}

/* Linear in x. A matrix mixes rows of this rank alone: of a parameter, or of what each rank of the
 * context axis has whole, into rows for its data, and never of a stream whose rows the tensor or
 * the context axis divides. Back to whole rows each rank has an addend. */
static int mix(const struct node *v)
{
    const int x = at(v, MIX_X), by = at(v, MIX_START);
    if (whole(x) && by == LF_PL_ROWS)
        return by;
    if (v->axis == LF_AXIS_CONTEXT && x == LF_PL_ROWS && whole(by))
        return LF_PL_PARTIAL;
    return x == LF_PL_ROWS && !of_batches(v) ? BAD : x;
}

/* Rows that become one, or come of one, are all of this rank. */
static int fold(const struct node *v)
{
    const int x = at(v, 0);
    return x == LF_PL_COLS || (x == LF_PL_ROWS && !of_batches(v)) ? BAD : x;
}

/* The gain of a column is there whole; those of heads go with them. */
static int col_gate(const struct node *v)
{
    const int x = at(v, COLG_X);
    if (v->n->a.heads)
        return of_columns(v, COLG_GAIN, x) ? x : BAD;
    return at(v, COLG_GAIN) == LF_PL_SAME && x != LF_PL_COLS ? x : BAD;
}

static int col_gate_bwd(const struct node *v, int out)
{
    const int dy = at(v, COLGB_DY);
    return out == COLGB_DX ? dy : over_rows(weight_of_row(dy, at(v, COLGB_X)));
}

/* Rows of a document are not spread, as in attention; heads, and channels, may be. */
static int by_documents(const struct node *v, int x, int weight)
{
    if (!of_columns(v, weight, x) || (x == LF_PL_ROWS && !of_batches(v)))
        return BAD;
    return nonlinear(x);
}

/* Its numbers are of all elements. */
static int xielu(const struct node *v)
{
    for (int i = XIELU_POSITIVE; i <= XIELU_EPS; i++)
        if (at(v, i) != LF_PL_SAME)
            return BAD;
    return nonlinear(at(v, XIELU_X));
}

static int xielu_bwd(const struct node *v, int out)
{
    const int dx = backward(at(v, XIELUB_DY), at(v, XIELU_X));
    return out == XIELUB_DX ? dx : over_heads(dx);
}

/* Rows of a square are all of this rank. */
static int dwconv(const struct node *v)
{
    const int x = at(v, DWCONV_X), bias = at(v, DWCONV_BIAS);
    if (at(v, DWCONV_W) != LF_PL_SAME || (bias != NONE && bias != LF_PL_SAME))
        return BAD;
    return x == LF_PL_COLS || (x == LF_PL_ROWS && !of_batches(v)) ? BAD : nonlinear(x);
}

static int dwconv_bwd(const struct node *v, int out)
{
    const int dx = backward(at(v, DWCONVB_DY), at(v, DWCONVB_X));
    return out == DWCONVB_DX ? dx : over_rows(dx);
}

static int conv(const struct node *v)
{
    const int x = at(v, CONV_X);
    return of_columns(v, CONV_BIAS, x) ? by_documents(v, x, CONV_W) : BAD;
}

static int conv_bwd(const struct node *v, int out)
{
    const int dx = backward(at(v, CONVB_DY), at(v, CONVB_X));
    return out == CONVB_DX ? dx : over_rows(dx);
}

static int scan_gate(const struct node *v)
{
    const int x = both(at(v, SGATE_A), at(v, SGATE_B));
    return of_columns(v, SGATE_LOG, x) && of_columns(v, SGATE_BIAS, x) ? nonlinear(x) : BAD;
}

static int scan_gate_bwd(const struct node *v, int out)
{
    const int dx = backward(both(at(v, SGATEB_DG), at(v, SGATEB_DBETA)), at(v, SGATE_A));
    return out <= SGATEB_DB ? dx : over_rows(dx);
}

/* A decay that is a constant is there for all heads. */
static int scan(const struct node *v)
{
    const bool fixed = v->g->t[lf_root_of(v->g, v->n->in[SCAN_G])].role == LF_ROLE_CONST;
    const int x = both(at(v, SCAN_Q), both(at(v, SCAN_K), at(v, SCAN_V))),
              g = both(fixed ? NONE : at(v, SCAN_G), at(v, SCAN_BETA));
    return by_documents(v, g == NONE ? x : both(x, g), SCAN_SKIP);
}

static int scan_bwd(const struct node *v, int out)
{
    const int dx = backward(at(v, SCANB_DO), at(v, SCAN_V));
    return out == SCANB_DSKIP ? over_rows(dx) : dx;
}

/* All columns of a row are of one rank: it is summed over, or consists of streams. */
static int along_rows(const struct node *v)
{
    const int x = both(at(v, 0), at(v, 1));
    return x == LF_PL_COLS ? BAD : nonlinear(x);
}

/* The same of a gradient dy. */
static int along_rows_bwd(const struct node *v, int dy, int x)
{
    return x == LF_PL_COLS || at(v, dy) == LF_PL_COLS ? BAD : backward(at(v, dy), x);
}

bool lf_place_spreads(const lf_graph *g, int32_t t)
{
    const struct lf_tensor *x = &g->t[t];
    return x->role == LF_ROLE_INPUT
               ? !x->cut
               : x->role == LF_ROLE_ACT && x->whole &&
                     g->t[lf_root_of(g, t)].place[LF_AXIS_TENSOR] == LF_PL_SAME;
}

/* What is there as a whole; a rank takes its rows of it. */
static int addend(const struct node *v, int slot)
{
    const int32_t t = v->n->in[slot];
    return v->axis == LF_AXIS_TENSOR && t && lf_place_spreads(v->g, t) ? NONE : at(v, slot);
}

/* From one place to another on the context axis; what the tensor axis divides it divides still. */
static int context(const struct node *v, int from, int to)
{
    const int x = at(v, 0);
    return v->axis != LF_AXIS_CONTEXT ? x : x == from ? to : BAD;
}

static int place_out(const struct node *v, int out)
{
    switch (v->n->op) {
    case LF_OP_TP_ENTER:
        return enter(v);
    case LF_OP_TP_LEAVE:
        return leave(v);
    case LF_OP_TP_ROWS:
        return v->axis != LF_AXIS_TENSOR ? at(v, 0) : at(v, 0) == LF_PL_SAME ? LF_PL_ROWS : BAD;
    case LF_OP_TP_JOIN:
        return v->axis != LF_AXIS_TENSOR ? at(v, 0) : at(v, 0) == LF_PL_COLS ? LF_PL_SAME : BAD;
    case LF_OP_CP_HEADS:
        return context(v, LF_PL_ROWS, LF_PL_COLS);
    case LF_OP_CP_ROWS:
    case LF_OP_CP_ROWS_F:
        return context(v, LF_PL_COLS, LF_PL_ROWS);
    case LF_OP_CP_WHOLE:
        return context(v, LF_PL_ROWS, v->n->a.heads ? LF_PL_ROWS : LF_PL_SAME);
    case LF_OP_TP_OWN:
        return own(v);
    case LF_OP_TP_OWN_BWD:
        return own_bwd(v);
    case LF_OP_EMBED:
        return embedding(v);
    case LF_OP_LINEAR:
        return linear(v);
    case LF_OP_NORM:
        return norm(v);
    case LF_OP_NORM_PART:
        return norm_part(v);
    case LF_OP_NORM_DOTS:
        return norm_dots(v, out);
    case LF_OP_UNIT_ROWS:
    case LF_OP_SCALE:
    case LF_OP_CAST:
    case LF_OP_COPY:
    case LF_OP_ROPE:
    case LF_OP_DROPOUT:
        return both(at(v, 0), v->n->op == LF_OP_DROPOUT ? at(v, DROP_RES) : NONE);
    case LF_OP_ACT:
        return nonlinear(at(v, 0));
    case LF_OP_GLU:
        return nonlinear(both(at(v, 0), at(v, 1)));
    case LF_OP_ADD:
        return both(addend(v, 0), addend(v, 1));
    case LF_OP_HEADS_JOIN:
        return heads_join(v);
    case LF_OP_HEADS_SPLIT:
        return heads_split(v, out);
    case LF_OP_HEADS_LINEAR:
        return heads_linear(v);
    case LF_OP_ATTN:
        return attention(v);
    case LF_OP_CP_ATTN:
        return attention_spread(v);
    case LF_OP_KV_WRITE:
    case LF_OP_ATTN_PAGED:
    case LF_OP_GATHER:
    case LF_OP_MOE_SORT:
    case LF_OP_MOE_PERMUTE:
        return at(v, 0);
    case LF_OP_EXPERT_COUNT: /* what all know */
        return v->axis == LF_AXIS_EXPERT ? LF_PL_SAME : at(v, 0);
    case LF_OP_EXPERT_SEND:
        return to_experts(v, SEND_X);
    case LF_OP_EXPERT_RETURN:
        return from_experts(v);
    case LF_OP_XENT:
        return loss(v, out);
    case LF_OP_LOGP:
        return head(v);
    case LF_OP_LOGP_BWD:
        return head_bwd(v, out);
    case LF_OP_LINEAR_DX:
        return both(input_gradient(at(v, LDX_DY), at(v, LDX_W)), at(v, LDX_RES));
    case LF_OP_LINEAR_DW:
        return weight_gradient(at(v, LDW_DY), at(v, LDW_X));
    case LF_OP_COLSUM:
        return over_rows(at(v, 0));
    case LF_OP_EMBED_BWD:
        return embedding_bwd(v, out);
    case LF_OP_NORM_BWD:
        return norm_bwd(v, out);
    case LF_OP_UNIT_ROWS_BWD:
        return backward(at(v, 1), at(v, 0));
    case LF_OP_ATTN_BWD:
    case LF_OP_CP_ATTN_BWD:
        return attention_bwd(v, out);
    case LF_OP_ATTN_SINKS_BWD:
        return backward(at(v, SINKB_DO), at(v, SINKB_O));
    case LF_OP_ACT_BWD:
        return backward(at(v, ACTB_DY), at(v, ACTB_X));
    case LF_OP_GLU_BWD:
        return backward(at(v, GLUB_DY), both(at(v, GLUB_GATE), at(v, GLUB_UP)));
    case LF_OP_MOE_ROUTE:
        return route(v);
    case LF_OP_MOE_KEEP:
        return keep(v);
    case LF_OP_MOE_STATS: /* counts are of the rows that a rank has */
        return out == STATS_COUNTS ? over_rows(at(v, STATS_SCORES)) : at(v, STATS_SCORES);
    case LF_OP_MOE_LINEAR:
        return moe_linear(v);
    case LF_OP_MOE_COLSUM:
        return moe_colsum(v);
    case LF_OP_MOE_COMBINE:
        return both(weighed(at(v, COMB_X), at(v, COMB_WEIGHTS)), at(v, COMB_RES));
    case LF_OP_MOE_GAIN: /* linear in the weights, whose gradient may be partial */
        return at(v, GAIN_GAIN) == LF_PL_SAME ? at(v, GAIN_X) : BAD;
    case LF_OP_MOE_GAIN_DW:
        return over_rows(weight_of_row(at(v, GAINDW_DY), at(v, GAINDW_X)));
    case LF_OP_ROW_GATE:
        return weighed(at(v, GATE_X), at(v, GATE_GATE));
    case LF_OP_MOE_ROUTE_BWD:
        return route_bwd(v);
    case LF_OP_MOE_LINEAR_DX:
        if (v->axis == LF_AXIS_EXPERT)
            return own_experts(v, MOEDX_DY, MOEDX_W, MOEDX_OFFSETS) ? at(v, MOEDX_DY) : BAD;
        return both(input_gradient(at(v, MOEDX_DY), at(v, MOEDX_W)), at(v, MOEDX_RES));
    case LF_OP_MOE_LINEAR_DW:
        if (v->axis == LF_AXIS_EXPERT)
            return own_experts(v, MOEDW_DY, MOEDW_X, MOEDW_OFFSETS) ? at(v, MOEDW_DY) : BAD;
        return weight_gradient(at(v, MOEDW_DY), at(v, MOEDW_X));
    case LF_OP_MOE_COMBINE_BWD:
        return combine_bwd(v, out);
    case LF_OP_ROW_GATE_BWD:
        return row_gate_bwd(v, out);
    case LF_OP_MIX_ROWS:
        return mix(v);
    case LF_OP_TURN_ROWS:
    case LF_OP_FOLD_ROWS:
    case LF_OP_UNFOLD_ROWS:
        return fold(v);
    case LF_OP_MIX_ROWS_DW:
        return over_rows(at(v, MIX_X));
    case LF_OP_COL_GATE:
        return col_gate(v);
    case LF_OP_COL_GATE_BWD:
        return col_gate_bwd(v, out);
    case LF_OP_XIELU:
        return xielu(v);
    case LF_OP_XIELU_BWD:
        return xielu_bwd(v, out);
    case LF_OP_ALTUP_MIX:
        return v->n->a.inverse ? along_rows_bwd(v, ALTUP_X, at(v, ALTUP_W)) : along_rows(v);
    case LF_OP_ALTUP_MIX_DW:
        return along_rows_bwd(v, ALTUPB_DY, at(v, ALTUPB_X));
    case LF_OP_MATCH_RMS:
    case LF_OP_GAUSS_TOPK:
        return along_rows(v);
    case LF_OP_MATCH_RMS_BWD:
        return along_rows_bwd(v, MATCHB_DY, both(at(v, MATCH_X), at(v, MATCH_LIKE)));
    case LF_OP_GAUSS_TOPK_BWD:
        return along_rows_bwd(v, TOPKB_DY, at(v, TOPKB_X));
    case LF_OP_DWCONV:
        return dwconv(v);
    case LF_OP_DWCONV_BWD:
        return dwconv_bwd(v, out);
    case LF_OP_CONV:
        return conv(v);
    case LF_OP_CONV_BWD:
        return conv_bwd(v, out);
    case LF_OP_SCAN_GATE:
        return scan_gate(v);
    case LF_OP_SCAN_GATE_BWD:
        return scan_gate_bwd(v, out);
    case LF_OP_SCAN:
        return scan(v);
    case LF_OP_SCAN_BWD:
        return scan_bwd(v, out);
    case LF_OP_DORA_NORM:
        return dora_norm(v);
    case LF_OP_ROOT:
        return nonlinear(at(v, 0));
    case LF_OP_DORA:
        return dora(v);
    case LF_OP_DORA_BWD:
        return dora_bwd(v, out);
    default:
        return BAD;
    }
}

/* "op: x is rows, w is same, ...". */
static int refuse(lf_graph *g, const struct lf_node *n, enum lf_axis axis)
{
    const struct node v = {g, n, axis};
    char text[500];
    size_t len = 0;
    for (int k = 0; k < LF_MAX_IN && len < sizeof text; k++)
        if (n->in[k])
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%s is %s", len ? ", " : "",
                                    g->t[n->in[k]].name, lf_place_name((enum lf_place)at(&v, k)));
    return lf_graph_fail(g, LF_EINVAL, "%s does not add up on the %s axis of the layout: %s",
                         lf_op_table[n->op].name, lf_axis_name(axis), text);
}

int lf_place_node(lf_graph *g, const struct lf_node *n, enum lf_axis axis)
{
    const struct node v = {g, n, axis};
    for (int k = 0; k < LF_MAX_OUT; k++) {
        if (!n->out[k])
            continue;
        const int place = place_out(&v, k);
        uint8_t *to = &g->t[lf_root_of(g, n->out[k])].place[axis];
        if (place < 0 || place == LF_PL_UNSET)
            return refuse(g, n, axis);
        if (*to != LF_PL_UNSET && *to != place)
            return lf_graph_fail(
                g, LF_EINVAL,
                "%s on the %s axis of the layout: %s writes %s, another node wrote %s",
                g->t[n->out[k]].name, lf_axis_name(axis), lf_op_table[n->op].name,
                lf_place_name((enum lf_place)place), lf_place_name((enum lf_place) * to));
        *to = (uint8_t)place;
    }
    return 0;
}

void lf_place_sources(lf_graph *g, enum lf_axis axis)
{
    for (size_t i = 1; i < g->n_t; i++) {
        struct lf_tensor *t = &g->t[i];
        if (t->role == LF_ROLE_ACT || t->role == LF_ROLE_GRAD)
            t->place[axis] = LF_PL_UNSET;
        else if (t->role == LF_ROLE_PARAM)
            t->place[axis] = axis == LF_AXIS_TENSOR ? g->ps->g[t->group].place
                             : axis == LF_AXIS_EXPERT && g->ps->g[t->group].experts
                                 ? (uint8_t)LF_PL_EXPERTS
                                 : (uint8_t)LF_PL_SAME;
        else if (t->role == LF_ROLE_INPUT || t->role == LF_ROLE_STATE)
            t->place[axis] = axis == LF_AXIS_TENSOR
                                 ? t->cut && g->ps->layout.sequence ? LF_PL_ROWS : LF_PL_SAME
                             : axis == LF_AXIS_CONTEXT && t->whole ? LF_PL_SAME
                                                                   : LF_PL_ROWS;
        else if (t->role == LF_ROLE_CONST)
            t->place[axis] = LF_PL_SAME;
    }
}
