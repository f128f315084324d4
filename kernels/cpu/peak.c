/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured ceilings: multiply-adds in registers, memory reads.
 */
#include "config.h"

#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/peak.h"
#include "kernels/cpu/team.h"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Helpers of a queue whose last call is just over may still spin, on a processor that is to be
 * measured. */
static void await_rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2 * LF_TEAM_SPIN}, NULL);
}

#if defined(__x86_64__) || defined(__aarch64__)
static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define R12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define R24(X) R12(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)

/* What a thread does in one turn, and the FLOPs of a turn. */
struct spin {
    void (*run)(long n);
    double flop;
};
/* By CPU time an eighth of the turns tells as much: nobody else's time is in it, and its clock's
 * steps are a hundred-thousandth of these. */
enum { TURNS = 200000, FEW_TURNS = TURNS / 8 };
#endif

#if defined(__x86_64__)
#define XMM                                                                                        \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* Registers are zeroed first: speed does not depend on the values, subnormals would. */
static void spin_zmm(long n)
{
#define Z(i) __asm__ volatile("vpxord %%zmm" #i ",%%zmm" #i ",%%zmm" #i ::: "memory");
#define F(i) "vfmadd231ps %%zmm24,%%zmm25,%%zmm" #i "\n"
    R24(Z) Z(24) Z(25) for (long k = 0; k < n; k++) __asm__ volatile(R24(F) : : : XMM);
#undef F
}

static void spin_bf16(long n)
{
#define F(i) "vdpbf16ps %%zmm24,%%zmm25,%%zmm" #i "\n"
    R24(Z) Z(24) Z(25) for (long k = 0; k < n; k++) __asm__ volatile(R24(F) : : : XMM);
#undef F
#undef Z
}

static void spin_ymm(long n)
{
#define Z(i) __asm__ volatile("vpxor %%ymm" #i ",%%ymm" #i ",%%ymm" #i ::: "memory");
#define F(i) "vfmadd231ps %%ymm14,%%ymm15,%%ymm" #i "\n"
    R12(Z) Z(14) Z(15) for (long k = 0; k < n; k++) __asm__ volatile(R12(F) R12(F) : : : XMM);
#undef F
#undef Z
}

static void spin_xmm(long n)
{
#define F(i) "mulps %%xmm14,%%xmm" #i "\naddps %%xmm15,%%xmm" #i "\n"
    for (long k = 0; k < n; k++)
        __asm__ volatile("xorps %%xmm14,%%xmm14\nxorps %%xmm15,%%xmm15\n" R12(F) : : : XMM);
#undef F
}

static struct spin choose(enum lf_isa isa, bool bf16)
{
    if (bf16 && isa >= LF_ISA_AVX512BF16) /* elsewhere bf16 is computed by the FMAs of f32 */
        return (struct spin){spin_bf16, 24 * 64};
    return isa >= LF_ISA_AVX512 ? (struct spin){spin_zmm, 24 * 32}
           : isa == LF_ISA_AVX2 ? (struct spin){spin_ymm, 24 * 16}
                                : (struct spin){spin_xmm, 12 * 8};
}

#elif defined(__aarch64__)
#define V25                                                                                        \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25"
/* Registers are zeroed first: speed does not depend on the values, subnormals would. The assembler
 * is told of instructions that not every processor has. */
#define Z(i) "movi v" #i ".4s, #0\n"
#define SPIN(name, start, F)                                                                       \
    static void name(long n)                                                                       \
    {                                                                                              \
        __asm__ volatile(start R24(Z) Z(24) Z(25) "1:\n" R24(F) "subs %0, %0, #1\nb.ne 1b\n"       \
                         : "+r"(n)                                                                 \
                         :                                                                         \
                         : "cc", V25);                                                             \
    }
#define FMLA(i)    "fmla v" #i ".4s, v24.4s, v25.4s\n"
SPIN(spin_neon, "", FMLA)
#define BFDOT(i)   "bfdot v" #i ".4s, v24.8h, v25.8h\n"
SPIN(spin_bfdot, ".arch armv8.2-a+sve+bf16\n", BFDOT)
#define FMLA_Z(i)  "fmla z" #i ".s, p0/m, z24.s, z25.s\n"
SPIN(spin_sve, ".arch armv8.2-a+sve+bf16\nptrue p0.s\n", FMLA_Z)
#define BFDOT_Z(i) "bfdot z" #i ".s, z24.h, z25.h\n"
SPIN(spin_sve_bfdot, ".arch armv8.2-a+sve+bf16\n", BFDOT_Z)

static struct spin choose(enum lf_isa isa, bool bf16)
{
    switch (isa) {
    case LF_ISA_NEONBF16:
        return bf16 ? (struct spin){spin_bfdot, 24 * 16} : (struct spin){spin_neon, 24 * 8};
    case LF_ISA_SVE256BF16:
        return bf16 ? (struct spin){spin_sve_bfdot, 24 * 32} : (struct spin){spin_sve, 24 * 16};
    case LF_ISA_SVE512: /* its bf16 is computed by the FMAs of f32 */
        return (struct spin){spin_sve, 24 * 32};
    default:
        return (struct spin){spin_neon, 24 * 8};
    }
}
#endif

#if defined(__x86_64__) || defined(__aarch64__)
double lf_cpu_fma_peak(enum lf_isa isa, int threads, bool bf16)
{
    const struct spin s = choose(isa, bf16);
    await_rest();
    double t = now_s();
#pragma omp parallel num_threads(threads)
    s.run(TURNS);
    return s.flop * (double)TURNS * threads / (now_s() - t);
}

double lf_cpu_fma_rate(enum lf_isa isa, int threads, bool bf16)
{
    const struct spin s = choose(isa, bf16);
    double rate = 0;
#pragma omp parallel num_threads(threads) reduction(+ : rate)
    {
        const double t = thread_s();
        double took = 0, turns = 0;
        for (; !(took > 0); turns += FEW_TURNS) { /* some systems' clock ticks every 10 ms */
            s.run(FEW_TURNS);
            took = thread_s() - t;
        }
        rate += s.flop * turns / took;
    }
    return rate;
}
#else
double lf_cpu_fma_peak(enum lf_isa isa, int threads, bool bf16)
{
    (void)isa, (void)threads, (void)bf16;
    return 0;
}

double lf_cpu_fma_rate(enum lf_isa isa, int threads, bool bf16)
{
    (void)isa, (void)threads, (void)bf16;
    return 0;
}
#endif

double lf_cpu_read_rate(const void *p, size_t bytes, int threads)
{
    const uint64_t *w = p;
    const int64_t n = (int64_t)(bytes / 64);
    uint64_t sum = 0;
    await_rest();
    double t = now_s();
#pragma omp parallel for schedule(static) reduction(+ : sum) num_threads(threads)
    for (int64_t i = 0; i < n; i++) {
        uint64_t s = 0;
        for (int j = 0; j < 8; j++)
            s += w[8 * i + j];
        sum += s;
    }
    t = now_s() - t;
    __asm__ volatile("" ::"r"(sum));
    return (double)n * 64 / t;
}
