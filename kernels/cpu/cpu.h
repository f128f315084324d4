/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the CPU backend: the queue, and how one source file gives one symbol per instruction set.
 * Sources listed in LF_CPU_ISA_SOURCES are compiled once per instruction set with
 * -DLF_CPU_ISA=NUMBER (kernels/cpu/isa.h). Each external name in them is written LF_SYM(name):
 * LF_SYM(gemm) is lf_cpu_gemm_avx2 in the AVX2 library.
 *
 * A kernel `name` provides three functions: LF_SYM(name) (run), LF_SYM(name_check) and
 * LF_SYM(name_work). LF_CPU_DECLARE(name) declares them for each line of LF_CPU_KERNEL_LIST.
 */
#ifndef LF_CPU_CPU_H
#define LF_CPU_CPU_H

#include "kernels/cpu/team.h"
#include "kernels/kernels.h"
#ifdef LF_CPU_ISA
#include "kernels/cpu/isa.h"
#endif

struct lf_onednn;

struct lf_queue {
    int threads;
    void (*border)(void *arg); /* lf_cpu_queue_border */
    void *border_arg;
    struct lf_team *team;     /* helpers, or NULL as long as no call wanted any */
    struct lf_onednn *onednn; /* primitives by shape, or NULL; kernels/cpu/gemm_onednn.c */
};

/* Between two tasks of a kernel, on the thread that called it. */
static inline void lf_border(const lf_queue *q)
{
    if (q->border && !lf_team_helps())
        q->border(q->border_arg);
}

#ifdef LF_CPU_ISA
#define LF_CPU_DECLARE(name)                                                                       \
    int LF_SYM(name)(lf_queue * q, const struct lf_k_##name *a);                                   \
    int LF_SYM(name##_check)(const struct lf_k_##name *a);                                         \
    size_t LF_SYM(name##_work)(const struct lf_k_##name *a, int threads);

extern const struct lf_kernels LF_SYM(table);
#endif

#endif
