/* SPDX-License-Identifier: Apache-2.0
 *
 * What the instruction set has that a source is compiled for (-DLF_CPU_ISA, a number of enum
 * lf_isa), and how its names end. LF_AVX2 also holds for AVX-512. Code for SVE is compiled for one
 * vector length, which is part of the name: the order of sums depends on it.
 *
 *   LF_VL        floats in a vector
 *   LF_REGS      vector registers
 *   LF_BF16_DOT  pairs of bf16 are multiplied and added to an f32 in one instruction
 */
#ifndef LF_CPU_ISA_H
#define LF_CPU_ISA_H

#define LF_AVX2   (LF_CPU_ISA >= 1 && LF_CPU_ISA <= 3)
#define LF_AVX512 (LF_CPU_ISA == 2 || LF_CPU_ISA == 3)
#define LF_NEON   (LF_CPU_ISA == 4 || LF_CPU_ISA == 5)
#define LF_SVE    (LF_CPU_ISA == 6 || LF_CPU_ISA == 7)

#define LF_BF16_DOT (LF_CPU_ISA == 3 || LF_CPU_ISA == 5 || LF_CPU_ISA == 6)
#define LF_REGS     (LF_AVX512 || LF_NEON || LF_SVE ? 32 : 16)

#if LF_AVX512 || LF_CPU_ISA == 7
#define LF_VL 16
#elif LF_AVX2 || LF_CPU_ISA == 6
#define LF_VL 8
#else
#define LF_VL 4
#endif

#if LF_CPU_ISA == 0
#define LF_SYM(name)  lf_cpu_##name##_plain
#define LF_CPU_FAMILY "cpu-plain"
#elif LF_CPU_ISA == 1
#define LF_SYM(name)  lf_cpu_##name##_avx2
#define LF_CPU_FAMILY "cpu-avx2"
#elif LF_CPU_ISA == 2
#define LF_SYM(name)  lf_cpu_##name##_avx512
#define LF_CPU_FAMILY "cpu-avx512"
#elif LF_CPU_ISA == 3
#define LF_SYM(name)  lf_cpu_##name##_avx512bf16
#define LF_CPU_FAMILY "cpu-avx512bf16"
#elif LF_CPU_ISA == 4
#define LF_SYM(name)  lf_cpu_##name##_neon
#define LF_CPU_FAMILY "cpu-neon"
#elif LF_CPU_ISA == 5
#define LF_SYM(name)  lf_cpu_##name##_neonbf16
#define LF_CPU_FAMILY "cpu-neonbf16"
#elif LF_CPU_ISA == 6
#define LF_SYM(name)  lf_cpu_##name##_sve256bf16
#define LF_CPU_FAMILY "cpu-sve256bf16"
#else
#define LF_SYM(name)  lf_cpu_##name##_sve512
#define LF_CPU_FAMILY "cpu-sve512"
#endif

#endif
