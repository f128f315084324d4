/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend that a test of tests/op runs on. Compiled as it is: every instruction set of the CPU.
 * Compiled with OP_CUDA: the CUDA kernels, on the emulator, or on GPU 0 where LF_REQUIRE_GPU is set
 * in the environment. Every pointer in an argument struct comes from op_alloc then (memory that
 * both sides see), the step record and tables of pointers too; calls have completed when they
 * return.
 */
#ifndef LF_TESTS_OP_CUDA_H
#define LF_TESTS_OP_CUDA_H

#include "kernels/kernels.h"

#ifdef OP_CUDA
enum {
    OP_BACKENDS = 1,
    OP_THREADS = 1,
    OP_LAST_FLOAT = LF_F16
}; /* activation types: LF_F32 ... OP_LAST_FLOAT */
/* NULL: this machine lacks backend i; bails out where a GPU is required and missing */
const struct lf_kernels *op_kernels(int i);
lf_queue *op_queue_create(int threads);
void op_queue_destroy(lf_queue *q);
void op_queue_wait(lf_queue *q); /* within a call: for what it has queued */
void *op_memory(size_t bytes);   /* 64-byte aligned */
void op_memory_free(void *p);
bool op_on_gpu(void); /* a real one is asked for */
/* Whether 16-bit products and attention run on compute capability 9.0's instructions from here on;
 * false also where the device or this build has none. At first they do not. */
bool op_wgmma(bool on);
/* From here on launchers think that a block may have so many bytes of shared memory. Returns how
 * many it was before. */
int op_shared(int bytes);
#else
#include <stdlib.h>
enum {
#ifdef __aarch64__
    OP_BACKENDS = 1 + LF_ISAS - LF_ISA_NEON, /* plain, and those of this architecture */
#else
    OP_BACKENDS = LF_ISA_AVX512BF16 + 1,
#endif
    OP_THREADS = 3 /* queues of 1 to 3 threads differ */,
    OP_LAST_FLOAT = LF_BF16
};
static inline const struct lf_kernels *op_kernels(int i)
{
    return lf_cpu_kernels(
        (enum lf_isa)(i > 0 && lf_cpu_isa_known(LF_ISA_NEON) ? i - 1 + LF_ISA_NEON : i));
}
static inline lf_queue *op_queue_create(int threads)
{
    return lf_cpu_queue_create(threads);
}
static inline void op_queue_destroy(lf_queue *q)
{
    lf_cpu_queue_destroy(q);
}
static inline void op_queue_wait(lf_queue *q)
{
    (void)q;
}
static inline void *op_memory(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}
static inline void op_memory_free(void *p)
{
    free(p);
}
#endif

#endif
