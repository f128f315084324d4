/* SPDX-License-Identifier: Apache-2.0
 *
 * Which instruction set runs. A set counts when the compiler made its kernels, the processor has
 * all of its instructions, and the operating system saves its registers (x86-64: XCR0; AArch64:
 * what it tells a process). Code for SVE also wants the vector length that this process has. LF_ISA
 * in the environment is an upper limit; a name that is not known limits nothing (lf_back_cpu_check
 * refuses it before).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

extern const struct lf_kernels lf_cpu_table_plain;
#ifdef HAVE_ISA_AVX2
extern const struct lf_kernels lf_cpu_table_avx2;
#endif
#ifdef HAVE_ISA_AVX512
extern const struct lf_kernels lf_cpu_table_avx512;
#endif
#ifdef HAVE_ISA_AVX512BF16
extern const struct lf_kernels lf_cpu_table_avx512bf16;
#endif
#ifdef HAVE_ISA_NEON
extern const struct lf_kernels lf_cpu_table_neon;
#endif
#ifdef HAVE_ISA_NEONBF16
extern const struct lf_kernels lf_cpu_table_neonbf16;
#endif
#ifdef HAVE_ISA_SVE256BF16
extern const struct lf_kernels lf_cpu_table_sve256bf16;
#endif
#ifdef HAVE_ISA_SVE512
extern const struct lf_kernels lf_cpu_table_sve512;
#endif

static const char *const isa_name[] = {"plain", "avx2",     "avx512",     "avx512bf16",
                                       "neon",  "neonbf16", "sve256bf16", "sve512"};

#if defined(__x86_64__)
static unsigned xcr0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    (void)hi;
    return lo;
}

static enum lf_isa best_avx(void)
{
    const unsigned avx2_1 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const unsigned avx512_7 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const unsigned ymm = 0x6, zmm = 0xe6; /* XCR0: SSE and AVX; also opmask, ZMM_Hi256, Hi16_ZMM */
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & avx2_1) != avx2_1 || (xcr0() & ymm) != ymm)
        return LF_ISA_PLAIN;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return LF_ISA_PLAIN;
    if ((b & avx512_7) != avx512_7 || (xcr0() & zmm) != zmm)
        return LF_ISA_AVX2;
    if (a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d) ||
        !(a & (1u << 5))) /* leaf 7.1 EAX bit 5: AVX512_BF16 */
        return LF_ISA_AVX512;
    return LF_ISA_AVX512BF16;
}

/* Asked once: a processor does not change, and where a hypervisor answers, each of the questions
 * takes some 25 us. */
static unsigned processor_sets(void)
{
    static atomic_uint found;
    unsigned sets = atomic_load_explicit(&found, memory_order_relaxed);
    if (!sets)
        atomic_store_explicit(&found, sets = (2u << best_avx()) - 1, memory_order_relaxed);
    return sets;
}
#elif defined(__aarch64__) && defined(__linux__)
/* Bits as Linux gives them to a process. Headers may be older than the names. */
enum { CAP_SVE = 22, CAP2_SVE_BF16 = 12, CAP2_BF16 = 14 };

static unsigned processor_sets(void)
{
    const unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    const int vl = cap >> CAP_SVE & 1 ? prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK : 0;
    unsigned sets = 1u << LF_ISA_PLAIN | 1u << LF_ISA_NEON;
    if (cap2 >> CAP2_BF16 & 1)
        sets |= 1u << LF_ISA_NEONBF16;
    if (vl == 256 / 8 && cap2 >> CAP2_SVE_BF16 & 1)
        sets |= 1u << LF_ISA_SVE256BF16;
    if (vl == 512 / 8)
        sets |= 1u << LF_ISA_SVE512;
    return sets;
}
#else
static unsigned processor_sets(void)
{
    return 1u << LF_ISA_PLAIN;
}
#endif

static const struct lf_kernels *compiled(enum lf_isa isa)
{
    switch (isa) {
    case LF_ISA_PLAIN:
        return &lf_cpu_table_plain;
#ifdef HAVE_ISA_AVX2
    case LF_ISA_AVX2:
        return &lf_cpu_table_avx2;
#endif
#ifdef HAVE_ISA_AVX512
    case LF_ISA_AVX512:
        return &lf_cpu_table_avx512;
#endif
#ifdef HAVE_ISA_AVX512BF16
    case LF_ISA_AVX512BF16:
        return &lf_cpu_table_avx512bf16;
#endif
#ifdef HAVE_ISA_NEON
    case LF_ISA_NEON:
        return &lf_cpu_table_neon;
#endif
#ifdef HAVE_ISA_NEONBF16
    case LF_ISA_NEONBF16:
        return &lf_cpu_table_neonbf16;
#endif
#ifdef HAVE_ISA_SVE256BF16
    case LF_ISA_SVE256BF16:
        return &lf_cpu_table_sve256bf16;
#endif
#ifdef HAVE_ISA_SVE512
    case LF_ISA_SVE512:
        return &lf_cpu_table_sve512;
#endif
    default:
        return NULL;
    }
}

const struct lf_kernels *lf_cpu_kernels(enum lf_isa isa)
{
    return processor_sets() >> isa & 1 ? compiled(isa) : NULL;
}

enum lf_isa lf_cpu_isa_detect(void)
{
    int best = LF_ISAS - 1;
    const char *limit = getenv("LF_ISA");
    for (int i = 0; limit && i < best; i++)
        if (!strcmp(limit, isa_name[i]))
            best = i;
    while (best > 0 && !lf_cpu_kernels((enum lf_isa)best))
        best--;
    return (enum lf_isa)best;
}

const char *lf_cpu_isa_name(enum lf_isa isa)
{
    return isa_name[isa];
}

bool lf_cpu_isa_known(enum lf_isa isa)
{
    if (isa == LF_ISA_PLAIN)
        return true;
#if defined(__aarch64__)
    return isa >= LF_ISA_NEON;
#else
    return isa < LF_ISA_NEON;
#endif
}
