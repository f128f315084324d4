/* SPDX-License-Identifier: Apache-2.0
 *
 * The ceilings that this machine has now. lf_cpu_fma_peak: FLOP/s of `threads` threads that only
 * multiply and add in registers for about 5 ms; f32, or pairs of bf16 where the instruction set has
 * them; 0 on processors other than x86-64 and AArch64. lf_cpu_read_rate: bytes/s of `threads`
 * threads that read p[0 ... bytes - 1]. lf_cpu_fma_rate: as lf_cpu_fma_peak, but by the CPU time of
 * each thread, so what other processes take away does not count.
 */
#ifndef LF_CPU_PEAK_H
#define LF_CPU_PEAK_H

#include "kernels/kernels.h"

double lf_cpu_fma_peak(enum lf_isa isa, int threads, bool bf16);
double lf_cpu_fma_rate(enum lf_isa isa, int threads, bool bf16);
double lf_cpu_read_rate(const void *p, size_t bytes, int threads);

#endif
