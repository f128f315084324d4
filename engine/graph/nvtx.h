/* SPDX-License-Identifier: Apache-2.0
 *
 * Named ranges for tools that watch a GPU (Nsight Systems and others): NVTX 3 without its headers.
 * Such a tool names a library in NVTX_INJECTION64_PATH when it starts a program; that library is
 * asked once for what begins and ends a range of the calling thread. Where no tool is, lf_nvtx_get
 * is NULL and nothing is ever called.
 *
 * Binary interface: NVTX 3's nvtxDetail/nvtxTypes.h (export tables, callback numbers), stable since
 * 3.0.
 */
#ifndef LF_GRAPH_NVTX_H
#define LF_GRAPH_NVTX_H

struct lf_nvtx {
    int (*push)(const char *name);
    int (*pop)(void);
};
/* What the tool gave; NULL without one. For the life of the process. */
const struct lf_nvtx *lf_nvtx_get(void);

#endif
