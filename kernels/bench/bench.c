/* SPDX-License-Identifier: Apache-2.0
 *
 * Medians.
 */
#include "kernels/bench/bench.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n)
{
    if (n == 0)
        return 0;
    qsort(v, (size_t)n, sizeof *v, compare);
    return v[n / 2];
}
