/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated cuBLASLt. Matrices are column-major, as the library takes them.
 */
#include "kernels/cuda/emu/blaslt.h"

#include <stdlib.h>

#include "kernels/cuda/emu/emu.h"

enum { INVALID = 7, NOT_SUPPORTED = 15 };

struct op {
    int ta, tb, epilogue, bias_type;
    const void *bias;
};
struct layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
};

static struct lf_emu_blaslt_counts counts;
static bool refusing;

struct lf_emu_blaslt_counts lf_emu_blaslt_counts(bool refuse)
{
    refusing = refusing || refuse;
    return counts;
}

static int create(void **p, size_t bytes)
{
    *p = calloc(1, bytes);
    return *p ? 0 : INVALID;
}
static int destroy(void *p)
{
    free(p);
    return 0;
}

static int desc_create(void **op, int compute, int scale)
{
    return compute == LF_LT_COMPUTE_32F && scale == LF_LT_R_32F ? create(op, sizeof(struct op)) : INVALID;
}
static int desc_set(void *p, int what, const void *value, size_t bytes)
{
    struct op *op = p;
    void *to = what == LF_LT_DESC_TRANSA         ? (void *)&op->ta
               : what == LF_LT_DESC_TRANSB       ? (void *)&op->tb
               : what == LF_LT_DESC_EPILOGUE     ? (void *)&op->epilogue
               : what == LF_LT_DESC_BIAS_TYPE    ? (void *)&op->bias_type
               : what == LF_LT_DESC_BIAS_POINTER ? (void *)&op->bias
                                                 : NULL;
    if (!to || bytes != (what == LF_LT_DESC_BIAS_POINTER ? sizeof(void *) : sizeof(int)))
        return INVALID;
    memcpy(to, value, bytes);
    return 0;
}
static int layout_create(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    const struct layout x = {type, rows, cols, ld};
    if (ld < (int64_t)rows || create(l, sizeof x))
        return INVALID;
    memcpy(*l, &x, sizeof x);
    return 0;
}
static int handle_create(void **h)
{
    return create(h, 1);
}
static int pref_set(void *p, int what, const void *value, size_t bytes)
{
    (void)value;
    return p && what >= 0 && bytes == (what == LF_LT_PREF_WORKSPACE ? 8 : 4) ? 0 : INVALID;
}

static int heuristic(void *handle, void *op, void *a, void *b, void *c, void *d, void *p, int want,
                     struct lf_lt_heuristic *out, int *got)
{
    counts.asked++;
    *got = 0;
    if (refusing || !handle || !op || !a || !b || !c || !d || !p || want != 1)
        return NOT_SUPPORTED;
    *out = (struct lf_lt_heuristic){.algo = {{42}}};
    *got = 1;
    return 0;
}

static float load(const void *p, int64_t i, int type)
{
    return type == LF_LT_R_32F    ? ((const float *)p)[i]
           : type == LF_LT_R_16BF ? lf_bf16_f(((const uint16_t *)p)[i])
                                  : lf_f16_f(((const uint16_t *)p)[i]);
}
static void store(void *p, int64_t i, int type, float v)
{
    if (type == LF_LT_R_32F)
        ((float *)p)[i] = v;
    else
        ((uint16_t *)p)[i] = type == LF_LT_R_16BF ? lf_f_bf16(v) : lf_f_f16(v);
}
/* Element (i, j) of op(X). */
static float element(const void *x, const struct layout *l, int op, uint64_t i, uint64_t j)
{
    return load(x, (int64_t)(op == LF_LT_OP_T ? i : j) * l->ld + (int64_t)(op == LF_LT_OP_T ? j : i), l->type);
}

static int matmul(void *handle, void *desc, const void *alpha, const void *a, void *pa, const void *b, void *pb,
                  const void *beta, const void *c, void *pc, void *d, void *pd, const struct lf_lt_algo *algo,
                  void *work, size_t bytes, lf_cu_stream s)
{
    const struct op *op = desc;
    const struct layout *la = pa, *lb = pb, *lc = pc, *ld = pd;
    const uint64_t k = op->ta == LF_LT_OP_T ? la->rows : la->cols, m = op->ta == LF_LT_OP_T ? la->cols : la->rows;
    const uint64_t k2 = op->tb == LF_LT_OP_T ? lb->cols : lb->rows, n = op->tb == LF_LT_OP_T ? lb->rows : lb->cols;
    (void)work;
    (void)bytes;
    if (refusing || !handle || !s || algo->data[0] != 42 || k != k2 || m != ld->rows || n != ld->cols ||
        m != lc->rows || n != lc->cols || (op->bias && op->epilogue != LF_LT_EPILOGUE_BIAS))
        return INVALID;
    counts.products++;
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            float sum = 0, old = *(const float *)beta;
            for (uint64_t x = 0; x < k; x++)
                sum += element(a, la, op->ta, i, x) * element(b, lb, op->tb, x, j);
            sum *= *(const float *)alpha;
            if (old != 0.0f)
                sum += old * load(c, (int64_t)j * lc->ld + (int64_t)i, lc->type);
            if (op->bias)
                sum += load(op->bias, (int64_t)i, op->bias_type);
            store(d, (int64_t)j * ld->ld + (int64_t)i, ld->type, sum);
        }
    return 0;
}

static size_t version(void)
{
    return 130100;
}

void lf_emu_blaslt(struct lf_lt *out)
{
    *out = (struct lf_lt){.Create = handle_create,
                          .Destroy = destroy,
                          .MatmulDescCreate = desc_create,
                          .MatmulDescDestroy = destroy,
                          .MatmulDescSetAttribute = desc_set,
                          .MatrixLayoutCreate = layout_create,
                          .MatrixLayoutDestroy = destroy,
                          .MatmulPreferenceCreate = handle_create,
                          .MatmulPreferenceDestroy = destroy,
                          .MatmulPreferenceSetAttribute = pref_set,
                          .MatmulAlgoGetHeuristic = heuristic,
                          .Matmul = matmul,
                          .GetVersion = version};
}
