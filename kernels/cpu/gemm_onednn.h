/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's matmul behind the argument struct of gemm, for mode LF_FAST. It promises equal results
 * of equal runs only for one library version and thread count.
 */
#ifndef LF_CPU_GEMM_ONEDNN_H
#define LF_CPU_GEMM_ONEDNN_H

#include "kernels/cpu/cpu.h"

/* True when this product runs in oneDNN. All of these must hold: mode LF_FAST; built with oneDNN; a
 * form that oneDNN has (no packed B, pre, act or residual); types that oneDNN multiplies on this
 * processor; LF_GEMM=onednn in the environment. With LF_ISA set it is never true, since the library
 * would not keep to that instruction set. */
bool lf_onednn_wants(const struct lf_k_gemm *g);
/* Scratch bytes of the primitive with that many threads; 0 when the primitive cannot be made. */
size_t lf_onednn_work(const struct lf_k_gemm *g, int threads);
/* Run the product. The first call with given shapes makes the primitive and keeps it in the queue.
 * Later calls allocate nothing. work holds lf_onednn_work bytes. Returns LF_K_EDEVICE when the
 * library refuses. */
int lf_onednn_gemm(lf_queue *q, const struct lf_k_gemm *g);
void lf_onednn_forget(lf_queue *q);

#endif
