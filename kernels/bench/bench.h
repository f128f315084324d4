/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernel benchmarks share: clocks and medians. The FMA peak and the read rate of this machine
 * come from lf_cpu_fma_peak and lf_cpu_read_rate (kernels/cpu/peak.h), measured in the same
 * process. A sample is clean when the process got its full CPU time: CPU time > 97 % of threads x
 * wall time, as threads of a queue spin while they wait, for 2 ms at most. OMP_WAIT_POLICY=passive
 * keeps the OpenMP threads that measured the peak from doing so on the same processors.
 */
#ifndef LF_BENCH_H
#define LF_BENCH_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/peak.h"

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

/* The median of v[0 ... n - 1], which it sorts; 0 for n = 0. */
double bench_median(double *v, int n);

/* The text that a table has where a time is not positive. */
#define BENCH_TOO_SHORT "too short to tell"

/* amount / seconds. NaN where seconds is not positive, as the difference of two times may be; no
 * rate follows from such a time. */
double bench_per(double amount, double seconds);

/* Write v as JSON with that many digits to text; null when v is not finite. Returns text. */
enum { BENCH_NUMBER = 32 };
const char *bench_number(char text[BENCH_NUMBER], int digits, double v);

#endif
