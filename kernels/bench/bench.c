/* SPDX-License-Identifier: Apache-2.0
 *
 * Medians, rates, and numbers that may be missing.
 */
#include "kernels/bench/bench.h"

#include <math.h>
#include <stdio.h>

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

double bench_per(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : (double)NAN;
}

const char *bench_number(char text[BENCH_NUMBER], int digits, double v)
{
    if (isfinite(v))
        snprintf(text, BENCH_NUMBER, "%.*g", digits, v);
    else
        snprintf(text, BENCH_NUMBER, "null");
    return text;
}
