/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a graph of the emulated cuDNN: every tensor is an array of floats, every operation a loop
 * over its result.
 */
#include "tests/cuda/emu/cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emu/state.h"

/* ---- tensors ---- */

static const int64_t *dims(const struct lf_emu_desc *t)
{
    return lf_emu_dnn_find(t, LF_DNN_TENSOR_DIMS)->value;
}
static const int64_t *strides(const struct lf_emu_desc *t)
{
    return lf_emu_dnn_find(t, LF_DNN_TENSOR_STRIDES)->value;
}

static int add(struct lf_emu_desc *t, struct lf_emu_desc **out, int n)
{
    if (!t || n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        if (out[i] == t)
            return n;
        if (lf_emu_dnn_int(out[i], LF_DNN_TENSOR_ID) == lf_emu_dnn_int(t, LF_DNN_TENSOR_ID))
            return -1;
    }
    if (n == LF_EMU_DNN_TENSORS)
        return -1;
    out[n] = t;
    return add(lf_emu_dnn_ref(t, LF_DNN_TENSOR_RAGGED), out, n + 1);
}

int lf_emu_dnn_tensors(const struct lf_emu_desc *graph, struct lf_emu_desc *out[LF_EMU_DNN_TENSORS])
{
    static const int port[] = {LF_DNN_OPP_X,     LF_DNN_OPP_B,    LF_DNN_OPP_T, LF_DNN_OPP_Y,
                               LF_DNN_OPM_A,     LF_DNN_OPM_B,    LF_DNN_OPM_C, LF_DNN_OPM_M,
                               LF_DNN_OPM_N,     LF_DNN_OPM_K,    LF_DNN_OPR_X, LF_DNN_OPR_Y,
                               LF_DNN_RESHAPE_X, LF_DNN_RESHAPE_Y};
    const struct lf_emu_attribute *ops = lf_emu_dnn_find(graph, LF_DNN_GRAPH_OPS);
    int n = 0;
    for (int64_t i = 0; i < ops->n; i++)
        for (size_t k = 0; k < sizeof port / sizeof *port; k++)
            n = add(lf_emu_dnn_ref(((struct lf_emu_desc **)ops->value)[i], port[k]), out, n);
    return n;
}

/* ---- do its operations fit together? ---- */

static bool broadcasts(const struct lf_emu_desc *x, const struct lf_emu_desc *y)
{
    for (int i = 0; x && i < 4; i++)
        if (dims(x)[i] != dims(y)[i] && dims(x)[i] != 1)
            return false;
    return true;
}

static bool sound_pointwise(const struct lf_emu_desc *op)
{
    const struct lf_emu_desc *p = lf_emu_dnn_ref(op, LF_DNN_OPP_DESC),
                             *x = lf_emu_dnn_ref(op, LF_DNN_OPP_X),
                             *b = lf_emu_dnn_ref(op, LF_DNN_OPP_B),
                             *t = lf_emu_dnn_ref(op, LF_DNN_OPP_T),
                             *y = lf_emu_dnn_ref(op, LF_DNN_OPP_Y);
    const int mode = lf_emu_dnn_enum(p, LF_DNN_POINTWISE_MODE);
    const bool one = mode == LF_DNN_EXP || mode == LF_DNN_LOG || mode == LF_DNN_INDEX;
    const bool truth =
        mode == LF_DNN_GT || mode == LF_DNN_GE || mode == LF_DNN_LT || mode == LF_DNN_AND;
    return broadcasts(x, y) && broadcasts(b, y) && broadcasts(t, y) && !b == one &&
           !t == (mode != LF_DNN_SELECT) &&
           !lf_emu_dnn_find(p, LF_DNN_POINTWISE_AXIS) == (mode != LF_DNN_INDEX) &&
           (lf_emu_dnn_enum(y, LF_DNN_TENSOR_TYPE) == LF_DNN_BOOL) == truth &&
           (!t || lf_emu_dnn_enum(t, LF_DNN_TENSOR_TYPE) == LF_DNN_BOOL);
}

static bool lengths(const struct lf_emu_desc *t, int64_t batch)
{
    return !t || (dims(t)[0] == batch && dims(t)[1] * dims(t)[2] * dims(t)[3] == 1 &&
                  lf_emu_dnn_enum(t, LF_DNN_TENSOR_TYPE) == LF_DNN_I32 &&
                  !lf_emu_dnn_find(t, LF_DNN_TENSOR_VIRTUAL));
}

static bool sound_product(const struct lf_emu_desc *op)
{
    const struct lf_emu_desc *ta = lf_emu_dnn_ref(op, LF_DNN_OPM_A),
                             *tb = lf_emu_dnn_ref(op, LF_DNN_OPM_B),
                             *tc = lf_emu_dnn_ref(op, LF_DNN_OPM_C);
    const int64_t *a = dims(ta), *b = dims(tb), *c = dims(tc);
    const struct lf_emu_desc *d = lf_emu_dnn_ref(op, LF_DNN_OPM_DESC);
    return a[0] == c[0] && b[0] == c[0] && c[1] % a[1] == 0 && c[1] % b[1] == 0 && a[2] == c[2] &&
           a[3] == b[2] && b[3] == c[3] && lf_emu_dnn_enum(d, LF_DNN_MATMUL_PREC) == LF_DNN_F32 &&
           lengths(lf_emu_dnn_ref(op, LF_DNN_OPM_M), c[0]) &&
           lengths(lf_emu_dnn_ref(op, LF_DNN_OPM_N), c[0]) &&
           lengths(lf_emu_dnn_ref(op, LF_DNN_OPM_K), c[0]);
}

static bool sound_reduction(const struct lf_emu_desc *op)
{
    const int64_t *x = dims(lf_emu_dnn_ref(op, LF_DNN_OPR_X)),
                  *y = dims(lf_emu_dnn_ref(op, LF_DNN_OPR_Y));
    int reduced = 0;
    for (int i = 0; i < 4; i++) {
        if (x[i] % y[i])
            return false;
        reduced += x[i] != y[i];
    }
    return reduced == 1;
}

/* Only the change of place of the last two dimensions is known. */
static bool sound_reshape(const struct lf_emu_desc *op)
{
    const struct lf_emu_desc *x = lf_emu_dnn_ref(op, LF_DNN_RESHAPE_X),
                             *y = lf_emu_dnn_ref(op, LF_DNN_RESHAPE_Y);
    const int64_t *s = strides(x), *r = strides(y);
    return dims(x)[0] == dims(y)[0] && dims(x)[1] == dims(y)[1] && dims(x)[2] == dims(y)[3] &&
           dims(x)[3] == dims(y)[2] && s[0] == r[0] && s[1] == r[1] && s[2] == r[3] && s[3] == r[2];
}

static bool sound_ragged(const struct lf_emu_desc *t)
{
    const struct lf_emu_desc *o = lf_emu_dnn_ref(t, LF_DNN_TENSOR_RAGGED);
    return !o ||
           (dims(o)[0] == dims(t)[0] + 1 && lf_emu_dnn_enum(o, LF_DNN_TENSOR_TYPE) == LF_DNN_I64 &&
            !lf_emu_dnn_find(o, LF_DNN_TENSOR_VIRTUAL));
}

bool lf_emu_dnn_sound(const struct lf_emu_desc *graph)
{
    struct lf_emu_desc *t[LF_EMU_DNN_TENSORS];
    const struct lf_emu_attribute *ops = lf_emu_dnn_find(graph, LF_DNN_GRAPH_OPS);
    const int n = lf_emu_dnn_tensors(graph, t);
    bool ok = n > 0;
    for (int i = 0; i < n; i++)
        ok = ok && sound_ragged(t[i]);
    for (int64_t i = 0; ok && i < ops->n; i++) {
        const struct lf_emu_desc *op = ((struct lf_emu_desc **)ops->value)[i];
        ok = op->type == LF_DNN_OP_POINTWISE   ? sound_pointwise(op)
             : op->type == LF_DNN_OP_MATMUL    ? sound_product(op)
             : op->type == LF_DNN_OP_REDUCTION ? sound_reduction(op)
                                               : sound_reshape(op);
    }
    return ok;
}

/* ---- values ---- */

struct value {
    const struct lf_emu_desc *t;
    float *v; /* owned; NULL: not known yet */
};
struct machine {
    const struct lf_emu_dnn_job *j;
    struct value value[LF_EMU_DNN_TENSORS];
    int n;
};

static int64_t place(const struct lf_emu_desc *t)
{
    return lf_emu_dnn_int(t, LF_DNN_TENSOR_ID);
}
static int in_pack(const struct machine *m, const struct lf_emu_desc *t)
{
    for (int k = 0; k < m->j->n; k++)
        if (m->j->id[k] == place(t))
            return k;
    lf_emu_misuse("cuDNN: a tensor without address");
}

static float load(const void *p, int64_t i, int type)
{
    switch (type) {
    case LF_DNN_F32:
        return ((const float *)p)[i];
    case LF_DNN_I32:
        return (float)((const int32_t *)p)[i];
    case LF_DNN_BF16:
        return lf_bf16_f(((const uint16_t *)p)[i]);
    default:
        return lf_f16_f(((const uint16_t *)p)[i]);
    }
}
static void store(void *p, int64_t i, int type, float v)
{
    if (type == LF_DNN_F32)
        ((float *)p)[i] = v;
    else
        ((uint16_t *)p)[i] = type == LF_DNN_BF16 ? lf_f_bf16(v) : lf_f_f16(v);
}
static float rounded(float v, int type)
{
    return type == LF_DNN_BF16  ? lf_bf16_f(lf_f_bf16(v))
           : type == LF_DNN_F16 ? lf_f16_f(lf_f_f16(v))
                                : v;
}

/* Where element (b, h, i, j) lies; -1: beyond the rows that the offsets leave to this batch. */
static int64_t where(const struct machine *m, const struct lf_emu_desc *t, const int64_t x[4])
{
    const struct lf_emu_desc *o = lf_emu_dnn_ref(t, LF_DNN_TENSOR_RAGGED);
    const int64_t *s = strides(t), *d = dims(t);
    int64_t at = x[1] * s[1] + x[2] * s[2] + x[3] * s[3];
    if (!o)
        return at + x[0] * s[0];
    const int64_t *start = m->j->at[in_pack(m, o)];
    const int row = d[3] == 1 || s[2] > s[3] ? 2 : 3;
    return x[row] * s[row] < start[x[0] + 1] - start[x[0]] ? at + start[x[0]] : -1;
}

#define EACH(x, d)                                                                                 \
    for (int64_t x[4] = {0}; x[0] < (d)[0]; x[0]++)                                                \
        for (x[1] = 0; x[1] < (d)[1]; x[1]++)                                                      \
            for (x[2] = 0; x[2] < (d)[2]; x[2]++)                                                  \
                for (x[3] = 0; x[3] < (d)[3]; x[3]++)

static int64_t linear(const int64_t d[4], const int64_t x[4])
{
    return ((x[0] * d[1] + x[1]) * d[2] + x[2]) * d[3] + x[3];
}

static void read_memory(const struct machine *m, const struct value *v)
{
    const int64_t *d = dims(v->t);
    const int k = in_pack(m, v->t), type = lf_emu_dnn_enum(v->t, LF_DNN_TENSOR_TYPE);
    if (lf_emu_dnn_find(v->t, LF_DNN_TENSOR_BY_VALUE)) {
        v->v[0] = m->j->scalar[k];
        return;
    }
    EACH(x, d)
    {
        const int64_t at = where(m, v->t, x);
        v->v[linear(d, x)] = at < 0 ? NAN : load(m->j->at[k], at, type);
    }
}

static struct value *value(struct machine *m, const struct lf_emu_desc *t)
{
    for (int i = 0; i < m->n; i++)
        if (m->value[i].t == t)
            return &m->value[i];
    struct value *v = &m->value[m->n++];
    const int64_t *d = dims(t);
    *v = (struct value){t, malloc((size_t)(d[0] * d[1] * d[2] * d[3]) * sizeof(float))};
    if (!v->v)
        lf_emu_misuse("cuDNN: out of memory");
    return v;
}

/* An operand: of memory, or what an operation before made. */
static const struct value *operand(struct machine *m, const struct lf_emu_desc *t)
{
    const int before = m->n;
    if (!t)
        return NULL;
    const struct value *v = value(m, t);
    if (m->n > before) {
        if (lf_emu_dnn_find(t, LF_DNN_TENSOR_VIRTUAL))
            lf_emu_misuse("cuDNN: a result is used before it is made");
        read_memory(m, v);
    }
    return v;
}

static void result(const struct machine *m, const struct value *y)
{
    const int64_t *d = dims(y->t);
    const int type = lf_emu_dnn_enum(y->t, LF_DNN_TENSOR_TYPE);
    if (lf_emu_dnn_find(y->t, LF_DNN_TENSOR_VIRTUAL)) {
        for (int64_t i = 0; i < d[0] * d[1] * d[2] * d[3]; i++)
            y->v[i] = rounded(y->v[i], type);
        return;
    }
    void *to = m->j->at[in_pack(m, y->t)];
    EACH(x, d)
    {
        const int64_t at = where(m, y->t, x);
        if (at >= 0)
            store(to, at, type, m->j->spoil ? y->v[linear(d, x)] + 1 : y->v[linear(d, x)]);
    }
}

/* ---- operations ---- */

static float broadcast(const struct value *v, const int64_t y[4])
{
    const int64_t *d = dims(v->t);
    const int64_t x[4] = {d[0] == 1 ? 0 : y[0], d[1] == 1 ? 0 : y[1], d[2] == 1 ? 0 : y[2],
                          d[3] == 1 ? 0 : y[3]};
    return v->v[linear(d, x)];
}

static float compute(int mode, float x, float b)
{
    switch (mode) {
    case LF_DNN_ADD:
        return x + b;
    case LF_DNN_MUL:
        return x * b;
    case LF_DNN_DIV:
        return x / b;
    case LF_DNN_SUB:
        return x - b;
    case LF_DNN_EXP:
        return expf(x);
    case LF_DNN_LOG:
        return logf(x);
    case LF_DNN_GT:
        return x > b;
    case LF_DNN_GE:
        return x >= b;
    case LF_DNN_LT:
        return x < b;
    case LF_DNN_AND:
        return x != 0.0f && b != 0.0f;
    default:
        lf_emu_misuse("cuDNN: a pointwise operation it does not know");
    }
}

static void pointwise(struct machine *m, const struct lf_emu_desc *op)
{
    const struct lf_emu_desc *p = lf_emu_dnn_ref(op, LF_DNN_OPP_DESC);
    const int mode = lf_emu_dnn_enum(p, LF_DNN_POINTWISE_MODE);
    const int64_t axis = lf_emu_dnn_int(p, LF_DNN_POINTWISE_AXIS);
    const struct value *a = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPP_X)),
                       *b = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPP_B)),
                       *t = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPP_T)),
                       *y = value(m, lf_emu_dnn_ref(op, LF_DNN_OPP_Y));
    const int64_t *d = dims(y->t);
    EACH(x, d)
    {
        const float u = mode == LF_DNN_INDEX ? (float)x[axis] : broadcast(a, x),
                    w = b ? broadcast(b, x) : 0.0f;
        y->v[linear(d, x)] = mode == LF_DNN_INDEX    ? u
                             : mode == LF_DNN_SELECT ? (broadcast(t, x) != 0.0f ? u : w)
                                                     : compute(mode, u, w);
    }
    result(m, y);
}

static int64_t limit(const struct value *len, int64_t batch, int64_t all)
{
    return len ? (int64_t)len->v[batch] : all;
}

static void product(struct machine *m, const struct lf_emu_desc *op)
{
    const struct value *a = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPM_A)),
                       *b = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPM_B)),
                       *lm = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPM_M)),
                       *ln = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPM_N)),
                       *lk = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPM_K)),
                       *c = value(m, lf_emu_dnn_ref(op, LF_DNN_OPM_C));
    const int64_t *da = dims(a->t), *db = dims(b->t), *d = dims(c->t);
    EACH(x, d)
    {
        const int64_t inner = limit(lk, x[0], da[3]);
        double sum = x[2] < limit(lm, x[0], d[2]) && x[3] < limit(ln, x[0], d[3]) ? 0 : (double)NAN;
        for (int64_t k = 0; !isnan(sum) && k < inner; k++)
            sum += (double)a->v[linear(da, (int64_t[]){x[0], x[1] / (d[1] / da[1]), x[2], k})] *
                   (double)b->v[linear(db, (int64_t[]){x[0], x[1] / (d[1] / db[1]), k, x[3]})];
        c->v[linear(d, x)] = (float)sum;
    }
    result(m, c);
}

static void reduction(struct machine *m, const struct lf_emu_desc *op)
{
    const bool most =
        lf_emu_dnn_enum(lf_emu_dnn_ref(op, LF_DNN_OPR_DESC), LF_DNN_REDUCTION_MODE) == LF_DNN_MAX;
    const struct value *a = operand(m, lf_emu_dnn_ref(op, LF_DNN_OPR_X)),
                       *y = value(m, lf_emu_dnn_ref(op, LF_DNN_OPR_Y));
    const int64_t *da = dims(a->t), *d = dims(y->t);
    for (int64_t i = 0; i < d[0] * d[1] * d[2] * d[3]; i++)
        y->v[i] = most ? -INFINITY : 0.0f;
    EACH(x, da)
    {
        const int64_t to[4] = {x[0] / (da[0] / d[0]), x[1] / (da[1] / d[1]), x[2] / (da[2] / d[2]),
                               x[3] / (da[3] / d[3])};
        float *r = &y->v[linear(d, to)];
        const float v = a->v[linear(da, x)];
        *r = most ? (v > *r ? v : *r) : *r + v;
    }
    result(m, y);
}

static void reshape(struct machine *m, const struct lf_emu_desc *op)
{
    const struct value *a = operand(m, lf_emu_dnn_ref(op, LF_DNN_RESHAPE_X)),
                       *y = value(m, lf_emu_dnn_ref(op, LF_DNN_RESHAPE_Y));
    const int64_t *d = dims(y->t);
    EACH(x, d)
    y->v[linear(d, x)] = a->v[linear(dims(a->t), (int64_t[]){x[0], x[1], x[3], x[2]})];
    result(m, y);
}

void lf_emu_dnn_run(void *job)
{
    struct machine m = {.j = job};
    const struct lf_emu_attribute *ops = lf_emu_dnn_find(m.j->graph, LF_DNN_GRAPH_OPS);
    for (int64_t i = 0; i < ops->n; i++) {
        const struct lf_emu_desc *op = ((struct lf_emu_desc **)ops->value)[i];
        if (op->type == LF_DNN_OP_POINTWISE)
            pointwise(&m, op);
        else if (op->type == LF_DNN_OP_MATMUL)
            product(&m, op);
        else if (op->type == LF_DNN_OP_REDUCTION)
            reduction(&m, op);
        else
            reshape(&m, op);
    }
    for (int i = 0; i < m.n; i++)
        free(m.value[i].v);
}
