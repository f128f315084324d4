/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attn_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attn_cudnn.h"

enum lf_attn_wish lf_attn_wish(void)
{
    static const char *const word[LF_ATTN_UNKNOWN] = {
        [LF_ATTN_OWN] = "own",
        [LF_ATTN_MMA] = "mma",
        [LF_ATTN_WGMMA] = "wgmma",
        [LF_ATTN_CUDNN] = "cudnn",
        [LF_ATTN_CUDNN_FORWARD] = "cudnn-forward",
    };
    const char *s = getenv("LF_ATTN");
    int wish = LF_ATTN_OWN;
    if (!s || !*s)
        return LF_ATTN_OWN;
    while (wish < LF_ATTN_UNKNOWN && strcmp(s, word[wish]) != 0)
        wish++;
    return (enum lf_attn_wish)wish;
}

int lf_cu_attn_open(struct lf_cu_device *d, char *why, size_t cap)
{
    const enum lf_attn_wish wish = lf_attn_wish();
    if (wish == LF_ATTN_UNKNOWN) {
        snprintf(why, cap, "LF_ATTN is one of own, mma, wgmma, cudnn, cudnn-forward");
        return LF_K_EDEVICE;
    }
    d->attn_wgmma =
        wish != LF_ATTN_MMA && d->sm == 90 && lf_cu_has(d, LF_CU_FN_attn_fwd_wg_bf16_64);
    if (wish == LF_ATTN_WGMMA && !d->attn_wgmma) {
        snprintf(
            why, cap,
            "LF_ATTN=wgmma needs compute capability 9.0 and a build with code for it (this GPU "
            "has %d.%d)",
            d->sm / 10, d->sm % 10);
        return LF_K_EDEVICE;
    }
    return wish == LF_ATTN_CUDNN || wish == LF_ATTN_CUDNN_FORWARD ? lf_cudnn_open(d, why, cap)
                                                                  : LF_K_OK;
}

const char *lf_cuda_attn_algorithm(const struct lf_cu_device *d, enum lf_numeric mode)
{
    const char *library = mode == LF_FAST ? lf_cudnn_name(d) : NULL;
    return library ? library : d->attn_wgmma ? "own wgmma" : "own";
}
