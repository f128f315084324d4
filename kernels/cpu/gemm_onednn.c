/* SPDX-License-Identifier: Apache-2.0
 *
 * The one file that knows oneDNN's C API, 2.6 to 3.x (3.0 made memory descriptors opaque and
 * dropped operation descriptors). Scratch memory is the caller's; primitives are kept per shape in
 * the queue.
 */
#include "config.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/gemm_onednn.h"

#ifdef HAVE_ONEDNN
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t lf_md;
#else
typedef dnnl_memory_desc_t *lf_md;
#endif

enum { ARGS_MAX = 5 };

struct lf_onednn_prim {
    struct lf_onednn_prim *next;
    struct lf_k_gemm key; /* pointers only as NULL or not */
    int threads;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t prim;
    dnnl_exec_arg_t arg[ARGS_MAX]; /* src, weights, dst, scratchpad, bias */
    int n_args;
    size_t scratch;
};

struct lf_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct lf_onednn_prim *prims;
};

static dnnl_data_type_t type_of(uint8_t t)
{
    return t == LF_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* rows x cols at distance ld, or its transpose. */
static int md_make(lf_md *md, int64_t rows, int64_t cols, int64_t ld, bool transposed, uint8_t type)
{
    dnnl_dims_t dims = {rows, cols}, strides = {transposed ? 1 : ld, transposed ? ld : 1};
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(md, 2, dims, type_of(type), strides) == dnnl_success
               ? 0
               : -1;
#else
    *md = malloc(sizeof **md);
    return *md && dnnl_memory_desc_init_by_strides(*md, 2, dims, type_of(type), strides) ==
                       dnnl_success
               ? 0
               : -1;
#endif
}

static void md_free(lf_md md)
{
#if DNNL_VERSION_MAJOR >= 3
    if (md)
        dnnl_memory_desc_destroy(md);
#else
    free(md);
#endif
}

static int attr_make(dnnl_primitive_attr_t *attr, bool accumulate)
{
    dnnl_post_ops_t ops = NULL;
    int rc = -1;
    if (dnnl_primitive_attr_create(attr) != dnnl_success ||
        dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) != dnnl_success)
        goto out;
    if (accumulate) {
#if DNNL_VERSION_MAJOR >= 3
        if (dnnl_post_ops_create(&ops) != dnnl_success ||
            dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef) != dnnl_success)
            goto out;
#else
        if (dnnl_post_ops_create(&ops) != dnnl_success ||
            dnnl_post_ops_append_sum(ops, 1.0f) != dnnl_success)
            goto out;
#endif
        if (dnnl_primitive_attr_set_post_ops(*attr, ops) != dnnl_success)
            goto out;
    }
    rc = 0;
out:
    if (ops)
        dnnl_post_ops_destroy(ops);
    return rc;
}

/* md: src, weights, dst, bias (or NULL) */
static int pd_make(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lf_md md[4],
                   dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(pd, engine, md[0], md[1], md[3], md[2], attr) ==
                   dnnl_success
               ? 0
               : -1;
#else
    dnnl_matmul_desc_t d;
    return dnnl_matmul_desc_init(&d, md[0], md[1], md[3], md[2]) == dnnl_success &&
                   dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) == dnnl_success
               ? 0
               : -1;
#endif
}

static size_t pd_scratch(dnnl_primitive_desc_t pd)
{
    return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

static int descriptors(const struct lf_k_gemm *g, lf_md md[4])
{
    memset(md, 0, 4 * sizeof *md);
    if (md_make(&md[0], g->m, g->k, g->lda, g->ta, g->ab_type) ||
        md_make(&md[1], g->k, g->n, g->ldb, g->tb, g->ab_type) ||
        md_make(&md[2], g->m, g->n, g->ldc, false, g->c_type))
        return -1;
    return g->bias ? md_make(&md[3], 1, g->n, g->n, false, g->bias_type) : 0;
}

static int pd_of(const struct lf_k_gemm *g, dnnl_engine_t engine, dnnl_primitive_desc_t *pd,
                 lf_md md[4])
{
    dnnl_primitive_attr_t attr = NULL;
    int rc = descriptors(g, md) || attr_make(&attr, g->accumulate) || pd_make(pd, engine, md, attr)
                 ? -1
                 : 0;
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return rc;
}

static void prim_free(struct lf_onednn_prim *p)
{
    for (int i = 0; i < ARGS_MAX; i++)
        if (p->arg[i].memory)
            dnnl_memory_destroy(p->arg[i].memory);
    if (p->prim)
        dnnl_primitive_destroy(p->prim);
    if (p->pd)
        dnnl_primitive_desc_destroy(p->pd);
    free(p);
}

static int add_arg(struct lf_onednn_prim *p, int which, const void *md, dnnl_engine_t engine)
{
    dnnl_exec_arg_t *a = &p->arg[p->n_args];
    a->arg = which;
#if DNNL_VERSION_MAJOR >= 3
    if (dnnl_memory_create(&a->memory, (const_dnnl_memory_desc_t)md, engine, DNNL_MEMORY_NONE) !=
        dnnl_success)
        return -1;
#else
    if (dnnl_memory_create(&a->memory, (const dnnl_memory_desc_t *)md, engine, DNNL_MEMORY_NONE) !=
        dnnl_success)
        return -1;
#endif
    p->n_args++;
    return 0;
}

static struct lf_onednn_prim *prim_make(struct lf_onednn *d, const struct lf_k_gemm *g, int threads)
{
    struct lf_onednn_prim *p = calloc(1, sizeof *p);
    lf_md md[4] = {0};
    int rc = -1;
    if (!p || pd_of(g, d->engine, &p->pd, md))
        goto out;
    p->key = *g;
    p->threads = threads;
    p->scratch = pd_scratch(p->pd);
    if (dnnl_primitive_create(&p->prim, p->pd) != dnnl_success)
        goto out;
    rc = add_arg(p, DNNL_ARG_SRC, md[0], d->engine) ||
         add_arg(p, DNNL_ARG_WEIGHTS, md[1], d->engine) ||
         add_arg(p, DNNL_ARG_DST, md[2], d->engine) ||
         add_arg(p, DNNL_ARG_SCRATCHPAD,
                 dnnl_primitive_desc_query_md(p->pd, dnnl_query_scratchpad_md, 0), d->engine) ||
         (g->bias && add_arg(p, DNNL_ARG_BIAS, md[3], d->engine));
out:
    for (int i = 0; i < 4; i++)
        md_free(md[i]);
    if (rc != 0 && p) {
        prim_free(p);
        p = NULL;
    }
    return p;
}

static bool same_shape(const struct lf_k_gemm *a, const struct lf_k_gemm *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb &&
           a->ldc == b->ldc && a->ta == b->ta && a->tb == b->tb && a->accumulate == b->accumulate &&
           !a->bias == !b->bias && a->ab_type == b->ab_type && a->c_type == b->c_type &&
           a->bias_type == b->bias_type;
}

static struct lf_onednn *library(lf_queue *q)
{
    if (q->onednn)
        return q->onednn;
    struct lf_onednn *d = calloc(1, sizeof *d);
    if (d && dnnl_engine_create(&d->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags) == dnnl_success)
        return q->onednn = d;
    if (d && d->engine)
        dnnl_engine_destroy(d->engine);
    free(d);
    return NULL;
}

static int run(struct lf_onednn *d, struct lf_onednn_prim *p, const struct lf_k_gemm *g)
{
    /* the library's signatures lack const; it reads src, weights and bias only */
    union {
        const void *in;
        void *out;
    } h[ARGS_MAX] = {{.in = g->a}, {.in = g->b}, {.out = g->c}, {.out = g->work}, {.in = g->bias}};
    h[3].out = (unsigned char *)g->work + (64 - (uintptr_t)g->work % 64) % 64;
    for (int i = 0; i < p->n_args; i++)
        if (dnnl_memory_set_data_handle(p->arg[i].memory, h[i].out) != dnnl_success)
            return LF_K_EDEVICE;
    bool ok = dnnl_primitive_execute(p->prim, d->stream, p->n_args, p->arg) == dnnl_success &&
              dnnl_stream_wait(d->stream) == dnnl_success;
    return ok ? LF_K_OK : LF_K_EDEVICE;
}

int lf_onednn_gemm(lf_queue *q, const struct lf_k_gemm *g)
{
    struct lf_onednn *d = library(q);
    if (!d)
        return LF_K_EDEVICE;
    const int before = omp_get_max_threads();
    omp_set_num_threads(q->threads);
    struct lf_onednn_prim *p = d->prims;
    while (p && !(p->threads == q->threads && same_shape(&p->key, g)))
        p = p->next;
    if (!p && (p = prim_make(d, g, q->threads))) {
        p->next = d->prims;
        d->prims = p;
    }
    int rc = !p ? LF_K_EDEVICE : g->work_bytes < p->scratch + 64 ? LF_K_EINVAL : run(d, p, g);
    omp_set_num_threads(before);
    return rc;
}

void lf_onednn_forget(lf_queue *q)
{
    struct lf_onednn *d = q->onednn;
    if (!d)
        return;
    while (d->prims) {
        struct lf_onednn_prim *p = d->prims;
        d->prims = p->next;
        prim_free(p);
    }
    dnnl_stream_destroy(d->stream);
    dnnl_engine_destroy(d->engine);
    free(d);
    q->onednn = NULL;
}

size_t lf_onednn_work(const struct lf_k_gemm *g, int threads)
{
    dnnl_engine_t engine = NULL;
    dnnl_primitive_desc_t pd = NULL;
    lf_md md[4] = {0};
    size_t n = 0;
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success && !pd_of(g, engine, &pd, md))
        n = pd_scratch(pd) + 64;
    omp_set_num_threads(before);
    for (int i = 0; i < 4; i++)
        md_free(md[i]);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (engine)
        dnnl_engine_destroy(engine);
    return n;
}

/* Whether the library multiplies these types on this processor: without AVX-512 it has no bf16.
 * Asked once for each, with a small product. */
static bool has(const struct lf_k_gemm *g)
{
    static atomic_uchar known[2][2][2][2]; /* 1: no, 2: yes */
    atomic_uchar *k =
        &known[g->ab_type == LF_BF16][g->c_type == LF_BF16][g->bias != NULL][g->accumulate];
    if (!atomic_load(k)) {
        struct lf_k_gemm small = {.m = 16,
                                  .n = 16,
                                  .k = 16,
                                  .lda = 16,
                                  .ldb = 16,
                                  .ldc = 16,
                                  .ab_type = g->ab_type,
                                  .c_type = g->c_type,
                                  .bias = g->bias,
                                  .bias_type = g->bias_type,
                                  .accumulate = g->accumulate,
                                  .mode = LF_FAST};
        atomic_store(k, lf_onednn_work(&small, 1) ? 2 : 1);
    }
    return atomic_load(k) == 2;
}

bool lf_onednn_wants(const struct lf_k_gemm *g)
{
    if (g->mode != LF_FAST || g->b_packed || g->pre || g->residual || g->act != LF_ACT_NONE ||
        g->m == 0)
        return false;
    if (g->bias && g->bias_type != g->c_type)
        return false;
    /* No shape class has shown the 3 % that would choose it unasked (kernels/README.md). */
    const char *choice = getenv("LF_GEMM");
    return choice && !strcmp(choice, "onednn") && !getenv("LF_ISA") && has(g);
}

const char *lf_cpu_gemm_algorithm(const struct lf_k_gemm *g)
{
    static char name[64];
    if (!lf_onednn_wants(g))
        return "own";
    const dnnl_version_t *v = dnnl_version(); /* of the library that runs, not of its header */
    snprintf(name, sizeof name, "onednn %d.%d.%d", v->major, v->minor, v->patch);
    return name;
}

#else

bool lf_onednn_wants(const struct lf_k_gemm *g)
{
    (void)g;
    return false;
}

size_t lf_onednn_work(const struct lf_k_gemm *g, int threads)
{
    (void)g, (void)threads;
    return 0;
}

int lf_onednn_gemm(lf_queue *q, const struct lf_k_gemm *g)
{
    (void)q, (void)g;
    return LF_K_EDEVICE;
}

void lf_onednn_forget(lf_queue *q)
{
    (void)q;
}

const char *lf_cpu_gemm_algorithm(const struct lf_k_gemm *g)
{
    (void)g;
    return "own";
}
#endif
