/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce of f32 over the ranks it is started as: bytes, microseconds (median over repetitions,
 * on rank 0), one line each. tests/bench/comm.sh runs it beside MPI's.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/comm/comm.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    enum { LARGEST = 8 << 20 };
    lf_err err = LF_ERR_INIT;
    lf_boot *b = lf_boot_create(&err);
    lf_comm *c = b ? lf_comm_create(b, &err) : NULL;
    float *x = c ? lf_calloc(LARGEST, sizeof *x, &err) : NULL;
    int rc = x ? 0 : LF_ENOMEM;
    static const size_t sizes[] = {1, 1 << 10, 1 << 14, 1 << 18, 1 << 20, LARGEST};
    for (size_t s = 0; rc == 0 && s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t n = sizes[s];
        double t[200];
        const int k = n < 100000 ? 200 : 15;
        for (int i = -3; rc == 0 && i < k; i++) {
            rc = lf_comm_barrier(c, &err);
            double t0 = lf_now_s();
            if (rc == 0)
                rc = lf_comm_all_reduce(c, x, n, LF_COMM_F32, LF_COMM_SUM, &err);
            if (i >= 0)
                t[i] = lf_now_s() - t0;
        }
        qsort(t, (size_t)k, sizeof *t, by_value);
        if (rc == 0 && c->rank == 0)
            printf("%s %zu %.1f\n", c->ops->name, n * sizeof *x, t[k / 2] * 1e6);
    }
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    free(x);
    lf_comm_destroy(c);
    lf_boot_destroy(b);
    return rc ? 1 : 0;
}
