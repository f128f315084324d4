/* SPDX-License-Identifier: Apache-2.0
 *
 * Named ranges for tools such as Nsight Systems: NVTX 3 without its headers. A tool that starts a
 * program names a library in NVTX_INJECTION64_PATH. That library is asked once for the functions
 * that begin and end a range of the calling thread. Without a tool lf_nvtx_get returns NULL and
 * nothing is called.
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
/* Returns the functions of the tool, or NULL. They are valid for the life of the process. */
const struct lf_nvtx *lf_nvtx_get(void);

#endif
