/* SPDX-License-Identifier: Apache-2.0
 *
 * Who computes attention on a GPU. LF_ATTN of the environment says so:
 *
 *   own, unset      our own kernels: those of compute capability 9.0 where the GPU is one and the
 *                   build has code for it, else those for any GPU. The bits are the same.
 *   mma             our own kernels for any GPU
 *   wgmma           our own kernels of compute capability 9.0, or an error
 *   cudnn           in mode LF_FAST cuDNN, forward and backward, for the shapes that
 *                   lf_cudnn_fits_* accept (attn_cudnn.h); what it does not take is computed by our
 *                   own
 *   cudnn-forward   the same, the forward alone
 */
#ifndef LF_KERNELS_CUDA_ATTN_SOURCE_H
#define LF_KERNELS_CUDA_ATTN_SOURCE_H

#include <stddef.h>

#include "kernels/cuda/queue.h"

enum lf_attn_wish {
    LF_ATTN_OWN,
    LF_ATTN_MMA,
    LF_ATTN_WGMMA,
    LF_ATTN_CUDNN,
    LF_ATTN_CUDNN_FORWARD,
    LF_ATTN_UNKNOWN
};
enum lf_attn_wish lf_attn_wish(void);

/* Chooses for this device, and opens cuDNN where it is asked for. Returns LF_K_EDEVICE with one
 * sentence in why when what is asked for cannot be had, and when LF_ATTN has no such value. So a
 * run that is believed to use cuDNN does use it. */
int lf_cu_attn_open(struct lf_cu_device *d, char *why, size_t cap);
/* The source of attention in a mode, for fingerprints: "own", "own wgmma", or with LF_FAST and the
 * library its name. */
const char *lf_cuda_attn_algorithm(const struct lf_cu_device *d, enum lf_numeric mode);

#endif
