/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products against the clock.
 */
#include "config.h"

#include "engine/train/measure.h"

#include <time.h>

#include "engine/back/back.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"

#define MOST_SIDE 2048
#define MOST_S    1.0 /* of wall time */

/* Of a step's time the products are a part. The fastest steps of models of 0.6 and 3.7 million
 * parameters on two cores reached 0.56 and 0.62 of the products' rate; validating and saving take
 * from that. */
#define SHARE 0.5

struct products {
    struct lf_k_gemm forward, inputs, weights;
    void *block;
    size_t bytes;
};

/* Up to whole lines of the cache. */
static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int64_t side(int64_t n)
{
    return n < 1 ? 1 : n > MOST_SIDE ? MOST_SIDE : n;
}

static size_t work_of(const lf_back *b, const struct lf_k_gemm *a)
{
    return b->kernels->gemm.work ? b->kernels->gemm.work(a, b->threads) : 0;
}

/* x and dx, w, y and dy, dw, and the workspace, one behind the other. */
static int make_products(struct products *p, const lf_back *b, const struct lf_measure *m,
                         const lf_model_config *mc, lf_err *err)
{
    const int64_t rows = side(m->rows), in = side(mc->hidden), out = side(mc->ffn);
    const enum lf_dtype t = m->compute == LF_BF16 ? LF_BF16 : LF_F32;
    const size_t size = t == LF_BF16 ? 2 : 4, x = lines((size_t)(rows * in) * size),
                 w = lines((size_t)(out * in) * size), y = lines((size_t)(rows * out) * size),
                 dw = lines((size_t)(out * in) * 4);
    const struct lf_k_gemm any = {
        .ab_type = (uint8_t)t, .c_type = (uint8_t)t, .bias_type = LF_F32, .mode = LF_FAST};
    p->forward = p->inputs = p->weights = any;
    p->forward.m = rows, p->forward.n = out, p->forward.k = in, p->forward.tb = true;
    p->forward.lda = in, p->forward.ldb = in, p->forward.ldc = out;
    p->inputs.m = rows, p->inputs.n = in, p->inputs.k = out;
    p->inputs.lda = out, p->inputs.ldb = in, p->inputs.ldc = in;
    p->weights.m = out, p->weights.n = in, p->weights.k = rows, p->weights.ta = true;
    p->weights.lda = out, p->weights.ldb = in, p->weights.ldc = in;
    p->weights.accumulate = true, p->weights.c_type = LF_F32;
    struct lf_k_gemm *all[] = {&p->forward, &p->inputs, &p->weights};
    size_t work = 0;
    for (int i = 0; i < 3; i++) {
        const size_t n = work_of(b, all[i]);
        work = n > work ? n : work;
    }
    p->bytes = 2 * x + w + y + dw + work;
    char *at = p->block = lf_pages_alloc(p->bytes, err);
    if (!at)
        return LF_ENOMEM;
    p->forward.a = p->weights.b = at;
    p->inputs.c = at + x;
    p->forward.b = p->inputs.b = at + 2 * x;
    p->forward.c = at + 2 * x + w;
    p->inputs.a = p->weights.a = at + 2 * x + w;
    p->weights.c = at + 2 * x + w + y;
    for (int i = 0; i < 3; i++) {
        all[i]->work = at + 2 * x + w + y + dw;
        all[i]->work_bytes = work;
    }
    return 0;
}

static double thread_s(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : lf_now_s();
}

static int run_round(const lf_back *b, const struct products *p)
{
    int rc = b->kernels->gemm.run(b->queue, &p->forward);
    if (rc == 0)
        rc = b->kernels->gemm.run(b->queue, &p->inputs);
    return rc == 0 ? b->kernels->gemm.run(b->queue, &p->weights) : rc;
}

int lf_train_measure(double *out, const struct lf_measure *m, const lf_model_config *mc,
                     lf_err *err)
{
    struct products p = {.block = NULL};
    const struct lf_device_opts d = {.device = LF_DEVICE_CPU, .threads = 1};
    lf_back *b = lf_back_create(&d, err);
    int rc = b ? make_products(&p, b, m, mc, err) : LF_ENOMEM;
    if (rc == 0 && run_round(b, &p) != 0) /* this one touches the memory */
        rc = lf_fail(err, LF_EINVAL, "the products that measure the machine cannot be computed");
    double best = 0, ran = 0;
    const double begin = lf_now_s();
    for (int i = 0; rc == 0 && (i < 2 || (ran < m->seconds && lf_now_s() - begin < MOST_S)); i++) {
        const double t = thread_s();
        (void)run_round(b, &p); /* as the first, which had no complaint */
        const double round = thread_s() - t;
        best = i == 0 || round < best ? round : best;
        ran += round;
    }
    const double wall = lf_now_s() - begin, core = ran < wall ? ran / wall : 1;
    if (rc == 0)
        *out = SHARE * core * m->threads * 6.0 * (double)p.forward.m * (double)p.forward.n *
               (double)p.forward.k / (best > 1e-9 ? best : 1e-9);
    lf_pages_free(p.block, p.bytes);
    lf_back_destroy(b);
    return rc;
}
