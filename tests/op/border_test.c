/* SPDX-License-Identifier: Apache-2.0
 *
 * Borders of tasks: long kernels call what lf_cpu_queue_border names, on the thread that called the
 * kernel and on no other, in each of its tasks, and compute the same bits. Kernels of whole models
 * are in tests/unit/graph_border.c.
 */
#include "config.h"

#include <pthread.h>

#include "tests/op/op_test.h"

enum { THREADS = 3 };

static struct {
    pthread_t caller;
    long calls;
    int strangers;
} seen;

static void border(void *arg)
{
    if (pthread_equal(pthread_self(), *(pthread_t *)arg))
        seen.calls++;
    else
        __atomic_fetch_add(&seen.strangers, 1, __ATOMIC_RELAXED);
}

/* Runs the kernel without and with borders. How many tasks of a team are the caller's is chance, so
 * only a team of one is counted. */
static void compare(int (*run)(const struct lf_kernels *, lf_queue *, struct op_buf *),
                    const struct lf_kernels *k, long least, const char *name)
{
    lf_queue *one = lf_cpu_queue_create(1), *team = lf_cpu_queue_create(THREADS);
    struct op_buf want, got, many;
    seen.caller = pthread_self();
    seen.calls = seen.strangers = 0;
    tap_ok(run(k, one, &want) == LF_K_OK && seen.calls == 0, "%s, %s: no border, no call", name,
           k->family);
    lf_cpu_queue_border(one, border, &seen.caller);
    tap_ok(run(k, one, &got) == LF_K_OK && seen.calls >= least, "%s, %s: %ld borders, at least %ld",
           name, k->family, seen.calls, least);
    lf_cpu_queue_border(team, border, &seen.caller);
    tap_ok(run(k, team, &many) == LF_K_OK && seen.strangers == 0,
           "%s, %s: three threads, of which only the caller calls", name, k->family);
    tap_ok(memcmp(got.p, want.p, want.bytes) == 0 && memcmp(many.p, want.p, want.bytes) == 0,
           "%s, %s: the same bits", name, k->family);
    op_free(&want);
    op_free(&got);
    op_free(&many);
    lf_cpu_queue_destroy(one);
    lf_cpu_queue_destroy(team);
}

static int product(const struct lf_kernels *k, lf_queue *q, struct op_buf *out)
{
    enum { M = 500, N = 300, K = 700 };
    struct op_buf a = op_random(M * K, LF_F32, 1, 1.0), b = op_random(N * K, LF_F32, 2, 1.0);
    *out = op_random(M * N, LF_F32, 3, 1.0);
    struct lf_k_gemm g = {.m = M,
                          .n = N,
                          .k = K,
                          .a = a.p,
                          .b = b.p,
                          .c = out->p,
                          .lda = K,
                          .ldb = K,
                          .ldc = N,
                          .tb = true,
                          .ab_type = LF_F32,
                          .c_type = LF_F32};
    g.work_bytes = k->gemm.work(&g, lf_cpu_queue_threads(q));
    g.work = malloc(g.work_bytes);
    int rc = k->gemm.run(q, &g);
    free(g.work);
    op_free(&a);
    op_free(&b);
    return rc;
}

static int experts(const struct lf_kernels *k, lf_queue *q, struct op_buf *out)
{
    enum { GROUPS = 4, ROWS = 400, N = 256, K = 256 };
    static const int32_t offsets[GROUPS + 1] = {0, 150, 150, 300, ROWS};
    struct op_buf x = op_random(ROWS * K, LF_F32, 4, 1.0),
                  w = op_random(GROUPS * N * K, LF_F32, 5, 1.0);
    *out = op_random(ROWS * N, LF_F32, 6, 1.0);
    struct lf_k_grouped_gemm g = {.groups = GROUPS,
                                  .m = ROWS,
                                  .n = N,
                                  .k = K,
                                  .offsets = offsets,
                                  .a = x.p,
                                  .b = w.p,
                                  .c = out->p,
                                  .lda = K,
                                  .ldb = K,
                                  .ldc = N,
                                  .tb = true,
                                  .ab_type = LF_F32,
                                  .c_type = LF_F32};
    g.work_bytes = k->grouped_gemm.work(&g, lf_cpu_queue_threads(q));
    g.work = malloc(g.work_bytes);
    int rc = k->grouped_gemm.run(q, &g);
    free(g.work);
    op_free(&x);
    op_free(&w);
    return rc;
}

static int optimizer(const struct lf_kernels *k, lf_queue *q, struct op_buf *out)
{
    enum { N = 500000 };
    struct op_buf g = op_random(N, LF_F32, 7, 1.0), m = op_random(N, LF_F32, 8, 1.0),
                  v = op_random(N, LF_F32, 9, 1.0);
    *out = op_random(N, LF_F32, 10, 1.0);
    for (int64_t i = 0; i < N; i++)
        ((float *)v.p)[i] = fabsf(((float *)v.p)[i]);
    struct lf_step_record rec = {
        .lr = 0.01f, .bias_corr1 = 0.1f, .bias_corr2 = 0.05f, .clip_factor = 1, .loss_scale = 1};
    struct lf_opt_tensor t = {.master = out->p,
                              .grad = g.p,
                              .m = m.p,
                              .v = v.p,
                              .n = N,
                              .lr_scale = 1,
                              .master_type = LF_F32,
                              .moment_type = LF_F32};
    const struct lf_k_adamw a = {
        .t = &t, .n_tensors = 1, .rec = &rec, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    int rc = k->adamw.run(q, &a);
    op_free(&g);
    op_free(&m);
    op_free(&v);
    return rc;
}

static void test_kernels(const struct lf_kernels *k)
{
    compare(product, k, 20, "product");
    compare(experts, k, 10, "products of experts");
    compare(optimizer, k, 15, "optimizer");
}

int main(void)
{
    for (int i = 0; i < OP_BACKENDS; i++)
        if (op_kernels(i))
            TAP(12, test_kernels(op_kernels(i)));
    return tap_done();
}
