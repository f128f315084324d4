/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernel benchmarks share: clocks, medians, the FMA peak and the read bandwidth of this machine measured in the same process.
 * A sample is clean when the process got its full CPU time (CPU time > 97 % of threads x wall; let OpenMP threads spin:
 * OMP_WAIT_POLICY=active).
 */
#ifndef LF_BENCH_H
#define LF_BENCH_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/kernels.h"

static inline double bench_wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double bench_cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_cmp(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double bench_median(double *v, int n)
{
    if (n == 0)
        return 0;
    qsort(v, (size_t)n, sizeof *v, bench_cmp);
    return v[n / 2];
}

/* flop/s of `threads` threads doing nothing but multiply-adds in registers for about 5 ms: f32, or pairs of bf16 where the
 * instruction set has them. */
double bench_fma_peak(enum lf_isa isa, int threads, int bf16);
/* bytes/s of all threads reading p[0..bytes). */
double bench_read_rate(const void *p, size_t bytes, int threads);

#endif
