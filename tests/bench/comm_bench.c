/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce of f32 over the ranks it is started as: bytes, microseconds (median over repetitions,
 * on rank 0), one line each. tests/bench/comm.sh runs it beside MPI's. With the argument swap an
 * all-to-all of equal parts, as ranks of the context and the expert axis do: the bytes that a rank
 * sends, microseconds.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/comm/comm.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench {
    lf_comm *c;
    bool swap;
    float *x, *y;
    size_t *parts; /* bytes of each rank */
};

static int once(const struct bench *b, size_t n, lf_err *err)
{
    if (!b->swap)
        return lf_comm_all_reduce(b->c, b->x, n, LF_COMM_F32, LF_COMM_SUM, err);
    for (int r = 0; r < b->c->size; r++)
        b->parts[r] = n / (size_t)b->c->size * sizeof *b->x;
    return lf_comm_all_to_all(b->c, b->y, b->parts, b->x, b->parts, err);
}

/* The median of some repetitions, in seconds. */
static int measure(const struct bench *b, size_t n, double *median, lf_err *err)
{
    double t[200];
    const int k = n < 100000 ? 200 : 15;
    int rc = 0;
    for (int i = -3; rc == 0 && i < k; i++) {
        rc = lf_comm_barrier(b->c, err);
        const double t0 = lf_now_s();
        if (rc == 0)
            rc = once(b, n, err);
        if (i >= 0)
            t[i] = lf_now_s() - t0;
    }
    if (rc == 0)
        qsort(t, (size_t)k, sizeof *t, by_value);
    *median = rc == 0 ? t[k / 2] : 0;
    return rc;
}

int main(int argc, char **argv)
{
    enum { LARGEST = 8 << 20 };
    lf_err err = LF_ERR_INIT;
    lf_boot *b = lf_boot_create(&err);
    lf_comm *c = b ? lf_comm_create(b, &err) : NULL;
    struct bench of = {.c = c, .swap = argc > 1 && strcmp(argv[1], "swap") == 0};
    of.x = c ? lf_calloc(LARGEST, sizeof *of.x, &err) : NULL;
    of.y = c ? lf_calloc(LARGEST, sizeof *of.y, &err) : NULL;
    of.parts = c ? lf_calloc((size_t)c->size, sizeof *of.parts, &err) : NULL;
    int rc = of.x && of.y && of.parts ? 0 : LF_ENOMEM;
    static const size_t sizes[] = {1, 1 << 10, 1 << 14, 1 << 18, 1 << 20, LARGEST};
    for (size_t s = 0; rc == 0 && s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t n = sizes[s], others = (size_t)c->size - 1;
        double median;
        rc = measure(&of, n, &median, &err);
        if (rc == 0 && c->rank == 0)
            printf("%s %zu %.1f\n", c->ops->name,
                   of.swap ? n / (size_t)c->size * others * sizeof *of.x : n * sizeof *of.x,
                   median * 1e6);
    }
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    free(of.x);
    free(of.y);
    free(of.parts);
    lf_comm_destroy(c);
    lf_boot_destroy(b);
    return rc ? 1 : 0;
}
