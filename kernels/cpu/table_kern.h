/* SPDX-License-Identifier: Apache-2.0
 *
 * The other kernels that the CPU backend implements: rows of the table in table.c.
 */
#ifndef LF_CPU_TABLE_KERN_H
#define LF_CPU_TABLE_KERN_H

#define LF_CPU_KERN_LIST(X)

#endif
