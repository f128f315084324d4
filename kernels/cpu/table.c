/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of this instruction set: one row for each kernel that is implemented; the others stay
 * NULL.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/table_gemm.h"
#include "kernels/cpu/table_kern.h"

LF_CPU_GEMM_LIST(LF_CPU_DECLARE)
LF_CPU_KERN_LIST(LF_CPU_DECLARE)

#define ROW(k) .k = {LF_SYM(k), LF_SYM(k##_check), LF_SYM(k##_work)},
const struct lf_kernels LF_SYM(table) = {.family = LF_CPU_FAMILY,
                                         LF_CPU_GEMM_LIST(ROW) LF_CPU_KERN_LIST(ROW)};
