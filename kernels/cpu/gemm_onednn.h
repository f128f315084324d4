/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's matmul behind the same argument struct, for mode LF_FAST. Its promise is run-to-run
 * equality for one library version and thread count only.
 */
#ifndef LF_CPU_GEMM_ONEDNN_H
#define LF_CPU_GEMM_ONEDNN_H

#include "kernels/cpu/cpu.h"

/* True when this product runs in oneDNN: mode LF_FAST, built with it, a form it has (no packed B,
 * pre, act or residual), types that it multiplies on this processor, and LF_GEMM=onednn in the
 * environment. LF_ISA set: never, since the library would not keep to it. */
bool lf_onednn_wants(const struct lf_k_gemm *g);
/* Scratch bytes of the primitive with that many threads; 0 when it cannot be made. */
size_t lf_onednn_work(const struct lf_k_gemm *g, int threads);
/* The primitive is made at the first call with these shapes and kept in the queue; later calls
 * allocate nothing. work holds lf_onednn_work bytes. LF_K_EDEVICE when the library refuses. */
int lf_onednn_gemm(lf_queue *q, const struct lf_k_gemm *g);
void lf_onednn_forget(lf_queue *q);

#endif
