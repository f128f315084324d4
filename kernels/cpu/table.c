/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of this instruction set: one row for each kernel that is implemented; the others stay
 * NULL.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"

LF_CPU_KERNEL_LIST(LF_CPU_DECLARE)

#define ROW(k) .k = {LF_SYM(k), LF_SYM(k##_check), LF_SYM(k##_work)},
const struct lf_kernels LF_SYM(table) = {.family = LF_CPU_FAMILY, LF_CPU_KERNEL_LIST(ROW)};
