/* SPDX-License-Identifier: Apache-2.0
 *
 * Which instruction set runs. A set counts when the compiler made its kernels, the processor has
 * all of its instructions, and the operating system saves its registers (XCR0). LF_ISA in the
 * environment is an upper limit; a name that is not known limits nothing (lf_back_cpu_check refuses
 * it before).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
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

static const char *const isa_name[] = {"plain", "avx2", "avx512", "avx512bf16"};

#if defined(__x86_64__)
static unsigned xcr0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    (void)hi;
    return lo;
}

static enum lf_isa processor_isa(void)
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
#else
static enum lf_isa processor_isa(void)
{
    return LF_ISA_PLAIN;
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
    default:
        return NULL;
    }
}

const struct lf_kernels *lf_cpu_kernels(enum lf_isa isa)
{
    return isa <= processor_isa() ? compiled(isa) : NULL;
}

enum lf_isa lf_cpu_isa_detect(void)
{
    int best = (int)processor_isa();
    const char *limit = getenv("LF_ISA");
    for (int i = 0; limit && i < best; i++)
        if (!strcmp(limit, isa_name[i]))
            best = i;
    while (best > 0 && !compiled((enum lf_isa)best))
        best--;
    return (enum lf_isa)best;
}

const char *lf_cpu_isa_name(enum lf_isa isa)
{
    return isa_name[isa];
}
