/* SPDX-License-Identifier: Apache-2.0
 *
 * How long messages take while every rank computes. Each rank sends to the next and computes matrix
 * products of some hundred milliseconds for half a second. One line for each size, with and without
 * lf_comm_poll at the borders of tasks: bytes, milliseconds until the last byte lay in the
 * receiver's memory (median and largest, of all ranks), the same by the receiver's CPU time, which
 * other processes of the machine disturb less, and the longest time between two borders.
 * tests/bench/comm_move.sh runs it over several transports.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/back/back.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/comm/comm.h"

#define COMPUTE_S 0.5
enum { SIDE = 2048, TIMES = 9, RANKS = 64 };

static lf_err err = LF_ERR_INIT;

struct bench {
    lf_comm *c;
    lf_back *back;
    struct lf_k_gemm g;
    volatile unsigned char *last; /* byte of the message */
    bool polls;
    double t0, arrived; /* 0: not yet */
    double cpu0, cpu;   /* of this process, then and until it came */
    double border, gap; /* when the last was, and the longest time between two */
};

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void came(struct bench *b)
{
    b->arrived = lf_now_s() - b->t0;
    b->cpu = cpu_s() - b->cpu0;
}

static void at_border(void *arg)
{
    struct bench *b = arg;
    const double t = lf_now_s();
    if (b->border > 0 && t - b->border > b->gap)
        b->gap = t - b->border;
    b->border = t;
    if (b->polls)
        lf_comm_poll(b->c);
    if (b->arrived <= 0 && *b->last)
        came(b);
}

static int open_products(struct bench *b)
{
    const size_t bytes = (size_t)SIDE * SIDE * sizeof(float);
    b->back = lf_back_cpu_create(lf_cpu_isa_detect(), 1, &err);
    if (!b->back)
        return err.rc;
    b->g = (struct lf_k_gemm){.m = SIDE,
                              .n = SIDE,
                              .k = SIDE,
                              .lda = SIDE,
                              .ldb = SIDE,
                              .ldc = SIDE,
                              .tb = true,
                              .ab_type = LF_F32,
                              .c_type = LF_F32};
    b->g.work_bytes = b->back->kernels->gemm.work(&b->g, 1);
    b->g.a = b->back->ops->alloc(b->back, bytes, &err);
    b->g.b = b->back->ops->alloc(b->back, bytes, &err);
    b->g.c = b->back->ops->alloc(b->back, bytes, &err);
    b->g.work = b->back->ops->alloc(b->back, b->g.work_bytes, &err);
    lf_back_set_border(b->back, at_border, b);
    return err.rc;
}

/* One exchange; the time until it came. */
static int exchange(struct bench *b, unsigned char *in, const unsigned char *out, size_t n)
{
    const int p = b->c->size, me = b->c->rank;
    lf_comm_req q[2] = {{0}};
    memset(in, 0, n);
    b->last = in + n - 1;
    b->arrived = b->border = 0;
    int rc = lf_comm_irecv(b->c, in, n, (me + p - 1) % p, 0, &q[0], &err);
    rc = rc != 0 ? rc : lf_comm_barrier(b->c, &err);
    b->t0 = lf_now_s();
    b->cpu0 = cpu_s();
    rc = rc != 0 ? rc : lf_comm_isend(b->c, out, n, (me + 1) % p, 0, &q[1], &err);
    while (rc == 0 && lf_now_s() - b->t0 < COMPUTE_S)
        rc = b->back->kernels->gemm.run(b->back->queue, &b->g);
    rc = rc != 0 ? rc : lf_comm_wait(&q[0], &err);
    if (b->arrived <= 0)
        came(b);
    return rc != 0 ? rc : lf_comm_wait(&q[1], &err);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(struct bench *b, size_t n)
{
    unsigned char *in = lf_malloc(1, n, &err), *out = lf_malloc(1, n, &err);
    double t[RANKS * TIMES], cpu[RANKS * TIMES];
    size_t bytes[RANKS];
    int rc = in && out ? 0 : LF_ENOMEM;
    for (int r = 0; r < b->c->size; r++)
        bytes[r] = TIMES * sizeof *t;
    if (out)
        memset(out, 7, n);
    b->gap = 0;
    for (int i = -1; rc == 0 && i < TIMES; i++) { /* the first makes the connection */
        rc = exchange(b, in, out, n);
        if (i >= 0)
            t[b->c->rank * TIMES + i] = b->arrived, cpu[b->c->rank * TIMES + i] = b->cpu;
    }
    rc = rc != 0 ? rc : lf_comm_all_gather(b->c, t, bytes, &err);
    rc = rc != 0 ? rc : lf_comm_all_gather(b->c, cpu, bytes, &err);
    rc = rc != 0 ? rc : lf_comm_all_reduce(b->c, &b->gap, 1, LF_COMM_F64, LF_COMM_MAX, &err);
    const size_t all = (size_t)b->c->size * TIMES;
    if (rc == 0) {
        qsort(t, all, sizeof *t, by_value);
        qsort(cpu, all, sizeof *cpu, by_value);
        if (b->c->rank == 0)
            printf("%-8s %9zu %9.2f %9.2f %9.2f %9.2f %9.2f\n", b->polls ? "polls" : "computes", n,
                   t[all / 2] * 1e3, t[all - 1] * 1e3, cpu[all / 2] * 1e3, cpu[all - 1] * 1e3,
                   b->gap * 1e3);
    }
    free(in);
    free(out);
    return rc;
}

int main(void)
{
    static const size_t sizes[] = {64 << 10, 3 << 20, 32 << 20};
    lf_boot *boot = lf_boot_create(&err);
    struct bench b = {.c = boot ? lf_comm_create(boot, &err) : NULL};
    int rc = b.c && b.c->size > 1 && b.c->size <= RANKS ? open_products(&b) : LF_EINVAL;
    for (int i = 0; rc == 0 && i < 6; i++) {
        b.polls = i < 3;
        rc = measure(&b, sizes[i % 3]);
    }
    if (rc)
        fprintf(stderr, "%s\n", err.text[0] ? err.text : "start this as 2 to 64 ranks");
    lf_back_destroy(b.back);
    lf_comm_destroy(b.c);
    lf_boot_destroy(boot);
    return rc ? 1 : 0;
}
