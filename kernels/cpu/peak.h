/* SPDX-License-Identifier: Apache-2.0
 *
 * Ceilings of this machine now: FLOP/s of `threads` threads doing nothing but multiply-adds in
 * registers for about 5 ms, of f32 or of pairs of bf16 where the instruction set has them (0 on
 * other processors than x86-64); bytes/s of them reading p[0 .. bytes).
 */
#ifndef LF_CPU_PEAK_H
#define LF_CPU_PEAK_H

#include "kernels/kernels.h"

double lf_cpu_fma_peak(enum lf_isa isa, int threads, bool bf16);
double lf_cpu_read_rate(const void *p, size_t bytes, int threads);

#endif
