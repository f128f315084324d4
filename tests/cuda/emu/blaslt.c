/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated cuBLASLt. Matrices are column-major, as the library takes them. Of 8-bit factors it
 * asks what the library's manual does: both with the summed dimension first, sizes that are
 * multiples of 16, not both e5m2, scales of both, and of blocks no two squares. An algorithm is for
 * the alignments and the workspace that it was asked for with, and is not asked for while a stream
 * is captured (CUDA 13.3 refuses that); workspace is aligned to 256 bytes.
 */
#include "tests/cuda/emu/blaslt.h"

#include <stdlib.h>

#include "engine/base/f8.h"
#include "tests/cuda/emu/run.h"
#include "tests/cuda/emu/state.h"

enum { INVALID = 7, NOT_SUPPORTED = 15, ALGORITHM = 42, WORK_ALIGN = 256, BIAS_ALIGN = 16 };

struct op {
    int ta, tb, epilogue, bias_type, a_mode, b_mode;
    const void *bias;
    const float *a_scale, *b_scale;
};
struct layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
};

struct preference {
    uint64_t work;
    uint32_t align[4];
};
/* What an algorithm keeps: see struct lf_lt_algo. */
enum { ALGO_WHICH, ALGO_WORK, ALGO_BIAS, ALGO_ALIGN };

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
    return compute == LF_LT_COMPUTE_32F && scale == LF_LT_R_32F ? create(op, sizeof(struct op))
                                                                : INVALID;
}
static int desc_set(void *p, int what, const void *value, size_t bytes)
{
    struct op *op = p;
    void *to = what == LF_LT_DESC_TRANSA            ? (void *)&op->ta
               : what == LF_LT_DESC_TRANSB          ? (void *)&op->tb
               : what == LF_LT_DESC_EPILOGUE        ? (void *)&op->epilogue
               : what == LF_LT_DESC_BIAS_TYPE       ? (void *)&op->bias_type
               : what == LF_LT_DESC_A_SCALE_MODE    ? (void *)&op->a_mode
               : what == LF_LT_DESC_B_SCALE_MODE    ? (void *)&op->b_mode
               : what == LF_LT_DESC_BIAS_POINTER    ? (void *)&op->bias
               : what == LF_LT_DESC_A_SCALE_POINTER ? (void *)&op->a_scale
               : what == LF_LT_DESC_B_SCALE_POINTER ? (void *)&op->b_scale
                                                    : NULL;
    const bool pointer =
        to == (void *)&op->bias || to == (void *)&op->a_scale || to == (void *)&op->b_scale;
    if (!to || bytes != (pointer ? sizeof(void *) : sizeof(int)))
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
static int pref_create(void **p)
{
    return create(p, sizeof(struct preference));
}
static int pref_set(void *p, int what, const void *value, size_t bytes)
{
    struct preference *pref = p;
    if (!p || bytes != (what == LF_LT_PREF_WORKSPACE ? 8 : 4))
        return INVALID;
    if (what == LF_LT_PREF_WORKSPACE)
        memcpy(&pref->work, value, bytes);
    else if (what >= LF_LT_PREF_ALIGN_A && what <= LF_LT_PREF_ALIGN_D)
        memcpy(&pref->align[what - LF_LT_PREF_ALIGN_A], value, bytes);
    else if (what != LF_LT_PREF_REDUCTION)
        return INVALID;
    return 0;
}

static bool narrow(const struct layout *l)
{
    return l->type == LF_LT_R_8F_E4M3 || l->type == LF_LT_R_8F_E5M2;
}

/* Whether the library has a product of these factors. */
static bool has(const struct op *op, const struct layout *a, const struct layout *b,
                const struct layout *d)
{
    if (!narrow(a) && !narrow(b))
        return op->a_mode == LF_LT_SCALE_SCALAR && op->b_mode == LF_LT_SCALE_SCALAR;
    const bool sizes = a->rows % 16 == 0 && a->cols % 16 == 0 && b->cols % 16 == 0 &&
                       a->ld % 16 == 0 && b->ld % 16 == 0;
    const bool blocks = op->a_mode != LF_LT_SCALE_SCALAR || op->b_mode != LF_LT_SCALE_SCALAR;
    const bool modes = blocks
                           ? op->a_mode >= LF_LT_SCALE_VEC128 && op->b_mode >= LF_LT_SCALE_VEC128 &&
                                 op->a_mode + op->b_mode < 2 * LF_LT_SCALE_BLK128
                           : true;
    return narrow(a) && narrow(b) && (a->type == LF_LT_R_8F_E4M3 || b->type == LF_LT_R_8F_E4M3) &&
           op->ta == LF_LT_OP_T && op->tb == LF_LT_OP_N && op->a_scale && op->b_scale && sizes &&
           modes && d->type != LF_LT_R_8F_E4M3 && !op->bias;
}

static int heuristic(void *handle, void *op, void *a, void *b, void *c, void *d, void *p, int want,
                     struct lf_lt_heuristic *out, int *got)
{
    counts.asked++;
    *got = 0;
    if (refusing || !handle || !op || !a || !b || !c || !d || !p || want != 1 ||
        !has(op, a, b, d) || lf_emu_not_captured())
        return NOT_SUPPORTED;
    const struct preference *pref = p;
    const struct op *product = op;
    *out = (struct lf_lt_heuristic){.algo = {{[ALGO_WHICH] = ALGORITHM, [ALGO_WORK] = pref->work}},
                                    .work = (size_t)pref->work};
    out->algo.data[ALGO_BIAS] =
        product->bias && (uintptr_t)product->bias % BIAS_ALIGN == 0 ? BIAS_ALIGN : 1;
    for (int i = 0; i < 4; i++)
        out->algo.data[ALGO_ALIGN + i] = pref->align[i];
    *got = 1;
    return 0;
}

static bool aligned(const void *p, uint64_t to)
{
    return to && (uintptr_t)p % (uintptr_t)to == 0;
}
/* Whether the call keeps to what the algorithm was chosen for. */
static bool as_promised(const struct lf_lt_algo *algo, const struct op *op, const void *const at[4],
                        const void *work, size_t bytes)
{
    const uint64_t *x = algo->data;
    bool ok = x[ALGO_WHICH] == ALGORITHM && bytes >= x[ALGO_WORK] &&
              (!bytes || (work && aligned(work, WORK_ALIGN)));
    for (int i = 0; i < 4; i++)
        ok = ok && aligned(at[i], x[ALGO_ALIGN + i]);
    return ok && (!op->bias || aligned(op->bias, x[ALGO_BIAS]));
}

static float load(const void *p, int64_t i, int type)
{
    switch (type) {
    case LF_LT_R_32F:
        return ((const float *)p)[i];
    case LF_LT_R_16BF:
        return lf_bf16_f(((const uint16_t *)p)[i]);
    case LF_LT_R_8F_E4M3:
        return lf_f32_of_e4m3(((const uint8_t *)p)[i]);
    case LF_LT_R_8F_E5M2:
        return lf_f32_of_e5m2(((const uint8_t *)p)[i]);
    default:
        return lf_f16_f(((const uint16_t *)p)[i]);
    }
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
    return load(x,
                (int64_t)(op == LF_LT_OP_T ? i : j) * l->ld + (int64_t)(op == LF_LT_OP_T ? j : i),
                l->type);
}

/* The scale of element x of the summed dimension in column i of a factor that has `outer` columns
 * and k rows. */
static float scale(const float *s, int mode, uint64_t i, uint64_t x, uint64_t outer, uint64_t k)
{
    if (!s)
        return 1;
    const uint64_t pitch = ((k + 127) / 128 + 3) / 4 * 4;
    return mode == LF_LT_SCALE_VEC128   ? s[x / 128 * outer + i]
           : mode == LF_LT_SCALE_BLK128 ? s[i / 128 * pitch + x / 128]
                                        : s[0];
}

/* A product in a stream's queue. */
struct job {
    struct op op;
    struct layout la, lb, lc, ld;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    uint64_t m, n, k;
};

/* As the real library does (seen on an H200, 13.1): with a bias, product + beta C is rounded to the
 * type of D before the bias is added. */
static void multiply(void *user)
{
    const struct job *w = user;
    const struct op *op = &w->op;
    for (uint64_t j = 0; j < w->n; j++)
        for (uint64_t i = 0; i < w->m; i++) {
            float sum = 0;
            for (uint64_t x = 0; x < w->k; x++)
                sum += element(w->a, &w->la, op->ta, i, x) *
                       scale(op->a_scale, op->a_mode, i, x, w->m, w->k) *
                       (element(w->b, &w->lb, op->tb, x, j) *
                        scale(op->b_scale, op->b_mode, j, x, w->n, w->k));
            sum *= w->alpha;
            if (w->beta != 0.0f)
                sum += w->beta * load(w->c, (int64_t)j * w->lc.ld + (int64_t)i, w->lc.type);
            const int64_t at = (int64_t)j * w->ld.ld + (int64_t)i;
            store(w->d, at, w->ld.type, sum);
            if (op->bias)
                store(w->d, at, w->ld.type,
                      (w->beta != 0.0f ? load(w->d, at, w->ld.type) : sum) +
                          load(op->bias, (int64_t)i, op->bias_type));
        }
}

static int matmul(void *handle, void *desc, const void *alpha, const void *a, void *pa,
                  const void *b, void *pb, const void *beta, const void *c, void *pc, void *d,
                  void *pd, const struct lf_lt_algo *algo, void *work, size_t bytes, lf_cu_stream s)
{
    const struct op *op = desc;
    const struct layout *la = pa, *lb = pb, *lc = pc, *ld = pd;
    const uint64_t k = op->ta == LF_LT_OP_T ? la->rows : la->cols,
                   m = op->ta == LF_LT_OP_T ? la->cols : la->rows;
    const uint64_t k2 = op->tb == LF_LT_OP_T ? lb->cols : lb->rows,
                   n = op->tb == LF_LT_OP_T ? lb->rows : lb->cols;
    if (refusing || !handle || !s ||
        !as_promised(algo, op, (const void *const[]){a, b, c, d}, work, bytes) || k != k2 ||
        m != ld->rows || n != ld->cols || m != lc->rows || n != lc->cols ||
        (op->bias && op->epilogue != LF_LT_EPILOGUE_BIAS) || !has(op, la, lb, ld))
        return INVALID;
    struct job *w = malloc(sizeof *w);
    if (!w)
        return INVALID;
    *w = (struct job){
        *op, *la, *lb, *lc, *ld, a, b, c, d, *(const float *)alpha, *(const float *)beta, m, n, k};
    counts.products++;
    return lf_emu_host_call(s, multiply, w, sizeof *w) ? INVALID : 0;
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
                          .MatmulPreferenceCreate = pref_create,
                          .MatmulPreferenceDestroy = destroy,
                          .MatmulPreferenceSetAttribute = pref_set,
                          .MatmulAlgoGetHeuristic = heuristic,
                          .Matmul = matmul,
                          .GetVersion = version};
}

/* Under the library's names too: LF_CUBLASLT=tests/libcuemu.so gives them to whole stages. */
#define NAMED(name, f)                                                                             \
    extern __typeof__(f) cublasLt##name __attribute__((alias(#f), visibility("default")));
NAMED(Create, handle_create)
NAMED(Destroy, destroy)
NAMED(MatmulDescCreate, desc_create)
NAMED(MatmulDescDestroy, destroy)
NAMED(MatmulDescSetAttribute, desc_set)
NAMED(MatrixLayoutCreate, layout_create)
NAMED(MatrixLayoutDestroy, destroy)
NAMED(MatmulPreferenceCreate, pref_create)
NAMED(MatmulPreferenceDestroy, destroy)
NAMED(MatmulPreferenceSetAttribute, pref_set)
NAMED(MatmulAlgoGetHeuristic, heuristic)
NAMED(Matmul, matmul)
NAMED(GetVersion, version)
