/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by cuBLASLt. It counts in columns: our row-major C[M,N] is its C^T[N,M], so its first
 * factor is our B and its second our A, each as it lies in memory. Sums are f32 (no TF32); of the
 * split-K forms only the one that reduces in f32 through the workspace in a step of its own is
 * allowed, so the same call gives the same bits.
 *
 * What it does itself: bias of c_type, one residual or the old C (beta 1). Where act or pre ask for
 * a rounding in between (kernels.h), it makes product + bias, and gemm_post goes on from there.
 * Anything else is left to our own product.
 *
 * 8-bit factors: both have K in the fast direction, as the library demands, and a scale on the
 * device for the tensor or for each block. Their bias is f32, which the library does not add to
 * 16-bit results, so gemm_post does. Sums keep the accuracy of f32 (no FAST_ACCUM).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm_args.h"
#include "kernels/cuda/gemm_blaslt.h"

enum {
    POST_THREADS = 256,
    POST_BLOCKS = 4096,
    ALIGN_MOST = 256,
    WORK_ALIGN = 256,
    FIRST_ENTRIES = 32
};

/* Everything that an algorithm depends on. All members are 8 bytes, so keys compare as memory. */
struct key {
    int64_t m, n, k, lda, ldb, ldc, ldd, flags, align[5], work;
};

struct entry {
    struct key key;
    void *op, *a, *b, *c, *d;
    struct lf_lt_algo algo;
    bool none; /* the library has no algorithm */
};

struct lf_blaslt {
    struct lf_lt lt;
    void *handle; /* NULL: not to be had */
    struct entry *entry;
    size_t n, cap;
    char name[32], name_wgmma[48]; /* beside our own products of either family */
};

/* It stays in memory once it was opened: it has a CUDA runtime of its own, which is torn down when
 * the process ends. */
#define HOW (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static bool load(struct lf_lt *lt)
{
    static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    const char *named = getenv("LF_CUBLASLT");
    void *f;
    if (named && named[0])
        lt->library = dlopen(named, HOW);
    for (size_t i = 0; (!named || !named[0]) && !lt->library && i < sizeof files / sizeof *files;
         i++)
        lt->library = dlopen(files[i], HOW);
    if (!lt->library)
        return false;
#define FIND(name, args)                                                                           \
    if (!(f = dlsym(lt->library, "cublasLt" #name)))                                               \
        return false;                                                                              \
    memcpy(&lt->name, &f, sizeof f);
    LF_LT_LIST(FIND)
#undef FIND
    if (!(f = dlsym(lt->library, "cublasLtGetVersion")))
        return false;
    memcpy(&lt->GetVersion, &f, sizeof f);
    return true;
}

static void forget(struct lf_blaslt *b)
{
    for (size_t i = 0; i < b->n; i++) {
        struct entry *e = &b->entry[i];
        void *layout[4] = {e->a, e->b, e->c, e->d};
        for (int l = 0; l < 4; l++)
            if (layout[l])
                b->lt.MatrixLayoutDestroy(layout[l]);
        if (e->op)
            b->lt.MatmulDescDestroy(e->op);
    }
    if (b->handle)
        b->lt.Destroy(b->handle);
    if (b->lt.library)
        dlclose(b->lt.library);
    free(b->entry);
    free(b);
}

void lf_blaslt_close(struct lf_cu_device *d)
{
    if (d->blaslt)
        forget(d->blaslt);
    d->blaslt = NULL;
}

int lf_blaslt_use(struct lf_cu_device *d, const struct lf_lt *lt)
{
    struct lf_blaslt *b = calloc(1, sizeof *b);
    if (!b)
        return LF_K_EDEVICE;
    lf_blaslt_close(d);
    if (lt)
        b->lt = *lt;
    if (!lt || b->lt.Create(&b->handle))
        b->handle = NULL;
    if (b->handle) {
        snprintf(b->name, sizeof b->name, "cublasLt %zu", b->lt.GetVersion());
        snprintf(b->name_wgmma, sizeof b->name_wgmma, "%s, own wgmma", b->name);
    }
    d->blaslt = b;
    return LF_K_OK;
}

/* The device's library, opened when first asked for; an emulated driver has none of its own. NULL:
 * do without. */
static struct lf_blaslt *library(struct lf_cu_device *d)
{
    if (!d->blaslt) {
        struct lf_lt lt = {0};
        const bool there = d->cu.library && load(&lt);
        if (!there && lt.library)
            dlclose(lt.library);
        if (lf_blaslt_use(d, there ? &lt : NULL)) {
            if (there)
                dlclose(lt.library);
            return NULL;
        }
    }
    return d->blaslt->handle ? d->blaslt : NULL;
}

const char *lf_cuda_gemm_algorithm(struct lf_cu_device *d, enum lf_numeric mode)
{
    const struct lf_blaslt *b = mode == LF_FAST ? library(d) : NULL;
    if (!d->wgmma)
        return b ? b->name : "own";
    return b ? b->name_wgmma : "own wgmma";
}

/* ---- a product's description ---- */

static int data_type(uint8_t t)
{
    switch (t) {
    case LF_BF16:
        return LF_LT_R_16BF;
    case LF_F16:
        return LF_LT_R_16F;
    case LF_E4M3:
        return LF_LT_R_8F_E4M3;
    case LF_E5M2:
        return LF_LT_R_8F_E5M2;
    default:
        return LF_LT_R_32F;
    }
}

static int64_t alignment(const void *p)
{
    int64_t a = ALIGN_MOST;
    while ((uintptr_t)p % (uintptr_t)a)
        a /= 2;
    return a;
}

/* One call: D = product + bias + beta C in the library's columns. */
struct call {
    const struct lf_k_gemm *g;
    const struct lf_k_gemm_fp8 *f; /* 8-bit factors; NULL: of ab_type */
    const void *c;
    void *d;
    int64_t ldc, ldd;
    bool post; /* gemm_post follows */
};

static bool describe(struct call *x, const struct lf_k_gemm *g)
{
    *x = (struct call){
        .g = g, .c = g->c, .d = g->c, .ldc = g->ldc, .ldd = g->ldc, .post = g->pre || g->act};
    if (x->post && g->residual == g->c && !g->pre)
        return false; /* the residual would be overwritten before it is read */
    if (g->bias && g->bias_type != g->c_type)
        return false;
    if (g->c_type != LF_F32 && g->c_type != g->ab_type)
        return false;
    if (x->post && g->pre) {
        x->c = x->d = g->pre;
        x->ldc = x->ldd = g->ldpre;
    } else if (!x->post && g->residual) {
        x->c = g->residual;
        x->ldc = g->ldres;
    }
    return true;
}

/* pre takes the product before gemm_post adds to it, so one buffer is enough. */
static bool describe_fp8(struct call *x, const struct lf_k_gemm_fp8 *f)
{
    const struct lf_k_gemm *g = &f->gemm;
    const bool post = g->pre || g->act || g->bias;
    *x = (struct call){
        .g = g, .f = f, .c = g->c, .d = g->c, .ldc = g->ldc, .ldd = g->ldc, .post = post};
    if (post && g->pre) {
        x->c = x->d = g->pre;
        x->ldc = x->ldd = g->ldpre;
    } else if (!post && g->residual) {
        x->c = g->residual;
        x->ldc = g->ldres;
    }
    return !post || g->residual != g->c; /* it would be overwritten before it is read */
}

static struct key key_of(const struct call *x)
{
    const struct lf_k_gemm *g = x->g;
    const struct lf_k_gemm_fp8 *f = x->f;
    const int64_t flags =
        g->ta | g->tb << 1 | g->c_type << 8 |
        (f ? 8 | f->a_type << 12 | f->b_type << 16 | f->a_scaling << 20 | f->b_scaling << 24
           : (g->bias != NULL) << 2 | g->ab_type << 4);
    return (struct key){
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .lda = g->lda,
        .ldb = g->ldb,
        .ldc = x->ldc,
        .ldd = x->ldd,
        .flags = flags,
        .align = {alignment(g->b), alignment(g->a), alignment(x->c), alignment(x->d),
                  g->bias && !f ? alignment(g->bias) : 0},
        .work = g->work && (uintptr_t)g->work % WORK_ALIGN == 0 ? (int64_t)g->work_bytes : 0};
}

static int layouts(const struct lf_lt *lt, struct entry *e, const struct call *x)
{
    const struct lf_k_gemm *g = x->g;
    const int a = data_type(x->f ? x->f->b_type : g->ab_type),
              b = data_type(x->f ? x->f->a_type : g->ab_type);
    const int c = data_type(g->c_type);
    const uint64_t m = (uint64_t)g->m, n = (uint64_t)g->n, k = (uint64_t)g->k;
    int rc = lt->MatrixLayoutCreate(&e->a, a, g->tb ? k : n, g->tb ? n : k, g->ldb);
    if (rc == 0)
        rc = lt->MatrixLayoutCreate(&e->b, b, g->ta ? m : k, g->ta ? k : m, g->lda);
    if (rc == 0)
        rc = lt->MatrixLayoutCreate(&e->c, c, n, m, x->ldc);
    return rc != 0 ? rc : lt->MatrixLayoutCreate(&e->d, c, n, m, x->ldd);
}

/* Where the scales lie; before every call, since that is not part of an entry's key. */
static int scale_pointers(const struct lf_lt *lt, struct entry *e, const struct lf_k_gemm_fp8 *f)
{
    int rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_A_SCALE_POINTER, &f->b_scale,
                                        sizeof f->b_scale);
    return rc != 0 ? rc
                   : lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_B_SCALE_POINTER, &f->a_scale,
                                                sizeof f->a_scale);
}

/* What kinds of scales; older libraries know scalars alone, and no attribute that says so. */
static int scales(const struct lf_lt *lt, struct entry *e, const struct lf_k_gemm_fp8 *f)
{
    static const int mode[] = {[LF_FP8_TENSOR] = LF_LT_SCALE_SCALAR,
                               [LF_FP8_VEC128] = LF_LT_SCALE_VEC128,
                               [LF_FP8_BLK128] = LF_LT_SCALE_BLK128};
    const int a = mode[f->b_scaling], b = mode[f->a_scaling];
    int rc = scale_pointers(lt, e, f);
    if (rc == 0 && a != LF_LT_SCALE_SCALAR)
        rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_A_SCALE_MODE, &a, sizeof a);
    if (rc == 0 && b != LF_LT_SCALE_SCALAR)
        rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_B_SCALE_MODE, &b, sizeof b);
    return rc;
}

static int operation(const struct lf_lt *lt, struct entry *e, const struct call *x)
{
    const struct lf_k_gemm *g = x->g;
    const bool with_bias = g->bias && !x->f;
    const int ta = g->tb ? LF_LT_OP_T : LF_LT_OP_N, tb = g->ta ? LF_LT_OP_T : LF_LT_OP_N,
              bias = LF_LT_EPILOGUE_BIAS, type = data_type(g->bias_type);
    int rc = lt->MatmulDescCreate(&e->op, LF_LT_COMPUTE_32F, LF_LT_R_32F);
    if (rc == 0)
        rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_TRANSA, &ta, sizeof ta);
    if (rc == 0)
        rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_TRANSB, &tb, sizeof tb);
    if (rc == 0 && x->f)
        rc = scales(lt, e, x->f);
    if (rc == 0 && with_bias)
        rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_EPILOGUE, &bias, sizeof bias);
    if (rc == 0 && with_bias)
        rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_BIAS_TYPE, &type, sizeof type);
    if (rc == 0 && with_bias) /* its alignment counts, as those of the matrices do */
        rc = lt->MatmulDescSetAttribute(e->op, LF_LT_DESC_BIAS_POINTER, &g->bias, sizeof g->bias);
    return rc;
}

static int choose(struct lf_blaslt *b, struct entry *e)
{
    const uint64_t bytes = (uint64_t)e->key.work;
    const uint32_t reduction = LF_LT_REDUCTION_COMPUTE_TYPE;
    struct lf_lt_heuristic found = {0};
    void *pref = NULL;
    int got = 0, rc = b->lt.MatmulPreferenceCreate(&pref);
    if (rc != 0)
        return rc;
    rc = b->lt.MatmulPreferenceSetAttribute(pref, LF_LT_PREF_WORKSPACE, &bytes, sizeof bytes);
    if (rc == 0)
        rc = b->lt.MatmulPreferenceSetAttribute(pref, LF_LT_PREF_REDUCTION, &reduction,
                                                sizeof reduction);
    for (int i = 0; i < 4 && rc == 0; i++) {
        const uint32_t align = (uint32_t)e->key.align[i];
        rc = b->lt.MatmulPreferenceSetAttribute(pref, LF_LT_PREF_ALIGN_A + i, &align, sizeof align);
    }
    if (rc == 0)
        rc = b->lt.MatmulAlgoGetHeuristic(b->handle, e->op, e->a, e->b, e->c, e->d, pref, 1, &found,
                                          &got);
    b->lt.MatmulPreferenceDestroy(pref);
    e->algo = found.algo;
    return rc != 0 ? rc : got < 1 || found.state || found.work > bytes;
}

/* The entry of this product, made when it is new. NULL: out of memory. */
static struct entry *find(struct lf_blaslt *b, const struct call *x)
{
    const struct key key = key_of(x);
    for (size_t i = 0; i < b->n; i++)
        if (memcmp(&b->entry[i].key, &key, sizeof key) == 0)
            return &b->entry[i];
    if (b->n == b->cap) {
        const size_t cap = b->cap ? 2 * b->cap : FIRST_ENTRIES;
        struct entry *more = realloc(b->entry, cap * sizeof *more);
        if (!more)
            return NULL;
        b->entry = more;
        b->cap = cap;
    }
    struct entry *e = &b->entry[b->n++];
    *e = (struct entry){.key = key};
    e->none = operation(&b->lt, e, x) || layouts(&b->lt, e, x) || choose(b, e);
    return e;
}

static int post(lf_queue *q, const struct call *x)
{
    struct lf_cu_gemm a = {.g = *x->g, .src = x->d, .ldsrc = x->ldd};
    if (!x->f) { /* these are done; 8-bit products have neither yet */
        a.g.bias = NULL;
        a.g.pre = NULL;
    }
    const int64_t blocks = (a.g.m * ((a.g.n + 1) / 2) + POST_THREADS - 1) / POST_THREADS;
    return lf_cu_launch(
        q, LF_CU_FN_gemm_post,
        (struct lf_cu_dim){.x = (unsigned)(blocks < POST_BLOCKS ? blocks : POST_BLOCKS)},
        (struct lf_cu_dim){.x = POST_THREADS}, 0, &a);
}

static int run(lf_queue *q, struct lf_blaslt *b, const struct call *x, bool *done)
{
    const struct lf_k_gemm *g = x->g;
    struct entry *e = find(b, x);
    if (!e || e->none)
        return LF_K_OK;
    const float one = 1, beta = g->accumulate || (!x->post && g->residual) ? 1 : 0;
    int rc = 0;
    if (x->f)
        rc = scale_pointers(&b->lt, e, x->f);
    else if (g->bias)
        rc = b->lt.MatmulDescSetAttribute(e->op, LF_LT_DESC_BIAS_POINTER, &g->bias, sizeof g->bias);
    if (rc == 0)
        rc = b->lt.Matmul(b->handle, e->op, &one, g->b, e->a, g->a, e->b, &beta, x->c, e->c, x->d,
                          e->d, &e->algo, e->key.work ? g->work : NULL, (size_t)e->key.work,
                          q->stream);
    if (rc != 0)
        return lf_cu_result(q, LF_CU_INVALID_VALUE,
                            "cublasLtMatmul"); /* its statuses are not the driver's */
    *done = true;
    return x->post ? post(q, x) : LF_K_OK;
}

int lf_blaslt_gemm(lf_queue *q, const struct lf_k_gemm *g, bool *done)
{
    struct lf_blaslt *b = library(q->dev);
    struct call x;
    *done = false;
    return b && describe(&x, g) ? run(q, b, &x, done) : LF_K_OK;
}

int lf_blaslt_gemm_fp8(lf_queue *q, const struct lf_k_gemm_fp8 *f, bool *done)
{
    struct lf_blaslt *b = library(q->dev);
    struct call x;
    *done = false;
    return b && describe_fp8(&x, f) ? run(q, b, &x, done) : LF_K_OK;
}
