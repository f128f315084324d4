/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attn_bwd.cu"
